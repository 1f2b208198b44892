"""The settings of what stands between an Atari game and its policy, in the same words for every library."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppo_dice.config import check_types, require
from ppo_dice.errors import UserError

SCREEN = (84, 84)
FRAME_STACK = 4
FRAMES_PER_GAME = 108_000
"""Half an hour of play, after which a game is cut."""

_OTHER_WORDS = {
    "repeat_action_probability": "sticky_actions",
    "frameskip": "frame_skip",
    "use_fire_reset": "fire_reset",
    "terminal_on_life_loss": "episodic_life",
    "reward_clip": "clip_rewards",
    "reward_clipping": "clip_rewards",
    "max_num_frames_per_episode": "max_episode_steps",
}
"""What EnvPool, ale-py and Gymnasium call the settings."""


@dataclass(frozen=True)
class AtariSettings:
    """What may be chosen of the pipeline; the defaults are the paper's."""

    sticky_actions: float = 0.0
    """Probability that a frame repeats the action before, instead of taking the new one."""
    frame_skip: int = 4
    """Frames for which an action is held; what is seen is the maximum of the last two."""
    noop_max: int = 30
    """Most no-ops with which a game begins."""
    fire_reset: bool = True
    """Press FIRE, then the third action, when an episode begins, in games that have FIRE."""
    episodic_life: bool = True
    """A lost life ends the training episode, and the game goes on in the next one."""
    clip_rewards: bool = True
    """Learn from the signs of rewards; returns are reported in points all the same."""
    full_action_space: bool = False
    """All 18 actions of the console, instead of those that do something in the game."""
    max_episode_steps: int | None = None
    """Steps of the policy after which a game is cut; None for as many as make 108,000 frames."""

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.sticky_actions < 1, "sticky_actions", "in [0, 1)", self.sticky_actions)
        for name in ("frame_skip", "noop_max", "max_episode_steps"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "at least 1", value)

    @property
    def limit(self) -> int:
        """Steps after which a game is cut."""
        return self.max_episode_steps or max(1, FRAMES_PER_GAME // self.frame_skip)

    @classmethod
    def of(cls, env_kwargs: Mapping[str, Any]) -> "AtariSettings":
        """The settings that an environment's arguments ask for."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in env_kwargs:
            if name not in known:
                raise UserError(_unknown_setting(name, known))
        return cls(**env_kwargs)


def describe(pipeline: Mapping[str, Any]) -> str:
    """The pipeline in one line."""
    settings = AtariSettings(
        **{field.name: pipeline[field.name] for field in dataclasses.fields(AtariSettings)}
    )
    height, width = SCREEN
    sticky = f"sticky actions {settings.sticky_actions:g}" if settings.sticky_actions else "no sticky actions"
    pooled = " with the maximum of the last two" if settings.frame_skip > 1 else ""
    parts = (
        sticky,
        f"frame skip {settings.frame_skip}{pooled}",
        f"up to {settings.noop_max} no-ops",
        "FIRE at the start" if settings.fire_reset else None,
        "a lost life ends the training episode" if settings.episodic_life else "an episode is a whole game",
        f"{height}×{width} grey",
        f"stack {FRAME_STACK}",
        "signs of rewards" if settings.clip_rewards else "rewards in points",
        f"at most {settings.limit:,} steps a game",
    )
    return ", ".join(part for part in parts if part)


def _unknown_setting(name: str, known: list[str]) -> str:
    near = [_OTHER_WORDS[name]] if name in _OTHER_WORDS else difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}."
    return f"Atari's pipeline has no setting {name!r}; {hint}"
