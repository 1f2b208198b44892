from pathlib import Path

import pytest


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, for MuJoCo writes MUJOCO_LOG.TXT into the current one when it warns."""
    monkeypatch.chdir(tmp_path)
