"""What environments need to draw where there is no screen: OpenGL for MuJoCo, SDL for the flat ones."""

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ppo_dice.errors import UserError

_OFF_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
_OPENGL = ("OpenGL", "glfw", "mujoco.egl", "mujoco.glfw", "mujoco.osmesa", "mujoco.rendering")


@contextmanager
def headless() -> Iterator[None]:
    """Draw off the screen where there is none; what the user has set stays."""
    screen = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ours = {} if screen else {k: value for k, value in _OFF_SCREEN.items() if not os.environ.get(k)}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def require_opengl() -> None:
    """Raise a `UserError` if MuJoCo cannot draw: what Gymnasium would leave behind is not one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GLFW warns of every step that fails
            _draw_nothing(os.environ.get("MUJOCO_GL") or "glfw")
    except Exception as cause:  # each library of the chain has its own kind
        raise no_opengl(cause) from cause


def no_opengl(cause: BaseException) -> UserError:
    """What to tell a user whose machine has no OpenGL, or another than the one that was chosen."""
    chosen = os.environ.get("MUJOCO_GL") or "glfw"
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0].rstrip(".")
    if chosen == "egl":
        remedy = "on Debian or Ubuntu run: apt-get install libegl1 libgl1-mesa-dri"
    else:
        remedy = "MUJOCO_GL=egl needs no screen"
    return UserError(f"MuJoCo cannot draw by {chosen}, its way to OpenGL here ({reason}); {remedy}.")


def is_of_opengl(error: BaseException | None) -> bool:
    """Whether an error was raised by the libraries between MuJoCo and the screen."""
    trace: TracebackType | None = error.__traceback__ if error else None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(_OPENGL):
            return True
        trace = trace.tb_next
    return False


def _draw_nothing(backend: str) -> None:
    import mujoco

    context = importlib.import_module(f"mujoco.{backend}").GLContext(8, 8)
    try:
        context.make_current()
        mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
    finally:
        context.free()
