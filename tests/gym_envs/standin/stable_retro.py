"""A stand-in for stable-retro with the same interface and one game: press RIGHT to win."""

from __future__ import annotations

from enum import Enum
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

BUTTONS = ("B", "LEFT", "RIGHT")
GAMES = ("Runner-Toy-v0", "Secret-Toy-v0")
WON = 8
Picture = NDArray[np.uint8]


class Actions(Enum):
    ALL, FILTERED, DISCRETE, MULTI_DISCRETE = range(4)


class Observations(Enum):
    IMAGE, RAM = range(2)


class State(Enum):
    DEFAULT = -1


class data:  # noqa: N801  (a module of the real one)
    @staticmethod
    def list_games() -> list[str]:
        return list(GAMES)


class RetroEmulator:
    """Emulator of one console; a process can have only one."""

    held = 0

    def __init__(self) -> None:
        if RetroEmulator.held:
            raise RuntimeError("Cannot create multiple emulator instances per process")
        RetroEmulator.held += 1
        self.place = 0

    def __del__(self) -> None:
        RetroEmulator.held = 0

    def get_state(self) -> bytes:
        return bytes([self.place])

    def set_state(self, state: bytes) -> None:
        self.place = state[0]


class RetroEnv(gym.Env[Picture, Any]):
    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012  (as the real one has it)

    def __init__(self, game: str, kind: Actions, sight: Observations, render_mode: str | None) -> None:
        self.gamename, self.kind, self.sight, self.render_mode = game, kind, sight, render_mode
        self.em, self.buttons, self.num_buttons = RetroEmulator(), BUTTONS, len(BUTTONS)
        discrete = kind is Actions.DISCRETE
        self.action_space = spaces.Discrete(len(BUTTONS)) if discrete else spaces.MultiBinary(len(BUTTONS))
        shape = (16,) if sight is Observations.RAM else (12, 16, 3)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Picture, dict[str, Any]]:
        super().reset(seed=seed)
        self.em.set_state(bytes([0]))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        pressed = action == BUTTONS.index("RIGHT") if self.kind is Actions.DISCRETE else action[2]
        self.em.place += int(pressed)
        return self._seen(), float(pressed), self.em.place >= WON, False, {"place": self.em.place}

    def _seen(self) -> Picture:
        return self.get_ram() if self.sight is Observations.RAM else self.get_screen()

    def get_ram(self) -> Picture:
        ram = np.zeros(16, np.uint8)
        ram[0] = self.em.place
        return ram

    def get_screen(self) -> Picture:
        picture = np.zeros((12, 16, 3), np.uint8)
        picture[:, self.em.place] = 255
        return picture

    def get_action_meaning(self, action: int) -> list[str]:
        return [BUTTONS[action]]

    def render(self) -> Any:
        return self.get_screen()

    def close(self) -> None:
        if hasattr(self, "em"):
            del self.em


def make(
    game: str,
    state: State = State.DEFAULT,
    use_restricted_actions: Actions = Actions.FILTERED,
    obs_type: Observations = Observations.IMAGE,
    render_mode: str | None = "human",
) -> RetroEnv:
    if game == "Secret-Toy-v0":
        raise FileNotFoundError(f"Game not found: {game}. Did you make sure to import the ROM?")
    return RetroEnv(game, use_restricted_actions, obs_type, render_mode)
