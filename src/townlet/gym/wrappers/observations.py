"""Observation wrappers: encodings of discrete observations and MiniGrid cells, Atari objects, smaller images."""

from __future__ import annotations

import re
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image

from townlet.errors import TownletError

MINIGRID_IMAGE: Final = "image"
MINIGRID_CODES: Final = (11, 6, 4)  # objects, colors, and door states or directions of the agent
ONE_HOT: Final = tuple(np.eye(n, dtype=np.float32) for n in MINIGRID_CODES)
# RAM addresses of positions, the ball's x and y last (Anand et al. 2019, annotated RAM).
OBJECT_ADDRESSES: Final = {
    "Pong": {"player_y": 51, "enemy_y": 50, "ball_x": 49, "ball_y": 54},
    "Breakout": {"player_x": 72, "ball_x": 99, "ball_y": 101},
}
MAX_BALL_SPEED: Final = 16.0  # pixels per step, mapped to 1


class EncodeDiscrete(gym.ObservationWrapper[Any, Any, Any]):
    """Encodes discrete observations, one number or several, as "one_hot", "binary" or "array"."""

    def __init__(self, env: gym.Env[Any, Any], to: str) -> None:
        super().__init__(env)
        self._start, counts = _discrete_ranges(env.observation_space)
        self._single = isinstance(env.observation_space, spaces.Discrete)
        low, high = np.zeros(1), np.ones(1)
        if to == "array":
            low, high = self._start.astype(np.float32), (self._start + counts - 1).astype(np.float32)
            size = len(counts)
        elif to == "binary":
            bits = [max(1, int(count - 1).bit_length()) for count in counts]
            self._source = np.repeat(np.arange(len(counts)), bits)
            self._shift = np.concatenate([np.arange(n)[::-1] for n in bits])
            size = sum(bits)
        else:
            self._offsets = np.concatenate([[0], np.cumsum(counts)[:-1]])
            size = int(counts.sum())
        self._to = to
        self.observation_space = spaces.Box(
            np.broadcast_to(low, size).astype(np.float32), np.broadcast_to(high, size).astype(np.float32)
        )

    def observation(self, observation: Any) -> NDArray[np.float32]:
        values: NDArray[np.int64] = np.array([observation] if self._single else observation, np.int64).reshape(-1)
        if self._to == "array":
            return values.astype(np.float32)
        values = values - self._start
        if self._to == "binary":
            bits: NDArray[np.int64] = (values[self._source] >> self._shift) & 1
            return bits.astype(np.float32)
        one_hot = np.zeros(self.observation_space.shape or (), np.float32)
        one_hot[self._offsets + values] = 1
        return one_hot


