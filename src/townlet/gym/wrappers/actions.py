"""Which actions make sense in each row: all, a fixed list, or what the environment's info says."""

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
MASK_KEY: Final = "action_mask"


class ActionMasks:
    """The mask of all rows, `now` [N, K], in memory that is used again."""

    def __init__(self, spec: ActionMaskSpec | None = None) -> None:
        self._spec = spec
        self._name = ""
        self.now: Bools = np.ones((0, 0), np.bool_)

    def fit(self, rows: int, choices: int, name: str) -> None:
        """Make room for the rows and choices of an environment."""
        self.now, self._name = np.ones((rows, choices), np.bool_), name
        if self._spec is None:
            return
        if not choices:
            raise TownletError(f"{name} has no actions to choose from, so none can be masked", "drop action_mask")
        if self._spec.valid is not None:
            if beyond := [a for a in self._spec.valid if a >= choices]:
                raise TownletError(f"{name} has no action {beyond[0]}", f"its actions are 0 to {choices - 1}")
            self.now[:] = False
            self.now[:, list(self._spec.valid)] = True

    @property
    def _told(self) -> bool:
        return self._spec is not None and self._spec.valid is None

    def read(self, info: Mapping[str, Any], only: Bools | None = None) -> None:
        """Take over what the info of all rows says; with `only`, of some of them."""
        if self._told:
            known = info.get(f"_{MASK_KEY}")
            rows = np.ones(len(self.now), np.bool_) if known is None else np.asarray(known)
            rows = rows if only is None else rows & only
            self.now[rows] = self._given(info)[rows]
            self._never_none(self.now)

    def final(self, info: Mapping[str, Any], rows: NDArray[np.int64]) -> Bools:
        """The mask that rows which ended in this step had before they began anew [k, K]."""
        if not self._told:
            return self.now[rows]
        last = info.get("final_info")
        if not isinstance(last, Mapping) or MASK_KEY not in last:
            return np.ones((len(rows), self.now.shape[1]), np.bool_)
        mask = self._given(last)[rows]
        self._never_none(mask)
        return mask

    def _given(self, info: Mapping[str, Any]) -> Bools:
        if MASK_KEY not in info:
            raise TownletError(
                f"{self._name} says nothing of its valid actions (info['{MASK_KEY}'])",
                "name them: {name: action_mask, valid: [0, 1]}, or drop action_mask",
            )
        given = np.asarray(info[MASK_KEY])
        if given.dtype == object:  # some rows say nothing: whatever they do makes sense
            full = np.ones(self.now.shape[1], np.bool_)
            given = np.stack([full if row is None else np.asarray(row) for row in given])
        return given.astype(np.bool_)

    @staticmethod
    def _never_none(mask: Bools) -> None:
        """Where nothing makes sense any more, as at an end, everything is allowed: an agent must choose."""
        mask[~mask.any(1)] = True


class RemapActions(gym.Wrapper[Any, Any, Any, Any]):
    """What the agent calls 0, 1, … is what the environment calls `use`; its mask follows."""

    def __init__(self, env: gym.Env[Any, Any], use: tuple[int, ...]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise TownletError("only actions that are one of n can be chosen from", "drop the wrapper 'actions'")
        n = int(env.action_space.n)
        if beyond := [action for action in use if action >= n]:
            raise TownletError(f"the environment has no action {beyond[0]}", f"its actions are 0 to {n - 1}")
        self.use = use
        self._first = int(env.action_space.start)
        self.action_space = spaces.Discrete(len(use))

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(**how)
        return seen, self._masked(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act as the environment calls it."""
        seen, reward, terminated, truncated, info = self.env.step(self._first + self.use[int(action)])
        return seen, reward, terminated, truncated, self._masked(info)

    def _masked(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if MASK_KEY not in info else {**info, MASK_KEY: np.asarray(info[MASK_KEY])[list(self.use)]}


class FrameSkip(gym.Wrapper[Any, Any, Any, Any]):
    """Does each action `frames` times, or a drawn number of times up to `most`, and adds up the rewards."""

    def __init__(self, env: gym.Env[Any, Any], frames: int, most: int | None = None) -> None:
        super().__init__(env)
        self._frames, self._most = frames, most

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act until the frames are over, or the episode."""
        times = self._frames
        if self._most is not None:
            times = int(self.np_random.integers(self._frames, self._most + 1))
        total = 0.0
        for _ in range(times):
            seen, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return seen, total, terminated, truncated, info
