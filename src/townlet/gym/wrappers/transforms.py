"""What changes the observations of all rows at once, after the environment and before the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.spaces import Floats, ObservationEncoder
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.interfaces.state import SAME_RECIPE, State, get_part


class Scaling(NamedTuple):
    """How each number was brought to size: less `centre`, divided by `spread`, cut off beyond ± `limit`; each [D]."""

    centre: Floats
    spread: Floats
    limit: Floats


class ObservationTransform(Protocol):
    """One change of observations [N, D] into others [N, E], in memory of its own that is used again."""

    frozen: bool

    def fit(self, layout: ObservationLayout, rows: int, sight: ObservationEncoder) -> tuple[ObservationLayout, Floats]:
        """Make room for `rows` of this layout; gives the layout and the memory of what comes out."""

    def forget(self) -> None:
        """Forget what was learned of observations, unless it is frozen."""

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought. `begins` [N] rows show their first moment; `last` [k, D] is what `ended` [k] rows saw
        before that, or nothing where they still show it."""

    def follow(self, other: Any) -> None:
        """See as another stage of the same kind does now."""

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """How all that comes out was scaled, where what goes in was scaled so before."""

    def state(self) -> State:
        """What it remembers."""

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Remember it again; where episodes are not `exact`ly gone on with, only what outlives them."""


LIMIT: Final = 10.0  # standard deviations beyond which a number says no more
LEAST: Final = 1e-8
ENDLESS: Final = 1e30  # bounds from here on only say that there are none


def _values(layout: ObservationLayout) -> NDArray[np.bool_]:
    """Which numbers [D] are values."""
    return np.concatenate([np.full(b.size, b.kind == "values") for b in layout]).astype(np.bool_)


class StaticNormalize:
    """Each number that has bounds, from them to −1 … 1."""

    frozen = False

    def fit(self, layout: ObservationLayout, rows: int, sight: ObservationEncoder) -> tuple[ObservationLayout, Floats]:
        """Centre and half the width of each number's range; 0 and 1 where it has no bounds."""
        low, high = sight.low.astype(np.float64), sight.high.astype(np.float64)
        bounded = _values(layout) & (low > -ENDLESS) & (high < ENDLESS) & (high > low)
        self._centre, self._half = np.zeros(len(low), np.float32), np.ones(len(low), np.float32)
        self._centre[bounded] = (low[bounded] + high[bounded]) / 2
        self._half[bounded] = (high[bounded] - low[bounded]) / 2
        self._out: Floats = np.zeros((rows, layout.size), np.float32)
        return ObservationLayout(tuple(self._block(b, sight, bounded) for b in layout)), self._out

    @staticmethod
    def _block(block: Any, sight: ObservationEncoder, bounded: NDArray[np.bool_]) -> Any:
        if block.kind != "values":
            return block
        inside = bounded[block.slice]
        if inside.all():
            return replace(block, low=-1.0, high=1.0)
        low = np.where(inside, -1, sight.low[block.slice]).min()
        return replace(block, low=float(low), high=float(np.where(inside, 1, sight.high[block.slice]).max()))

    def forget(self) -> None:
        """Nothing was learned."""

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""
        return self._scaled(obs, self._out)

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought, and what ended rows saw last."""
        return self._scaled(obs, self._out), self._scaled(last, np.empty_like(last)) if len(last) else last

    def _scaled(self, obs: Floats, out: Floats) -> Floats:
        np.subtract(obs, self._centre, out=out)
        np.divide(out, self._half, out=out)
        return out

    def follow(self, other: StaticNormalize) -> None:
        """Bounds are the same everywhere."""

    def scaling(self, before: Scaling | None) -> Scaling:
        """By the bounds, without a limit."""
        return Scaling(self._centre, self._half, np.full_like(self._half, np.inf))

    def state(self) -> State:
        """Nothing is remembered."""
        return {}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Nothing was remembered."""


