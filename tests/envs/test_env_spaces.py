import json
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo_dice.envs import (
    action_size,
    category_counts,
    check_spaces,
    flatten_observation,
    flatten_observations,
    numbers_of,
    observation_bytes,
    observation_size,
    space_from_json,
    space_to_json,
    to_env_actions,
    unstack_actions,
)
from ppo_dice.envs.spaces import are_alike, stack_observations
from ppo_dice.errors import UserError

ANY_BOX = spaces.Box(-1.0, 1.0, (2,))
ANY_DISCRETE = spaces.Discrete(3)

shapes = st.lists(st.integers(1, 3), min_size=0, max_size=2).map(tuple)
bound = st.one_of(st.just(np.inf), st.floats(0.0, 1e6, width=32))


@st.composite
def float_boxes(draw: Callable[..., Any]) -> spaces.Box:
    shape = draw(shapes)
    size = int(np.prod(shape))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    low = -np.array(draw(st.lists(bound, min_size=size, max_size=size)), dtype).reshape(shape)
    high = np.array(draw(st.lists(bound, min_size=size, max_size=size)), dtype).reshape(shape)
    return spaces.Box(low, high, dtype=dtype)


@st.composite
def multi_discretes(draw: Callable[..., Any]) -> spaces.MultiDiscrete:
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    counts = st.lists(st.integers(1, 4), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    starts = st.lists(st.integers(-3, 3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    return spaces.MultiDiscrete(np.reshape(draw(counts), shape), start=np.reshape(draw(starts), shape))


discretes = st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-3, 3))
multi_binaries = st.one_of(st.integers(1, 4), st.sampled_from([(2,), (2, 3)])).map(spaces.MultiBinary)
integer_boxes = st.sampled_from([np.int8, np.uint8, np.int64]).map(
    lambda dtype: spaces.Box(0, 100, (3,), dtype)
)
action_spaces = st.one_of(float_boxes(), discretes, multi_discretes(), multi_binaries)
observation_spaces = st.recursive(
    st.one_of(action_spaces, integer_boxes),
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abcz"), parts, min_size=1, max_size=3).map(
            lambda named: spaces.Dict(list(named.items()))
        ),
    ),
    max_leaves=4,
)


@given(space=observation_spaces, seed=st.integers(0, 2**31))
@settings(deadline=None)
def test_flattening_agrees_with_gymnasium(space: gymnasium.Space, seed: int) -> None:
    check_spaces(space, ANY_DISCRETE, "probe")
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    batch = flatten_observations(space, stack_observations(space, samples))
    assert batch.shape == (3, observation_size(space))
    assert batch.dtype == np.float32
    for row, sample in zip(batch, samples):
        np.testing.assert_array_equal(row, flatten_observation(space, sample))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(row, spaces.flatten(space, sample).astype(np.float32))


images = st.builds(
    lambda shape, dtype: spaces.Box(0, 1 if dtype == np.bool_ else 255, shape, dtype),
    st.one_of(st.tuples(*[st.integers(1, 5)] * 2), st.tuples(*[st.integers(1, 5)] * 3)),
    st.just(np.uint8),
) | st.builds(lambda shape: spaces.Box(0, 1, shape, np.bool_), st.tuples(*[st.integers(1, 5)] * 3))


@given(image=images, other=observation_spaces, more=images, seed=st.integers(0, 2**31))
@settings(deadline=None)
def test_images_become_bytes_and_all_else_the_bytes_of_its_numbers(
    image: spaces.Box, other: gymnasium.Space, more: spaces.Box, seed: int
) -> None:
    space = spaces.Tuple([image, other, spaces.Dict(more=more)])
    check_spaces(space, ANY_DISCRETE, "probe")
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    batch = flatten_observations(space, stack_observations(space, samples))
    assert batch.dtype == np.uint8
    assert batch.shape == (3, observation_bytes(space))
    np.testing.assert_array_equal(
        numbers_of(space, batch),
        flatten_observations(other, stack_observations(other, [sample[1] for sample in samples])),
    )
    for row, sample in zip(batch, samples):
        pixels = np.concatenate([sample[0].ravel(), sample[2]["more"].ravel()])
        np.testing.assert_array_equal(row[: len(pixels)], pixels)


def test_a_single_image_is_not_copied() -> None:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    frames = np.zeros((8, 4, 84, 84), np.uint8)
    assert np.shares_memory(flatten_observations(space, frames), frames)
    assert numbers_of(space, flatten_observations(space, frames)).size == 0


@given(space=observation_spaces)
@settings(deadline=None)
def test_json_gives_the_same_space_back(space: gymnasium.Space) -> None:
    written = json.dumps(space_to_json(space), allow_nan=False)
    again = space_from_json(json.loads(written))
    assert again == space
    assert space_to_json(again) == space_to_json(space)
    assert again.dtype == space.dtype
    if isinstance(space, spaces.Dict):
        assert list(again.spaces) == list(space.spaces)  # the order of the flattened observation
    if isinstance(space, spaces.Box):
        np.testing.assert_array_equal(again.low, space.low)
        np.testing.assert_array_equal(again.high, space.high)


