import dataclasses

import pytest

from ppo_dice import limits
from ppo_dice.config import PPOConfig
from ppo_dice.errors import UserError
from ppo_dice.limits import refuse_rollout_beyond_memory, refuse_too_many_copies


def test_the_most_environments_are_allowed_and_one_more_is_not():
    refuse_too_many_copies(n_envs=1000, seeds=100)
    with pytest.raises(UserError, match=r"1,001 environments for each of 100 seeds .* up to 100,000"):
        refuse_too_many_copies(n_envs=1001, seeds=100)


def test_a_rollout_is_refused_that_is_larger_than_the_memory(monkeypatch):
    config = PPOConfig(n_envs=4, n_steps=256, n_minibatches=1)
    needed = 4 * 256 * 10 * (2 * 11 + 3 + 1) * 4  # transitions of 10 seeds · numbers of each · bytes
    sizes = {"seeds": 10, "observation_bytes": 44, "action_size": 3}
    monkeypatch.setattr(limits, "_machine_memory", lambda: needed)
    refuse_rollout_beyond_memory(config, **sizes)
    monkeypatch.setattr(limits, "_machine_memory", lambda: needed - 1)
    with pytest.raises(UserError, match="256 steps in 4 environments for each of 10 seeds takes at least"):
        refuse_rollout_beyond_memory(config, **sizes)
    refuse_rollout_beyond_memory(dataclasses.replace(config, n_steps=255), **sizes)
    monkeypatch.setattr(limits, "_machine_memory", lambda: None)
    refuse_rollout_beyond_memory(config, **sizes)  # the system does not tell


def test_this_machine_has_memory():
    memory = limits._machine_memory()
    assert memory is None or memory > 1e8