class RunningNormalize:
    """Each number less the mean and divided by the deviation of all that was seen, in all rows together."""

    def __init__(self) -> None:
        self.frozen = False

    def fit(self, layout: ObservationLayout, rows: int, sight: ObservationEncoder) -> tuple[ObservationLayout, Floats]:
        """Begin with nothing seen."""
        self._is_value = _values(layout)
        self._all = bool(self._is_value.all())
        self._out: Floats = np.zeros((rows, layout.size), np.float32)
        self._count, self._mean, self._squares = 0, np.zeros(layout.size), np.zeros(layout.size)
        self._settle()
        blocks = (replace(b, low=-LIMIT, high=LIMIT) if b.kind == "values" else b for b in layout)
        return ObservationLayout(tuple(blocks)), self._out

    def forget(self) -> None:
        """Begin with nothing seen, unless this only follows."""
        if not self.frozen:
            self._count = 0
            self._mean[:] = self._squares[:] = 0
            self._settle()

    def begin(self, obs: Floats) -> Floats:
        """The first moment of all rows."""
        self._learn(obs)
        return self._scaled(obs, self._out)

    def step(
        self, obs: Floats, begins: NDArray[np.bool_], ended: NDArray[np.int64], last: Floats
    ) -> tuple[Floats, Floats]:
        """What a step brought, and what ended rows saw last."""
        self._learn(np.concatenate([obs, last]) if len(last) else obs)
        return self._scaled(obs, self._out), self._scaled(last, np.empty_like(last)) if len(last) else last

    def _learn(self, obs: Floats) -> None:
        """Add observations [n, D] to what was seen (Chan, Golub & LeVeque 1983, eq. 2.1)."""
        if self.frozen:
            return
        n, total = len(obs), self._count + len(obs)
        mean = obs.mean(0, dtype=np.float64)
        away = mean - self._mean
        self._squares += ((obs - mean) ** 2).sum(0) + away**2 * (self._count * n / total)
        self._mean += away * (n / total)
        self._count = total
        self._settle()

    def _settle(self) -> None:
        """The centre and the size of one, as they are applied."""
        spread = np.sqrt(self._squares / self._count + LEAST) if self._count else np.ones_like(self._mean)
        self._centre = np.where(self._is_value, self._mean, 0).astype(np.float32)
        self._spread = np.where(self._is_value, spread, 1).astype(np.float32)

    def _scaled(self, obs: Floats, out: Floats) -> Floats:
        np.subtract(obs, self._centre, out=out)
        np.divide(out, self._spread, out=out)
        if self._all:
            np.clip(out, -LIMIT, LIMIT, out=out)
        else:
            out[:, self._is_value] = np.clip(out[:, self._is_value], -LIMIT, LIMIT)
        return out

    def follow(self, other: RunningNormalize) -> None:
        """Scale as another does now."""
        self._count = other._count
        self._mean[:], self._squares[:] = other._mean, other._squares
        self._settle()

    def scaling(self, before: Scaling | None) -> Scaling:
        """By all that was seen so far."""
        limit = np.where(self._is_value, LIMIT, np.inf).astype(np.float32)
        return Scaling(self._centre, self._spread, limit)

    def state(self) -> State:
        """What was learned of all observations."""
        return {"count": self._count, "mean": self._mean.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Go on with what was learned."""
        for name, live in (("mean", self._mean), ("squares", self._squares)):
            saved = np.asarray(get_part(dict(state), name, "normalisation"))
            if saved.shape != live.shape:
                raise TownletError(f"{saved.size} numbers were normalised, here are {live.size}", SAME_RECIPE)
            live[:] = saved
        self._count = int(get_part(dict(state), "count", "normalisation"))
        self._settle()


class FrameStack:
    """The last k observations of each row, the newest last; at the first moment it is shown k times."""

    frozen = False

    def __init__(self, frames: int) -> None:
        self._k = frames

    def fit(self, layout: ObservationLayout, rows: int, sight: ObservationEncoder) -> tuple[ObservationLayout, Floats]:
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
        return ObservationLayout(tuple(blocks)), self._out

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

    def follow(self, other: FrameStack) -> None:
        """Nothing is learned."""

    def scaling(self, before: Scaling | None) -> Scaling | None:
        """The same for every look."""
        if before is None:
            return None
        looks = (np.repeat(get_part[None, None], self._k, axis=1) for get_part in before)
        return Scaling(*(self._laid(one, np.empty_like(self._out[:1]), copy=True)[0] for one in looks))

    def state(self) -> State:
        """The last looks."""
        return {"frames": self._frames.copy()}

    def restore(self, state: Mapping[str, Any], *, exact: bool) -> None:
        """Go on with the last looks, where their episodes go on."""
        if exact:
            saved = np.asarray(get_part(dict(state), "frames", "stack"))
            if saved.shape != self._frames.shape:
                raise TownletError(f"frames were saved as {list(saved.shape)}", SAME_RECIPE)
            self._frames[:] = saved
            self._laid(self._frames, self._out)
