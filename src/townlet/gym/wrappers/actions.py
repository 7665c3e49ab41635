"""Action wrappers and action masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.wrappers.spec import ActionMaskSpec

Bools = NDArray[np.bool_]
MASK_KEY: Final = "action_mask"  # key of the info dict


class ActionMasks:
    """Masks of all rows, `current` [N, K]: all actions, a fixed list, or masks from the environment's info."""

    def __init__(self, spec: ActionMaskSpec | None, rows: int, choices: int, name: str) -> None:
        self.current: Bools = np.ones((rows, choices), np.bool_)
        self._from_info, self._name = spec is not None and spec.valid is None, name
        if spec is not None and not choices:
            raise TownletError(f"the actions of {name} are not discrete and cannot be masked", "drop action_mask")
        if spec is not None and spec.valid is not None:
            if invalid := [action for action in spec.valid if action >= choices]:
                raise TownletError(f"{name} has no action {invalid[0]}", f"its actions are 0 to {choices - 1}")
            self.current[:] = False
            self.current[:, list(spec.valid)] = True

    def read(self, info: Mapping[str, Any], only: Bools | None = None) -> None:
        """Update the masks from the info of a step or reset; with `only` [N], update only the rows where it is true."""
        if self._from_info:
            present = info.get(f"_{MASK_KEY}")
            rows = np.ones(len(self.current), np.bool_) if present is None else np.asarray(present)
            rows = rows if only is None else rows & only
            self.current[rows] = self._parse(info)[rows]
            _allow_all_if_none(self.current)

    def final(self, info: Mapping[str, Any], rows: NDArray[np.int64]) -> Bools:
        """Masks [k, K] of the final observations of rows that ended in this step."""
        if not self._from_info:
            return self.current[rows]
        final_info = info.get("final_info")
        if not isinstance(final_info, Mapping) or MASK_KEY not in final_info:
            return np.ones((len(rows), self.current.shape[1]), np.bool_)
        mask = self._parse(final_info)[rows]
        _allow_all_if_none(mask)
        return mask

    def _parse(self, info: Mapping[str, Any]) -> Bools:
        """The masks [N, K] in an info."""
        if MASK_KEY not in info:
            fix = "list the valid actions: {name: action_mask, valid: [0, 1]}, or drop action_mask"
            raise TownletError(f"the info of {self._name} has no '{MASK_KEY}'", fix)
        masks = np.asarray(info[MASK_KEY])
        if masks.dtype == object:  # rows without a mask allow every action
            full = np.ones(self.current.shape[1], np.bool_)
            masks = np.stack([full if row is None else np.asarray(row) for row in masks])
        return masks.astype(np.bool_)


def _allow_all_if_none(mask: Bools) -> None:
    """Allow every action in rows whose mask is empty, as at the end of an episode: an agent must choose one."""
    mask[~mask.any(1)] = True


class RemapActions(gym.Wrapper[Any, Any, Any, Any]):
    """Offers the environment's actions `use` as 0, 1, …; masks in the info are remapped too."""

    def __init__(self, env: gym.Env[Any, Any], use: tuple[int, ...]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise TownletError("only discrete actions can be remapped", "drop the wrapper 'remap_actions'")
        n = int(env.action_space.n)
        if invalid := [action for action in use if action >= n]:
            raise TownletError(f"the environment has no action {invalid[0]}", f"its actions are 0 to {n - 1}")
        self.used_actions = use
        self._start = int(env.action_space.start)
        self.action_space = spaces.Discrete(len(use))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**options)
        return obs, self._remap_mask(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(self._start + self.used_actions[int(action)])
        return obs, reward, terminated, truncated, self._remap_mask(info)

    def _remap_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if MASK_KEY not in info else {**info, MASK_KEY: np.asarray(info[MASK_KEY])[list(self.used_actions)]}


class FrameSkip(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action `frames` times, or a random number from `frames` to `max_frames`, and sums the rewards."""

    def __init__(self, env: gym.Env[Any, Any], frames: int, max_frames: int | None = None) -> None:
        super().__init__(env)
        self._frames, self._max_frames = frames, max_frames

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        times = self._frames
        if self._max_frames is not None:
            times = int(self.np_random.integers(self._frames, self._max_frames + 1))
        total = 0.0
        for _ in range(times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info
