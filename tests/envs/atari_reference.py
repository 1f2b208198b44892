"""The paper's pipeline written plainly for one copy, frame by frame, on ale-py's bare emulator."""

from typing import NamedTuple

import numpy as np
from ale_py import Action, ALEInterface, LoggerMode, roms

ALEInterface.setLoggerMode(LoggerMode.Error)


class Expected(NamedTuple):
    """One step as it should be seen; `picture` is None where the game is over, for nobody learns from it."""

    picture: np.ndarray | None
    reward: float
    terminated: bool
    score: float
    over: bool
    first_picture: np.ndarray | None


class Reference:
    """One copy; `noops` begin every game, and the screen is cut to `rows`."""

    def __init__(self, game: str, *, noops: int, frame_skip: int = 4, rows: int | None = None) -> None:
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(game))
        self.actions = self.ale.getMinimalActionSet()
        self.fires = Action.FIRE in self.actions
        self.noops, self.frame_skip, self.rows = noops, frame_skip, rows
        self.unreported = 0.0

    def reset(self) -> np.ndarray:
        self.new_game()
        self.press(["fire", "third"])
        return small(self.screen)

    def step(self, action: int) -> Expected:
        lives = self.ale.lives()
        points = self.hold(self.actions[action])
        score, self.unreported = points + self.unreported, 0.0
        over, died = self.ale.game_over(), 0 < self.ale.lives() < lives
        picture, first = (None if over else small(self.screen)), None
        if over:
            first = self.reset()
        elif died:
            self.press(["noop", "fire", "third"])
            first = small(self.screen)
        return Expected(picture, np.sign(points), over or died, score, over, first)

    def new_game(self) -> None:
        self.ale.reset_game()
        self.unreported = 0.0
        for _ in range(self.noops):
            self.ale.act(Action.NOOP)
        self.screen = self.ale.getScreenGrayscale()

    def press(self, what: list[str]) -> None:
        for action in what:
            if action == "noop" or self.fires:
                place = ["noop", "fire", "third"].index(action)
                self.unreported += self.hold(self.actions[place])
                assert not self.ale.game_over()

    def hold(self, action: Action) -> float:
        points, screens = 0.0, []
        for _ in range(self.frame_skip):
            points += self.ale.act(action)
            screens.append(self.ale.getScreenGrayscale())
            if self.ale.game_over():
                break
        self.screen = np.max(screens[-2:], axis=0)[: self.rows]
        return points


def small(screen: np.ndarray) -> np.ndarray:
    """The means over the areas of 84 × 84 pixels."""
    return means(means(screen.astype(np.float32)).T).T


def means(image: np.ndarray) -> np.ndarray:
    """Means over 84 equal parts of the rows."""
    sums = np.concatenate(
        [np.zeros((1, image.shape[1]), np.float32), np.cumsum(image, axis=0, dtype=np.float64)]
    )
    edges = np.linspace(0, len(image), 85)
    below = np.minimum(edges.astype(int), len(image) - 1)
    at_edges = sums[below] + (edges - below)[:, None] * image[below]
    return np.diff(at_edges, axis=0) * (84 / len(image))
