"""Where the metrics of a run are sent while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from townlet.interfaces.counters import Counters

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MetricsInterval:
    """The metrics of one logging interval, and the weights at its end."""

    env_steps: int
    updates: int
    episodes: int
    metrics: dict[str, float]
    weights: Mapping[str, Tensor]


class Sink:
    """Receives the metrics of a run; subclasses override what they need."""

    def on_rollout(self, counters: Counters) -> None:
        """Called after every rollout and update."""

    def on_interval(self, interval: MetricsInterval) -> None:
        """Called at the end of every logging interval."""

    def on_evaluation(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """Called after every evaluation, with its row of the metrics store."""

    def message(self, text: str) -> None:
        """A sentence for people."""

    def close(self) -> None:
        """Called once at the end of the run."""
