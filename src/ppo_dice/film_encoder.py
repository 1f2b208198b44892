"""Frames → a film on disk, by ffmpeg."""

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np
from jaxtyping import UInt8

from ppo_dice.errors import UserError

_OUTPUT = {
    # Players want pixels in groups of 2 × 2, and the index first so that a browser can begin at once.
    ".mp4": ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart"],
    # The colours are those of the first frames, so that the others need not wait in memory for the last one.
    ".gif": [
        "-filter_complex",
        "split[head][all];[head]trim=end_frame=50,palettegen[colours];[all][colours]paletteuse=dither=none",
    ],
}
INSTALL = "Films need libraries that are not installed; run: pip install 'ppo-dice[video]'"


def check_film_path(path: Path) -> None:
    """Raise a `UserError` if no film can come to be under this name."""
    if path.suffix not in _OUTPUT:
        raise UserError(f"A film's name ends in {' or '.join(_OUTPUT)}, but this one is {path}.")
    if path.is_dir():
        raise UserError(f"The film cannot be written as {path}, because that is a folder.")
    _find_ffmpeg()


class FilmEncoder:
    """Takes frames one by one; the film is whole when the `with` block has ended."""

    def __init__(self, path: Path, fps: float) -> None:
        self.frames = 0
        self._path, self._fps = path, fps
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the film)

    def __enter__(self) -> "FilmEncoder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._complaints:
            if self._process is None:
                return
            if error is not None:
                self._process.kill()
            try:
                self._process.communicate()
            finally:
                self._process.kill()
            if error is None and self._process.returncode != 0:
                raise self._failure()

    def write(self, frame: UInt8[np.ndarray, "H W 3"]) -> None:
        """Append a frame; the first one decides the size."""
        if self._process is None:
            self._process, self._shape = self._start(*frame.shape[:2]), frame.shape
        if frame.shape != self._shape:
            raise UserError(
                f"The frames of a film are of one size, but after {self._shape} came {frame.shape}."
            )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            self._process.wait()
            raise self._failure() from None
        self.frames += 1

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self._fps:.6g}"]
        command = [_find_ffmpeg(), "-loglevel", "error", "-y", *source, "-i", "-"]
        return subprocess.Popen(
            [*command, *_OUTPUT[self._path.suffix], str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for us: it must not break the pipe first
        )

    def _failure(self) -> UserError:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return UserError(f"The film could not be encoded: {lines[-1] if lines else 'ffmpeg failed'}.")


def _find_ffmpeg() -> str:
    # imageio-ffmpeg's own writer forks in a way that JAX's threads forbid; the program is what we need of it.
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise UserError(INSTALL) from None
