import numpy as np
import pytest
from safetensors.numpy import save_file

from ppo_dice.checkpoint import load_arrays, read_description, save_arrays, write_atomically
from ppo_dice.errors import UserError

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": (np.int32(4), np.zeros(0, np.float32))}


@pytest.fixture
def path(tmp_path):
    save_arrays(tmp_path / "m.safetensors", TREE, {"algorithm": "ppo"})
    return tmp_path / "m.safetensors"


def test_round_trip(path):
    assert read_description(path) == {"format_version": 1, "algorithm": "ppo"}
    loaded = load_arrays(path, TREE)
    np.testing.assert_array_equal(loaded["a"], TREE["a"])
    assert loaded["b"][0] == 4


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_torn_file_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="is not a whole model file"):
        load_arrays(path, TREE)


def test_a_file_that_does_not_fit_is_refused(path):
    with pytest.raises(UserError, match=r"the array a is float32\[2, 3\], but float32\[2, 4\] is needed"):
        load_arrays(path, {"a": np.zeros((2, 4), np.float32)})
    with pytest.raises(UserError, match="the array c is missing, but"):
        load_arrays(path, {"c": np.zeros(1)})


def test_foreign_and_future_files_are_refused(path):
    save_file({"a": np.zeros(1)}, path)
    with pytest.raises(UserError, match="was not written by ppo-dice"):
        read_description(path)
    save_arrays(path, TREE, {"format_version": 99})
    with pytest.raises(UserError, match="has format 99, but this version reads up to 1"):
        read_description(path)


@pytest.mark.parametrize("description", ["{}", "[]", "{torn", '{"format_version": null}'])
def test_a_damaged_description_is_refused(path, description):
    save_file({"a": np.zeros(1)}, path, {"ppo_dice": description})
    with pytest.raises(UserError, match="has a description that cannot be read"):
        read_description(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
