"""What the training thread has done: totals since the start of the service, and means over recent steps."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from townlet.decide.estimate import Estimate
from townlet.decide.trainer import StepMetrics

RECENT_STEPS: Final = 100  # steps over which means are taken


@dataclass
class TrainingProgress:
    """Progress since the start of the service."""

    steps: int = 0
    samples: int = 0  # experiences in the batches of these steps
    validated: int = 0  # those of them that the current gate rated again
    agreed: int = 0  # those of them on which it agrees
    slow: int = 0  # steps that took longer than `learning.interval`
    slow_seconds: float = 0.0  # duration of the last one of these
    failed: int = 0
    began: float | None = None  # when the current step began, by the monotonic clock
    recent: deque[StepMetrics] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    problem: str = ""  # the last error
    held: int = 0  # number of versions held in a row
    gain: Estimate | None = None  # mean reward of recent decisions minus that of the domain's reference policy
    parts: dict[str, float] = field(default_factory=dict)  # how much parts of observations matter to it
    verdicts: dict[str, int] = field(default_factory=dict)  # number of versions by verdict

    @property
    def last(self) -> StepMetrics | None:
        """The last step."""
        return self.recent[-1] if self.recent else None

    @property
    def agreement(self) -> float | None:
        """Share of all validated experiences on which the current gate agrees."""
        return self.agreed / self.validated if self.validated else None

    def add(self, metrics: StepMetrics, interval: float) -> None:
        """Count a step; `interval` is the setting `learning.interval`."""
        self.steps, self.samples = self.steps + 1, self.samples + metrics.batch
        if 0 < interval < metrics.seconds:
            self.slow, self.slow_seconds = self.slow + 1, metrics.seconds
        if metrics.agreed is not None:
            self.validated, self.agreed = self.validated + metrics.batch, self.agreed + metrics.agreed
        self.recent.append(metrics)

    def seconds_of_current_step(self) -> float:
        """For how long the current step has been running; 0 between two steps."""
        began = self.began
        return 0.0 if began is None else time.monotonic() - began

    def means(self) -> dict[str, float | None]:
        """Means over recent steps; None if unknown."""
        recent = list(self.recent)  # another thread may add a step
        validated = [step for step in recent if step.agreed is not None]
        columns: dict[str, list[float]] = {
            "loss": [step.loss for step in recent],
            "batch": [step.batch for step in recent],
            "step_seconds": [step.seconds for step in recent],
            "agreement": [step.agreement for step in validated if step.agreement is not None],
        }
        return {name: sum(values) / len(values) if values else None for name, values in columns.items()}

    def summary(self) -> str:
        """One line about the last step and the means over recent ones."""
        assert self.last is not None
        means = self.means()
        agreement = "" if means["agreement"] is None else f", agreement {means['agreement']:.0%}"
        return (
            f"training step {self.last.step:,}: loss {means['loss']:.4g}, batch {means['batch']:.3g}, "
            f"{1000 * (means['step_seconds'] or 0.0):.3g} ms per step{agreement} (means of {len(self.recent)} steps)"
        )
