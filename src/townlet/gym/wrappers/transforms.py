"""Observation transforms over all rows at once, between environment and agent: normalization and frame stacking.

Normalization changes `values` blocks only; images and indices pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.spaces import Floats, ObservationEncoder
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.interfaces.state import SAME_SETTINGS, State, get_part
from townlet.interfaces.task import Scaling

CLIP: Final = 10.0  # largest normalized value, in standard deviations
EPSILON: Final = 1e-8
UNBOUNDED: Final = 1e30  # a bound of this magnitude or more means that there is none
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]
Output = tuple[ObservationLayout, Floats]  # layout and buffer of the transformed observations


class ObservationTransform(Protocol):
    """Maps observations [N, D] to [N, E], in an output buffer that is reused; statistics do not change if `frozen`."""

    frozen: bool = False

    def allocate(self, layout: ObservationLayout, rows: int, encoder: ObservationEncoder) -> Output:
        """Allocate buffers for `rows` of this layout."""

    def reset(self, obs: Floats) -> Floats:
        """Transform the first observations of all rows."""

    def step(self, obs: Floats, is_first: Bools, ended_rows: Rows, final_obs: Floats) -> tuple[Floats, Floats]:
        """Transform the observations of a step.

        `is_first` [N] marks rows that start an episode. `final_obs` [k, D] are the last observations of `ended_rows`
        [k]; it is empty if `obs` still contains them.
        """

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """Scaling of the output, given the scaling of the input."""

    def clear_statistics(self) -> None:
        """Discard running statistics, unless frozen."""
        return

    def copy_statistics(self, other: Any) -> None:
        """Copy the running statistics of a transform of the same kind."""
        return

    def state(self) -> State:
        """Buffers and statistics, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Restore a saved state; without `exact`, only the statistics, which outlive episodes."""
        return


class Normalize(ObservationTransform):
    """Base class of both normalizations, which subtract a center and divide by a scale."""

    _center: Floats
    _scale: Floats
    _out: Floats

    def reset(self, obs: Floats) -> Floats:
        self._update(obs)
        return self._apply(obs, self._out)

    def step(self, obs: Floats, is_first: Bools, ended_rows: Rows, final_obs: Floats) -> tuple[Floats, Floats]:
        self._update(np.concatenate([obs, final_obs]) if len(final_obs) else obs)
        scaled_final = self._apply(final_obs, np.empty_like(final_obs)) if len(final_obs) else final_obs
        return self._apply(obs, self._out), scaled_final

    def _update(self, obs: Floats) -> None:
        """Update running statistics."""

    def _apply(self, obs: Floats, out: Floats) -> Floats:
        np.subtract(obs, self._center, out=out)
        np.divide(out, self._scale, out=out)
        return out


class StaticNormalize(Normalize):
    """Maps each bounded value to [−1, 1]."""

    def allocate(self, layout: ObservationLayout, rows: int, encoder: ObservationEncoder) -> Output:
        """Compute center and half width of each value's range (0 and 1 if it is unbounded), and allocate the output."""
        low, high = encoder.low.astype(np.float64), encoder.high.astype(np.float64)
        bounded = _is_value(layout) & (low > -UNBOUNDED) & (high < UNBOUNDED) & (high > low)
        self._center, self._scale = np.zeros(len(low), np.float32), np.ones(len(low), np.float32)
        self._center[bounded] = (low[bounded] + high[bounded]) / 2
        self._scale[bounded] = (high[bounded] - low[bounded]) / 2
        self._out = np.zeros((rows, layout.size), np.float32)
        lows, highs = np.where(bounded, -1, encoder.low), np.where(bounded, 1, encoder.high)
        blocks = (
            replace(b, low=float(lows[b.slice].min()), high=float(highs[b.slice].max())) if b.kind == "values" else b
            for b in layout
        )
        return ObservationLayout(tuple(blocks)), self._out

    def scaling(self, before: Scaling | None) -> Scaling:
        return Scaling(self._center, self._scale, np.full_like(self._scale, np.inf))


def _is_value(layout: ObservationLayout) -> Bools:
    """Mask [D] of the numbers in `values` blocks."""
    return np.concatenate([np.full(b.size, b.kind == "values") for b in layout]).astype(np.bool_)