def _discrete_ranges(space: spaces.Space[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and count of every number in a discrete space."""
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.reshape(-1).astype(np.int64), space.nvec.reshape(-1).astype(np.int64)
    subspaces = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    discrete = [s for s in subspaces if isinstance(s, spaces.Discrete)]
    if len(discrete) != len(subspaces):
        raise TownletError(f"a {type(space).__name__} observation is not discrete", "drop the wrapper 'encode'")
    return np.array([int(s.start) for s in discrete]), np.array([int(s.n) for s in discrete])


class MiniGridOneHot(gym.ObservationWrapper[Any, Any, Any]):
    """Encodes each cell of MiniGrid's image [H, W, 3] as one-hot object, color and state: [H, W, 21]."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        image = space.spaces.get(MINIGRID_IMAGE) if isinstance(space, spaces.Dict) else None
        if not isinstance(space, spaces.Dict) or not isinstance(image, spaces.Box) or image.shape[-1] != 3:
            fix = "drop the wrapper 'minigrid_one_hot': it is for MiniGrid"
            raise TownletError("the observation has no MiniGrid image", fix)
        encoded = spaces.Box(0, 1, (*image.shape[:-1], sum(MINIGRID_CODES)), np.float32)
        self.observation_space = spaces.Dict({**space.spaces, MINIGRID_IMAGE: encoded})

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Encode the image; other parts pass through."""
        image: NDArray[np.uint8] = observation[MINIGRID_IMAGE]
        encoded = [codes[image[..., n]] for n, codes in enumerate(ONE_HOT)]
        return {**observation, MINIGRID_IMAGE: np.concatenate(encoded, axis=-1)}


class AtariObjects(gym.Wrapper[Any, Any, Any, Any]):
    """Reads positions in [0, 1] and the ball's velocity in [−1, 1] from Atari RAM [128], for Pong and Breakout."""

    def __init__(self, env: gym.Env[Any, Any], id: str) -> None:
        super().__init__(env)
        match = re.match(r"(?:ALE/)?(Pong|Breakout)(?![a-z])", id)
        if match is None:
            games = ", ".join(OBJECT_ADDRESSES)
            raise TownletError(f"observation: objects is not available for {id}", f"it works for {games}")
        addresses = OBJECT_ADDRESSES[match[1]]
        self.names = (*addresses, "ball_dx", "ball_dy")
        self._addresses = np.array(list(addresses.values()))
        self._ball = np.zeros(2, np.float32)
        low = np.array([0.0] * len(addresses) + [-1.0] * 2, np.float32)
        self.observation_space = spaces.Box(low, np.ones(len(low), np.float32))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode with the ball at rest."""
        ram, info = self.env.reset(**options)
        self._ball = ram[self._addresses[-2:]].astype(np.float32)
        return self._read(ram), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        ram, reward, terminated, truncated, info = self.env.step(action)
        return self._read(ram), reward, terminated, truncated, info

    def _read(self, ram: NDArray[np.uint8]) -> NDArray[np.float32]:
        positions = ram[self._addresses].astype(np.float32)
        ball = positions[-2:]
        # A coordinate of 0 means that there is no ball; velocities to or from it are 0.
        velocity = np.where((ball > 0) & (self._ball > 0), (ball - self._ball) / MAX_BALL_SPEED, 0)
        self._ball = ball.copy()
        return np.concatenate([positions / 255, np.clip(velocity, -1, 1)]).astype(np.float32)


class ResizeImage(gym.ObservationWrapper[Any, Any, Any]):
    """Converts uint8 images [H, W, 3] or [H, W] to [h, w] gray or [h, w, 3], including those in a Dict observation."""

    def __init__(self, env: gym.Env[Any, Any], gray: bool, size: tuple[int, int] | None) -> None:
        super().__init__(env)
        self._gray, self._size = gray, None if size is None else (size[1], size[0])
        space = env.observation_space
        subspaces = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        resized = {name: self._resized_space(s) if _is_image(s) else s for name, s in subspaces.items()}
        self._images = tuple(name for name, s in subspaces.items() if _is_image(s))
        if not self._images:
            raise TownletError("grayscale and resize need an image observation", "write observation: rgb, or drop them")
        self.observation_space = spaces.Dict(resized) if isinstance(space, spaces.Dict) else resized[""]

    def _resized_space(self, space: spaces.Space[Any]) -> spaces.Box:
        height, width, *channels = space.shape or ()
        if self._size is not None:
            width, height = self._size
        return spaces.Box(0, 255, (height, width, *(() if self._gray else channels)), np.uint8)

    def observation(self, observation: Any) -> Any:
        """Resize the images; other parts pass through."""
        if isinstance(observation, dict):
            return {**observation, **{name: self._resize(observation[name]) for name in self._images}}
        return self._resize(observation)

    def _resize(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize by box averaging, which keeps small objects visible, such as a ball of two pixels."""
        resized = Image.fromarray(image)
        if self._gray:
            resized = resized.convert("L")
        if self._size is not None:
            resized = resized.resize(self._size, Image.Resampling.BOX)
        return np.asarray(resized)


def _is_image(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    color = len(shape) == 3 and shape[2] == 3
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and (color or len(shape) == 2)
