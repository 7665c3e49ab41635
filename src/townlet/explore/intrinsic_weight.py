"""Weight of the intrinsic reward: scheduled, or lowered while recent episodes are long and of similar length."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.schedule import value_at
from townlet.errors import TownletError
from townlet.explore.spec import AdaptiveWeightSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes


class ScheduledWeight:
    """A weight that is constant or follows a schedule."""

    def __init__(self, spec: ScheduledWeightSpec, counters: Counters) -> None:
        self.spec, self._counters = spec, counters

    @property
    def value(self) -> float:
        return value_at(self.spec.value, self._counters)

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Does nothing: the weight follows from the counters."""

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Does nothing: there is no state."""


class AdaptiveWeight:
    """A weight multiplied by `factor` after each episode if recent lengths have a low variance and a high mean."""

    def __init__(self, spec: AdaptiveWeightSpec, max_steps: int) -> None:
        self.spec, self.value = spec, spec.start
        self.min_mean = spec.mean if spec.mean_fraction is None else spec.mean_fraction * max_steps
        self._lengths = np.zeros(0, np.int64)  # lengths of the last episodes, oldest first

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Lower the weight once for each of these episodes at which the recent lengths fulfill the condition."""
        n, new = self.spec.episodes, len(episodes)
        lengths = np.concatenate([self._lengths, episodes.length.numpy()])
        n_windows = min(new, len(lengths) - n + 1)  # full windows that end with a new episode
        self._lengths = lengths[-n:]
        if n_windows > 0:
            lengths = lengths[-(n_windows + n - 1) :]
            mean, mean_square = _window_sums(lengths, n) / n, _window_sums(lengths * lengths, n) / n
            fulfilled = (mean_square - mean * mean < self.spec.variance) & (mean > self.min_mean)
            self.value = max(self.spec.minimum, self.value * self.spec.factor ** int(fulfilled.sum()))

    def state(self) -> State:
        return {"value": self.value, "lengths": torch.from_numpy(self._lengths)}

    def restore(self, state: State) -> None:
        lengths = torch.as_tensor(state["lengths"]).numpy().astype(np.int64)
        if lengths.ndim != 1 or len(lengths) > self.spec.episodes:
            what = f"the saved explore.weight has episode lengths of shape {list(lengths.shape)}, "
            what += f"but explore.weight.episodes is {self.spec.episodes}"
            raise TownletError(what, "resume with the recipe of the run that saved it")
        self.value, self._lengths = float(state["value"]), lengths


IntrinsicWeight = ScheduledWeight | AdaptiveWeight  # factor on the intrinsic reward in returns and targets


def make_intrinsic_weight(
    spec: ScheduledWeightSpec | AdaptiveWeightSpec, counters: Counters, max_steps: int
) -> IntrinsicWeight:
    """The weight of the intrinsic reward; `max_steps` is the maximum length of an episode."""
    return ScheduledWeight(spec, counters) if isinstance(spec, ScheduledWeightSpec) else AdaptiveWeight(spec, max_steps)


def _window_sums(values: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Sums over all windows of n values [len − n + 1]; exact in integers, however the episodes are batched."""
    totals = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=totals[1:])
    return np.subtract(totals[n:], totals[:-n])