class RunningNormalize(Normalize):
    """Normalizes by running mean and standard deviation over all rows."""

    def allocate(self, layout: ObservationLayout, rows: int, encoder: ObservationEncoder) -> Output:
        self._is_value = _is_value(layout)
        self._all = bool(self._is_value.all())
        self._out = np.zeros((rows, layout.size), np.float32)
        self._count, self._mean, self._squares = 0, np.zeros(layout.size), np.zeros(layout.size)
        self._refresh()
        blocks = (replace(b, low=-CLIP, high=CLIP) if b.kind == "values" else b for b in layout)
        return ObservationLayout(tuple(blocks)), self._out

    def clear_statistics(self) -> None:
        if not self.frozen:
            self._count = 0
            self._mean[:] = self._squares[:] = 0
            self._refresh()

    def _update(self, obs: Floats) -> None:
        """Add observations [n, D] to the statistics (Chan, Golub & LeVeque 1983, eq. 2.1)."""
        if self.frozen:
            return
        n, total = len(obs), self._count + len(obs)
        mean = obs.mean(0, dtype=np.float64)
        delta = mean - self._mean
        self._squares += ((obs - mean) ** 2).sum(0) + delta**2 * (self._count * n / total)
        self._mean += delta * (n / total)
        self._count = total
        self._refresh()

    def _refresh(self) -> None:
        """Derive center and scale from the statistics."""
        deviation = np.sqrt(self._squares / self._count + EPSILON) if self._count else np.ones_like(self._mean)
        self._center = np.where(self._is_value, self._mean, 0).astype(np.float32)
        self._scale = np.where(self._is_value, deviation, 1).astype(np.float32)

    def _apply(self, obs: Floats, out: Floats) -> Floats:
        super()._apply(obs, out)
        if self._all:
            np.clip(out, -CLIP, CLIP, out=out)
        else:
            out[:, self._is_value] = np.clip(out[:, self._is_value], -CLIP, CLIP)
        return out

    def copy_statistics(self, other: RunningNormalize) -> None:
        self._count = other._count
        self._mean[:], self._squares[:] = other._mean, other._squares
        self._refresh()

    def scaling(self, before: Scaling | None) -> Scaling:
        limit = np.where(self._is_value, CLIP, np.inf).astype(np.float32)
        return Scaling(self._center, self._scale, limit)

    def state(self) -> State:
        return {"count": self._count, "mean": self._mean.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        for name, live in (("mean", self._mean), ("squares", self._squares)):
            saved = np.asarray(get_part(dict(state), name, "normalization"))
            if saved.shape != live.shape:
                what = f"the saved normalization has {saved.size} values, expected {live.size}"
                raise TownletError(what, SAME_SETTINGS)
            live[:] = saved
        self._count = int(get_part(dict(state), "count", "normalization"))
        self._refresh()


class FrameStack(ObservationTransform):
    """Stacks the last k observations of each row, newest last; the first observation is repeated k times."""

    def __init__(self, frames: int) -> None:
        self._k = frames

    def allocate(self, layout: ObservationLayout, rows: int, encoder: ObservationEncoder) -> Output:
        """Stack each block separately: images along their channels, others along a new first axis."""
        self._in = layout
        self._frames: Floats = np.zeros((rows, self._k, layout.size), np.float32)
        self._one_block = len(layout.blocks) == 1  # the frame buffer is then the output buffer, reshaped
        size = self._k * layout.size
        self._out = self._frames.reshape(rows, -1) if self._one_block else np.zeros((rows, size), np.float32)
        blocks: list[Block] = []
        for block in layout:
            shape = block.shape
            stacked = (self._k * shape[0], *shape[1:]) if block.kind == "picture" else (self._k, *shape)
            blocks.append(replace(block, start=block.start * self._k, shape=stacked))
        return ObservationLayout(tuple(blocks)), self._out

    def reset(self, obs: Floats) -> Floats:
        """Repeat the first observation of all rows k times."""
        self._frames[:] = obs[:, None]
        return self._by_block(self._frames, self._out)

    def step(self, obs: Floats, is_first: Bools, ended_rows: Rows, final_obs: Floats) -> tuple[Floats, Floats]:
        """Push a frame. Final observations are stacked on the frames of the ended episode."""
        if len(final_obs):
            frames = np.concatenate([self._frames[ended_rows, 1:], final_obs[:, None]], axis=1)
            final_obs = self._by_block(frames, np.empty((len(ended_rows), self._out.shape[1]), np.float32), copy=True)
        self._frames[:, :-1] = self._frames[:, 1:]
        self._frames[:, -1] = obs
        if is_first.any():
            self._frames[is_first] = obs[is_first, None]
        return self._by_block(self._frames, self._out), final_obs

    def _by_block(self, frames: Floats, out: Floats, *, copy: bool = False) -> Floats:
        """Reorder frames [n, k, D] so that the k frames of each block are adjacent [n, k · D]."""
        if self._one_block:
            return frames.reshape(len(frames), -1) if copy else out
        for block in self._in:
            start, size = block.start * self._k, block.size * self._k
            out[:, start : start + size] = frames[:, :, block.slice].reshape(len(frames), -1)
        return out

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """The input's scaling, repeated for each frame."""
        if before is None:
            return None
        repeated = (np.repeat(values[None, None], self._k, axis=1) for values in before)
        return Scaling(*(self._by_block(v, np.empty_like(self._out[:1]), copy=True)[0] for v in repeated))

    def state(self) -> State:
        return {"frames": self._frames.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        if exact:
            saved = np.asarray(get_part(dict(state), "frames", "stack"))
            if saved.shape != self._frames.shape:
                raise TownletError(f"the saved frame stack has shape {list(saved.shape)}", SAME_SETTINGS)
            self._frames[:] = saved
            self._by_block(self._frames, self._out)
