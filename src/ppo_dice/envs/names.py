"""What to tell a user whose environment nobody knows."""

import difflib
import importlib.util
import warnings

import gymnasium


def gymnasium_ids() -> list[str]:
    """Return every id registered with Gymnasium."""
    return list(gymnasium.registry)


def envpool_ids() -> list[str]:
    """Return every id EnvPool knows, none where it is not installed."""
    if not envpool_is_installed():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import envpool

    return list(envpool.list_all_envs())


def envpool_is_installed() -> bool:
    """Say whether EnvPool could be imported, without importing it."""
    return importlib.util.find_spec("envpool") is not None


def unknown_environment(env_id: str, known: list[str]) -> str:
    """Return one sentence with the nearest names."""
    nearest = difflib.get_close_matches(env_id, known, n=3, cutoff=0.6)
    if not nearest:
        return f"There is no environment {env_id!r}; `ppo-dice envs` lists all that are installed."
    return f"There is no environment {env_id!r}; did you mean {' or '.join(nearest)}?"
