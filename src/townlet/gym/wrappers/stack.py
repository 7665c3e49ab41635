"""The last observations shown together, so that one look shows motion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.spaces import Floats, Observations
from townlet.gym.wrappers.stage import Scaling
from townlet.interfaces.layout import Block, Layout
from townlet.interfaces.restore import SAME, part
from townlet.interfaces.state import State


class Stack:
    """The last k observations of each row, the newest last; at the first moment it is shown k times."""

    frozen = False

    def __init__(self, frames: int) -> None:
        self._k = frames

    def fit(self, layout: Layout, rows: int, sight: Observations) -> tuple[Layout, Floats]:
        """Each block is stacked by itself: pictures in their channels, others along a new first axis."""
        self._in = layout
        self._frames: Floats = np.zeros((rows, self._k, layout.size), np.float32)
        one = len(layout.blocks) == 1  # then the memory of frames is already what comes out
        self._out = self._frames.reshape(rows, -1) if one else np.zeros((rows, self._k * layout.size), np.float32)
        self._one = one
        blocks: list[Block] = []
        for block in layout:
            shape = block.shape
            deep = (self._k * shape[0], *shape[1:]) if block.kind == "picture" else (self._k, *shape)
            blocks.append(replace(block, start=block.start * self._k, shape=deep))
        return Layout(tuple(blocks)), self._out

    def forget(self) -> None:
        """Nothing outlives an episode."""

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows, k times."""
        self._frames[:] = obs[:, None]
        return self._laid(self._frames, self._out)

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """One more look; rows that begin forget those before. What ended rows saw last stands on their own past."""
        if len(last):
            past = np.concatenate([self._frames[ended, 1:], last[:, None]], axis=1)
            last = self._laid(past, np.empty((len(ended), self._out.shape[1]), np.float32), copy=True)
        self._frames[:, :-1] = self._frames[:, 1:]
        self._frames[:, -1] = obs
        if begins.any():
            self._frames[begins] = obs[begins, None]
        return self._laid(self._frames, self._out), last

    def _laid(self, frames: Floats, out: Floats, *, copy: bool = False) -> Floats:
        """Frames [n, k, D] with each block's own beside each other [n, k · D]."""
        if self._one:
            return frames.reshape(len(frames), -1) if copy else out
        for block in self._in:
            start, size = block.start * self._k, block.size * self._k
            out[:, start : start + size] = frames[:, :, block.slice].reshape(len(frames), -1)
        return out

    def follow(self, other: Stack) -> None:
        """Nothing is learned."""

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """The same for every look."""
        if before is None:
            return None
        looks = (np.repeat(part[None, None], self._k, axis=1) for part in before)
        return Scaling(*(self._laid(one, np.empty_like(self._out[:1]), copy=True)[0] for one in looks))

    def state(self) -> State:
        """The last looks."""
        return {"frames": self._frames.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Go on with the last looks, where their episodes go on."""
        if exact:
            saved = np.asarray(part(dict(state), "frames", "stack"))
            if saved.shape != self._frames.shape:
                raise TownletError(f"frames were saved as {list(saved.shape)}", SAME)
            self._frames[:] = saved
            self._laid(self._frames, self._out)
