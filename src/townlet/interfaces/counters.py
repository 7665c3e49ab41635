"""The counters of a run, and the sinks that receive its metrics while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from townlet.interfaces.state import State

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Counters:
    """Counters of a run. The loop counts env_steps (rows × vector steps) and episodes, the agent gradient steps."""

    env_steps: int = 0
    updates: int = 0  # gradient steps
    episodes: int = 0
    budget: int = 0  # env_steps of the whole run; 0 if they are not limited

    def state(self) -> State:
        """The three counters, without the budget: a resumed run may have another."""
        return {"env_steps": self.env_steps, "updates": self.updates, "episodes": self.episodes}

    def restore(self, state: State) -> None:
        self.env_steps, self.updates, self.episodes = (int(state[k]) for k in ("env_steps", "updates", "episodes"))


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

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        """Called after every evaluation, with its row of the metrics store."""

    def on_video(self, counters: Counters, path: Path) -> None:
        """Called after a video of evaluation episodes has been written."""

    def message(self, text: str) -> None:
        """Show a message to the user."""

    def close(self) -> None:
        """Called once at the end of the run."""


def format_count(count: float) -> str:
    """A number, with three significant digits and a unit if it is at least 1000: 20000000 as 20M."""
    count = float(f"{count:.3g}") if count >= 1e3 else count  # round first: 999999 is 1M, not 1000k
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:g}"