@given(space=action_spaces, seed=st.integers(0, 2**31))
@settings(deadline=None)
def test_every_action_of_a_policy_becomes_one_of_the_space(space: gymnasium.Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = category_counts(space)
    size = (4, action_size(space))
    if counts:
        actions = rng.integers(0, counts, size, dtype=np.int32)
    else:
        actions = (rng.normal(size=size) * 10).astype(np.float32)
    given_actions = actions.copy()
    env_actions = to_env_actions(space, actions)
    assert all(space.contains(action) for action in unstack_actions(space, env_actions))
    env_actions += np.asarray(1, env_actions.dtype)
    np.testing.assert_array_equal(actions, given_actions)  # nothing an environment does can reach them


def test_categories_count_from_the_start_of_the_space() -> None:
    assert to_env_actions(spaces.Discrete(3, start=-1), np.array([[0], [2]], np.int32)).tolist() == [-1, 1]
    grid = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 10], [20, 30]])
    assert category_counts(grid) == (2, 3, 4, 5)
    assert to_env_actions(grid, np.array([[1, 2, 3, 4]], np.int32)).tolist() == [[[1, 12], [23, 34]]]
    assert category_counts(spaces.MultiBinary((2, 2))) == (2, 2, 2, 2)
    assert category_counts(ANY_BOX) == ()


def test_one_hots_are_where_they_should_be() -> None:
    space = spaces.Dict({"a": spaces.Discrete(3, start=5), "b": spaces.MultiDiscrete([2, 2])})
    flat = flatten_observation(space, {"a": np.int64(6), "b": np.array([1, 0])})
    assert flat.tolist() == [0, 1, 0, 0, 1, 1, 0]


def test_numbers_beyond_float32_become_infinite_without_a_warning() -> None:
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    assert flatten_observation(space, np.array([1e300])).tolist() == [np.inf]


REFUSED = [
    (spaces.Box(0, 1, (4, 8, 8)), ANY_BOX, "images of float32, which are not supported: .* uint8 or bool"),
    (spaces.Box(0, 255, (2, 8, 8, 3), np.uint8), ANY_BOX, r"observations of 4 axes, \(2, 8, 8, 3\)"),
    (spaces.Text(3), ANY_BOX, "observation space Text, which is not supported; supported are Box vectors"),
    (spaces.Tuple([spaces.Dict(a=spaces.Text(3))]), ANY_BOX, r"Text at \[0\]\['a'\]"),
    (spaces.Sequence(ANY_BOX), ANY_BOX, "observation space Sequence"),
    (spaces.Graph(ANY_BOX, None), ANY_BOX, "observation space Graph"),
    (spaces.OneOf([ANY_BOX]), ANY_BOX, "observation space OneOf"),
    (spaces.Box(0, 1, (0,)), ANY_BOX, "empty observation space"),
    (spaces.Dict(), ANY_BOX, "empty observation space"),
    (ANY_BOX, spaces.Box(0, 3, (2,), np.int64), "Box action space of int64.*belong in a MultiDiscrete"),
    (ANY_BOX, spaces.Tuple([ANY_DISCRETE]), "action space Tuple, which is not supported"),
    (ANY_BOX, spaces.Dict(a=ANY_DISCRETE), "action space Dict"),
    (ANY_BOX, spaces.Text(3), "action space Text"),
    (ANY_BOX, spaces.Box(0, 1, (0,)), "empty action space"),
]


@pytest.mark.parametrize(("observation_space", "action_space", "sentence"), REFUSED)
def test_what_is_refused_is_named(
    observation_space: gymnasium.Space, action_space: gymnasium.Space, sentence: str
) -> None:
    with pytest.raises(UserError, match=f"^Probe-v0 .*{sentence}.*\\.$"):
        check_spaces(observation_space, action_space, "Probe-v0")


@pytest.mark.parametrize(
    ("one", "other", "alike_with_bounds", "alike_without"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float64), True, True),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 2, (2,)), False, True),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2, 1)), False, False),
        (spaces.Box(0, 255, (2,), np.uint8), spaces.Box(0, 255, (2,), np.float32), False, False),
        (spaces.Box(0, 255, (2,), np.uint8), spaces.Box(0, 1, (2,), np.uint8), False, False),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), False, False),
        (spaces.Dict(a=ANY_BOX, b=ANY_DISCRETE), spaces.Dict(b=ANY_DISCRETE, a=ANY_BOX), True, True),
        (spaces.Dict(a=ANY_BOX), spaces.Dict(b=ANY_BOX), False, False),
        (spaces.Tuple([ANY_BOX]), spaces.Tuple([spaces.Box(-1, 1, (2,), np.float64)]), True, True),
        (spaces.Box(-1e300, 1e300, (1,), np.float64), spaces.Box(-np.inf, np.inf, (1,)), True, True),
    ],
)
def test_spaces_are_alike_where_a_policy_for_one_fits_the_other(one, other, alike_with_bounds, alike_without):
    for a, b in ((one, other), (other, one)):
        assert are_alike(a, b, bounds=True) is alike_with_bounds
        assert are_alike(a, b, bounds=False) is alike_without
