"""What to tell a user whose environment nobody knows."""

import difflib
import warnings

import gymnasium


def gymnasium_ids() -> list[str]:
    """Return every id registered with Gymnasium."""
    return list(gymnasium.registry)


def envpool_ids() -> list[str]:
    """Return every id EnvPool knows, none where it cannot be imported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import envpool
    except ImportError:  # not installed, or a system library that it needs is not
        return []
    return list(envpool.list_all_envs())


def unknown_environment(env_id: str, known: list[str]) -> str:
    """Return one sentence with the nearest names."""
    nearest = difflib.get_close_matches(env_id, sorted(set(known)), n=3, cutoff=0.6)
    if not nearest:
        return f"There is no environment {env_id!r}; `ppo-dice envs` lists all that are installed."
    return f"There is no environment {env_id!r}; did you mean {' or '.join(nearest)}?"
