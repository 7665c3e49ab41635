"""A state's number in another form: its place among all, its bits, or the number itself."""

from __future__ import annotations

import re
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

from townlet.errors import TownletError


class EncodeDiscrete(gym.ObservationWrapper[Any, Any, Any]):
    """Discrete observations, alone or several together, as numbers: [one_hot], [binary] or [array]."""

    def __init__(self, env: gym.Env[Any, Any], to: str) -> None:
        super().__init__(env)
        self._first, counts = _discrete_parts(env.observation_space)
        self._many = not isinstance(env.observation_space, spaces.Discrete)
        low, high = np.zeros(1), np.ones(1)
        if to == "array":
            low, high = self._first.astype(np.float32), (self._first + counts - 1).astype(np.float32)
            size = len(counts)
        elif to == "binary":
            bits = [max(1, int(count - 1).bit_length()) for count in counts]
            self._of_part = np.repeat(np.arange(len(counts)), bits)
            self._shift = np.concatenate([np.arange(n)[::-1] for n in bits])
            size = sum(bits)
        else:
            self._starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            size = int(counts.sum())
        self._to = to
        self.observation_space = spaces.Box(
            np.broadcast_to(low, size).astype(np.float32), np.broadcast_to(high, size).astype(np.float32)
        )

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The numbers that stand for a state."""
        state: NDArray[np.int64] = np.array(observation if self._many else [observation], np.int64).reshape(-1)
        if self._to == "array":
            return state.astype(np.float32)
        state = state - self._first
        if self._to == "binary":
            bits: NDArray[np.int64] = (state[self._of_part] >> self._shift) & 1
            return bits.astype(np.float32)
        shown = np.zeros(self.observation_space.shape or (), np.float32)
        shown[self._starts + state] = 1
        return shown


def _discrete_parts(space: spaces.Space[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first number and the count of every part of a space of whole numbers."""
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.reshape(-1).astype(np.int64), space.nvec.reshape(-1).astype(np.int64)
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    whole = [p for p in parts if isinstance(p, spaces.Discrete)]
    if len(whole) != len(parts):
        raise TownletError(
            f"an observation of {type(space).__name__} is not a state's number", "drop the wrapper 'encode'"
        )
    return np.array([int(p.start) for p in whole]), np.array([int(p.n) for p in whole])


IMAGE: Final = "image"
VALUES: Final = (11, 6, 4)  # kinds of things, colours, and states of doors or ways of the agent
CODES: Final = tuple(np.eye(n, dtype=np.float32) for n in VALUES)


class MiniGridOneHot(gym.ObservationWrapper[Any, Any, Any]):
    """Its image [H, W, 3] as [H, W, 21]: for each cell a 1 at its kind, one at its colour and one at its state."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        image = space.spaces.get(IMAGE) if isinstance(space, spaces.Dict) else None
        if not isinstance(space, spaces.Dict) or not isinstance(image, spaces.Box) or image.shape[-1] != len(VALUES):
            raise TownletError("the observation has no image of a grid", "drop the wrapper 'cells': it is for MiniGrid")
        coded = spaces.Box(0, 1, (*image.shape[:-1], sum(VALUES)), np.float32)
        self.observation_space = spaces.Dict({**space.spaces, IMAGE: coded})

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """The same with the codes of its cells."""
        image: NDArray[np.uint8] = observation[IMAGE]
        coded = [codes[image[..., n]] for n, codes in enumerate(CODES)]
        return {**observation, IMAGE: np.concatenate(coded, axis=-1)}


# Cells of the memory that hold positions; the ball's two come last (Anand et al. 2019, annotated RAM).
GAMES: Final = {
    "Pong": {"player_y": 51, "enemy_y": 50, "ball_x": 49, "ball_y": 54},
    "Breakout": {"player_x": 72, "ball_x": 99, "ball_y": 101},
}
FAST: Final = 16.0  # pixels of a step that count as full speed


class AtariObjects(gym.Wrapper[Any, Any, Any, Any]):
    """From memory [128] to positions in 0 … 1 and the ball's way since the last step in −1 … 1."""

    def __init__(self, env: gym.Env[Any, Any], id: str) -> None:
        super().__init__(env)
        found = re.match(r"(?:ALE/)?(Pong|Breakout)(?![a-z])", id)
        if found is None:
            raise TownletError(f"nobody knows where the objects of {id} are", f"this works for {', '.join(GAMES)}")
        cells = GAMES[found[1]]
        self.names = (*cells, "ball_dx", "ball_dy")
        self._cells = np.array(list(cells.values()))
        self._ball = np.zeros(2, np.float32)
        low = np.array([0.0] * len(cells) + [-1.0] * 2, np.float32)
        self.observation_space = spaces.Box(low, np.ones(len(low), np.float32))

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with a ball that does not move yet."""
        memory, info = self.env.reset(**how)
        self._ball = memory[self._cells[-2:]].astype(np.float32)
        return self._seen(memory), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, and see where things are."""
        memory, reward, terminated, truncated, info = self.env.step(action)
        return self._seen(memory), reward, terminated, truncated, info

    def _seen(self, memory: NDArray[np.uint8]) -> NDArray[np.float32]:
        places = memory[self._cells].astype(np.float32)
        ball = places[-2:]
        # 0 is no ball: it did not come from there, nor goes there.
        way = np.where((ball > 0) & (self._ball > 0), (ball - self._ball) / FAST, 0)
        self._ball = ball.copy()
        return np.concatenate([places / 255, np.clip(way, -1, 1)]).astype(np.float32)


class ResizeImage(gym.ObservationWrapper[Any, Any, Any]):
    """Pictures [H, W, 3] or [H, W] of bytes as [h, w] gray or [h, w, 3]; they stay bytes.

    Where an observation has named parts, its pictures are made smaller and all else stays.
    """

    def __init__(self, env: gym.Env[Any, Any], gray: bool, size: tuple[int, int] | None) -> None:
        super().__init__(env)
        self._gray, self._size = gray, None if size is None else (size[1], size[0])
        space = env.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        smaller = {name: self._space(part) if _is_picture(part) else part for name, part in parts.items()}
        self._named = tuple(name for name, part in parts.items() if _is_picture(part))
        if not self._named:
            raise TownletError(
                "grayscale and resize are for pictures, which this observation is not",
                "write observation: rgb, or drop them",
            )
        self.observation_space = spaces.Dict(smaller) if isinstance(space, spaces.Dict) else smaller[""]

    def _space(self, space: spaces.Space[Any]) -> spaces.Box:
        height, width, *colours = space.shape or ()
        if self._size is not None:
            width, height = self._size
        return spaces.Box(0, 255, (height, width, *(() if self._gray else colours)), np.uint8)

    def observation(self, observation: Any) -> Any:
        """The same with smaller pictures."""
        if isinstance(observation, dict):
            return {**observation, **{name: self._small(observation[name]) for name in self._named}}
        return self._small(observation)

    def _small(self, seen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The smaller picture. Box averaging keeps small things, such as a ball of two pixels, visible."""
        picture = Image.fromarray(seen)
        if self._gray:
            picture = picture.convert("L")
        if self._size is not None:
            picture = picture.resize(self._size, Image.Resampling.BOX)
        return np.asarray(picture)


def _is_picture(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    colour = len(shape) == 3 and shape[2] == 3
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and (colour or len(shape) == 2)
