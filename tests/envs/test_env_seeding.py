import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_dice.envs import environment_seeds
from ppo_dice.errors import UserError


@given(run_seed=st.integers(0, 2**64), segment=st.integers(0, 10**6))
def test_adding_copies_changes_no_seed(run_seed: int, segment: int) -> None:
    few = environment_seeds(run_seed, 3, segment=segment)
    assert environment_seeds(run_seed, 8, segment=segment)[:3] == few
    assert all(0 <= seed < 2**31 for seed in few)


def test_runs_purposes_segments_and_copies_share_no_seed() -> None:
    seeds = [
        seed
        for run_seed, segment, purpose in itertools.product(range(10), range(5), ("train", "evaluate"))
        for seed in environment_seeds(run_seed, 10, segment=segment, purpose=purpose)
    ]
    assert len(set(seeds)) == len(seeds)


def test_a_negative_set_of_starts_is_refused() -> None:
    with pytest.raises(UserError, match="must be at least 0, but is -1"):
        environment_seeds(0, 1, segment=-1, purpose="evaluate")
