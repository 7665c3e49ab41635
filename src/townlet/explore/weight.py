"""What intrinsic reward weighs beside the environment's: fixed, or fading once life is steady and good."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.schedule import value_at
from townlet.contract.counters import Counters
from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.explore.spec import AdaptiveWeight, FixedWeight


class Weight(Protocol):
    """A factor for intrinsic reward, applied once, when a batch is put together."""

    @property
    def value(self) -> float:
        """The weight at this moment."""

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Episodes that ended."""

    def state(self) -> State:
        """Everything that decides the weight from here on."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""


class Fixed:
    """A number, or a schedule in env_steps."""

    def __init__(self, spec: FixedWeight, counters: Counters) -> None:
        self.spec, self._counters = spec, counters

    @property
    def value(self) -> float:
        """The weight at this moment."""
        return value_at(self.spec.value, self._counters)

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Nothing depends on episodes."""

    def state(self) -> State:
        """Nothing: it follows from the counters."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing is kept."""


class Adaptive:
    """Multiplied by `factor` at each end of an episode at which the last episodes were steady and good."""

    def __init__(self, spec: AdaptiveWeight, max_steps: int) -> None:
        self.spec, self.value = spec, spec.start
        self.good = spec.mean if spec.mean_share is None else spec.mean_share * max_steps
        self._lengths = np.zeros(0, np.int64)  # of the last episodes, oldest first

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Take in the episodes in their order; each is judged with those before it."""
        n, new = self.spec.episodes, len(episodes)
        lengths = np.concatenate([self._lengths, episodes.length.numpy()])
        windows = min(new, len(lengths) - n + 1)  # full ones that end with a new episode
        self._lengths = lengths[-n:]
        if windows > 0:
            lengths = lengths[-(windows + n - 1) :]
            mean, square = _sums(lengths, n) / n, _sums(lengths * lengths, n) / n
            calm = (square - mean * mean < self.spec.variance) & (mean > self.good)
            self.value = max(self.spec.minimum, self.value * self.spec.factor ** int(calm.sum()))

    def state(self) -> State:
        """The weight and the lengths looked back on."""
        return {"value": self.value, "lengths": torch.from_numpy(self._lengths)}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        lengths = torch.as_tensor(state["lengths"]).numpy().astype(np.int64)
        if lengths.ndim != 1 or len(lengths) > self.spec.episodes:
            what = f"'explore.weight' kept {lengths.shape} lengths and looks back on {self.spec.episodes} episodes"
            raise TownletError(what, "resume with the recipe of the run that kept it")
        self.value, self._lengths = float(state["value"]), lengths


def _sums(values: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Sums over every n neighbours [len − n + 1]; whole numbers, so exact however the episodes came."""
    totals = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=totals[1:])
    return np.subtract(totals[n:], totals[:-n])
