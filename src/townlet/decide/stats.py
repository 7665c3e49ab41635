"""Statistics for the dashboard and for metrics: lifetime counts, recent decisions, and curves of ten minutes."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from townlet.decide.alarms import Alarms
from townlet.decide.batcher import Batcher
from townlet.decide.domain import Decision
from townlet.decide.events import DecisionMade, Event, OutcomeRecorded
from townlet.decide.service import Service
from townlet.decide.state import FIRST_OUTCOMES, Experience, ServiceState
from townlet.decide.storage.serving_log import ServingChange
from townlet.decide.training_progress import TrainingProgress
from townlet.decide.training_thread import Learning, TrainingThread
from townlet.decide.websocket import ConnectionLimits

POINT_INTERVAL: Final = 2.0  # seconds between two points of a curve
SLACK: Final = 0.5  # seconds by which a point may come early
MAX_POINTS: Final = 300
RATE_WINDOW: Final = 10  # updates, one per second, over which a rate is measured
DIGITS: Final = 4  # significant digits of a value in a curve
CURVES: Final = (
    "decisions_per_second", "p50_ms", "p99_ms", "pass_rate", "entropy", "expected", "actual", "loss",
)  # fmt: skip
HISTORY_LENGTH: Final = 20  # entries of the summarized history
NOTED_VERDICTS: Final = ("hold", "refuse")  # verdicts that the reason of a note may begin with
MAX_LISTED: Final = 50  # decisions that are listed one by one
WINDOW: Final = 1000  # recent decisions for means and histograms
REPLAYED_RECORDS: Final = 5000  # log records from which recent decisions are read at startup
BINS: Final = 10  # bins of the histogram of confidences
PAIRS: Final = 200  # recent pairs of expected and actual rewards; also the decisions averaged in a point of a curve
OWN_SECTIONS: Final = ("alarms", "service", "process", "versions", "processes")  # of a process that does not learn


def rate_per_second(samples: Sequence[tuple[float, int]]) -> float:
    """Growth per second of a count between the first and the last of these samples (time, count)."""
    (first_time, first_count), (last_time, last_count) = (samples[0], samples[-1]) if samples else ((0.0, 0), (0.0, 0))
    return (last_count - first_count) / (last_time - first_time) if last_time > first_time else 0.0


class RecentCurves:
    """One row of values every two seconds; unknown values are None."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=MAX_POINTS)
        self._due = float("-inf")

    def add(self, at: float, now: float, values: Mapping[str, float | None]) -> None:
        """Add a row at this time (seconds since 1970) if the last one is old enough by the monotonic clock."""
        if now >= self._due:
            self._due = now + POINT_INTERVAL - SLACK
            self._rows.append((round(at, 1), *(_rounded(values[name]) for name in CURVES)))

    def as_json(self) -> dict[str, Any]:
        """Column names and rows, oldest first."""
        return {"names": ["at", *CURVES], "rows": list(self._rows)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(f"{value:.{DIGITS}g}"), 9)


def summarize_history(history: Iterable[ServingChange]) -> list[dict[str, Any]]:
    """The newest changes, oldest first; consecutive ones with the same verdict are one entry, with the last reason."""
    entries: list[dict[str, Any]] = []
    for change in history:
        verdict, colon, reason = change.reason.partition(": ")
        if change.kind != "note" or not colon or verdict not in NOTED_VERDICTS:
            verdict, reason = change.kind, change.reason
            if not change.applied:
                verdict, reason = "noted", f"another version is pinned; otherwise: {verdict}, {reason}"
        if not entries or entries[-1]["verdict"] != verdict:
            entries.append({"verdict": verdict, "first": change.version, "times": 0})
        entries[-1] |= {
            "last": change.version,
            "times": entries[-1]["times"] + 1,
            "at": change.at,
            "applied": change.applied,
            "reason": reason,
            "estimate": change.estimate,
        }
    return [
        entry | {"estimate": asdict(entry["estimate"]) if entry["estimate"] else None}
        for entry in entries[-HISTORY_LENGTH:]
    ]


class ServiceStats:
    """Collects statistics of a service, and returns all of them as JSON."""

    def __init__(self, service: Service, learning: Learning, limits: ConnectionLimits | None = None) -> None:
        self.service, self._learning, self._limits = service, learning, limits or ConnectionLimits()
        self._state = self._empty = ServiceState(service.domain, service.settings)
        self.batcher: Batcher | None = None  # set when the server starts
        self._started = time.monotonic()
        self.alarms, self._curves = Alarms(service, learning, self._limits), RecentCurves()
        self._own_decisions = 0  # made by this process
        self._own_counts: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW + 1)
        self._decision_counts: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW + 1)  # (time, count)
        self._step_counts: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW + 1)
        self._listed: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._actions: deque[int] = deque(maxlen=WINDOW)
        self._confidence: deque[float] = deque(maxlen=WINDOW)
        self._sent: deque[bool] = deque(maxlen=WINDOW)
        self._entropy: deque[float] = deque(maxlen=WINDOW)
        self._components: deque[np.ndarray[Any, Any]] = deque(maxlen=WINDOW)
        self._pairs: deque[tuple[float, float]] = deque(maxlen=PAIRS)
        service.decision_listeners.append(self._on_decision)
        self.follow(learning.training)

    def follow(self, training: TrainingThread | None) -> None:
        """Show the decisions and outcomes that a training thread of this process learns from."""
        self._state = self._empty if training is None else training.storage.state
        if training is None:
            return
        self._read_recent(training.storage.recent_events(REPLAYED_RECORDS))
        self._state.decision_listeners.append(self._add_decision)
        self._state.outcome_listeners.append(self._on_outcome)

    def _read_recent(self, recent: Iterable[Event]) -> None:
        """Show recent decisions of the log, which lacks their entropies and components."""
        decisions: dict[int, DecisionMade] = {}
        for event in recent:
            if isinstance(event, DecisionMade):
                self._add_decision(event)
                decisions[event.number] = event
            elif isinstance(event, OutcomeRecorded) and event.number in decisions:
                self._add_outcome(decisions.pop(event.number), event.value, event.how)

    def _on_decision(self, event: DecisionMade, decision: Decision) -> None:
        self._own_decisions += 1
        if decision.expected is not None:
            self._components.append(decision.components)
        self._entropy.append(decision.entropy)
        self.alarms.on_decision(event, decision.entropy)

    def _add_decision(self, decision: DecisionMade) -> None:
        if decision.send:
            self._actions.append(decision.action)
        self._confidence.append(decision.confidence)
        self._sent.append(decision.send)
        names = ("number", "territory", "action", "send", "reason", "confidence", "expected", "version", "at")
        self._listed[decision.number] = {name: getattr(decision, name) for name in names} | {"actual": None}
        if len(self._listed) > MAX_LISTED:
            self._listed.popitem(last=False)

    def _on_outcome(self, experience: Experience, value: float, how: str) -> None:
        if how != "default":
            self.alarms.on_outcome()
        self._add_outcome(experience.decision, value, how)

    def _add_outcome(self, decision: DecisionMade, value: float, how: str) -> None:
        if decision.number in self._listed:
            self._listed[decision.number]["actual"] = value
        if how != "default" and decision.expected is not None:  # "default": it expired without an outcome
            self._pairs.append((decision.expected, value))

    def update(self) -> None:
        """Measure rates, check alarms and add a point to the curves; called once per second."""
        now = time.monotonic()
        self._own_counts.append((now, self._own_decisions))
        self._decision_counts.append((now, self._state.decisions))
        self._step_counts.append((now, self._progress.steps))
        self.alarms.active(self._overloaded)
        expected, actual = np.mean(self._pairs, axis=0).tolist() if self._pairs else (None, None)
        if not self._estimates:
            expected = None
        p50, p99 = self._latency()
        last = self._progress.last
        values = {
            "decisions_per_second": rate_per_second(self._decision_counts), "p50_ms": p50, "p99_ms": p99,
            "pass_rate": _mean(list(self._sent)[-PAIRS:]), "entropy": _mean(list(self._entropy)[-PAIRS:]),
            "expected": expected, "actual": actual, "loss": last.loss if last else None,
        }  # fmt: skip
        self._curves.add(self.service.clock(), now, values)

    @property
    def _estimates(self) -> bool:
        """Whether the gate estimates rewards."""
        return bool(self.service.domain.components)

    @property
    def _overloaded(self) -> int:
        return self.batcher.overloaded if self.batcher is not None else 0

    def _latency(self) -> tuple[float | None, float | None]:
        if self.batcher is None or not self.batcher.latency:
            return None, None
        p50, p99 = np.percentile(self.batcher.latency, (50, 99))
        return 1000 * float(p50), 1000 * float(p99)

    def as_json(self) -> dict[str, Any]:
        """All statistics."""
        training, versions = self._learning.training, self.service.versions
        with training.storage.lock if training else nullcontext():
            own = {
                "alarms": [alarm._asdict() for alarm in self.alarms.active(self._overloaded)],
                "service": self._service(),
                "process": self.process_report(),
                "training": self._training(),
                "buffer": self._buffer(),
                "gate": self._gate(),
                "evidence": self._evidence(),
                "decisions": self._decisions(),
                # The history is summarized, since single changes would cover only a minute.
                "versions": versions.overview() | {"history": summarize_history(versions.history)},
                "curves": self._curves.as_json(),
                "processes": self.service.storage.processes(),
            }
        if training is not None:
            return own
        learned, _ = self.service.storage.learner_report()
        return learned | {name: own[name] for name in OWN_SECTIONS} if learned else own

    def process_report(self) -> dict[str, Any]:
        """What this process reports about itself to the others."""
        serving, batcher, (p50, p99) = self.service.versions.serving, self.batcher, self._latency()
        return {
            "version": serving.version if serving else 0,
            "learns": self._learning.training is not None,
            "games": len(self._limits.games),
            "decisions": self._own_decisions,
            "per_second": rate_per_second(self._own_counts),
            "answered": batcher.answered if batcher is not None else 0,
            "latency_sum_seconds": batcher.latency_sum if batcher is not None else 0.0,
            "p50_ms": p50,
            "p99_ms": p99,
            "waiting": len(batcher) if batcher is not None else 0,
            "overloaded": self._overloaded,
            "uptime_seconds": time.monotonic() - self._started,
        }

    def learner_report(self) -> dict[str, Any] | None:
        """All statistics, while this process is the learner."""
        return self.as_json() if self._learning.training is not None else None

    @property
    def _progress(self) -> TrainingProgress:
        training = self._learning.training
        return training.progress if training is not None else TrainingProgress()

    def _service(self) -> dict[str, Any]:
        service, serving = self.service, self.service.versions.serving
        return {
            "domain": service.domain.name,
            "argument": service.domain.argument or service.domain.name,
            "policy": service.settings.policy,
            "now": service.clock(),
            "uptime_seconds": time.monotonic() - self._started,
            "version": serving.version if serving else 0,
            "gate_only": service.versions.gate_only,
            "games": len(self._limits.games),
            "dashboards": len(self._limits.dashboards),
            "learns": self._learning.training is not None,
            "problem": service.storage.problem or "",
        }

    def _training(self) -> dict[str, Any]:
        training, progress = self._learning.training, self._progress
        last, learning = progress.last, self.service.settings.learning
        shown = ("loss", "batch", "reward", "entropy", "agreement", "grad_norm")
        return {
            "enabled": learning.enabled,
            "validate": learning.validate_,
            "running": training is not None and training.running,
            "interval": learning.interval,
            "steps": progress.steps,
            "steps_per_second": rate_per_second(self._step_counts),
            "step_seconds": last.seconds if last else 0.0,
            "failed": progress.failed,
            "problem": progress.problem,
            "slow": progress.slow,
            "samples": progress.samples,
            "validated": progress.validated,
            "agreed": progress.agreed,
            "means": progress.means(),
            "agreement_lifetime": progress.agreement,
            "verdicts": dict(progress.verdicts),
            "step": training.storage.trainer.step if training is not None else 0,
            **{name: getattr(last, name) if last else None for name in shown},
        }

    def _buffer(self) -> dict[str, Any]:
        state, counts = self._state, self._state.join.counts
        oldest, mean = state.join.ages(self.service.clock())
        return {
            "size": len(state.buffer),
            "capacity": state.buffer.capacity,
            "use": len(state.buffer) / state.buffer.capacity,
            "held_out": len(state.held_out),
            **asdict(counts),
            "not_executed": counts.not_executed,
            "oldest_pending": oldest,
            "mean_pending": mean,
            "expire_after": self.service.settings.memory.expire_after,
            "completed": state.totals.completed,
        }

    def _gate(self) -> dict[str, Any]:
        domain, totals = self.service.domain, self._state.totals
        means = np.mean(self._components, axis=0) if self._components else np.zeros(len(domain.components))
        decisions = self._state.decisions
        return {
            "pass_rate": _mean(self._sent),
            "pass_rate_lifetime": totals.sent / decisions if decisions else None,
            "reasons": dict(totals.reasons),
            "components": dict(zip(domain.components, map(float, means), strict=True)),
            "hash": self.service.storage.gate_hash,
        }

    def _evidence(self) -> dict[str, Any]:
        progress = self._progress
        reference = self.service.domain.reference.replace("_", " ")
        return {
            "reference": reference,
            "gain": asdict(progress.gain) if progress.gain else None,
            "parts": dict(progress.parts),
        }

    def _decisions(self) -> dict[str, Any]:
        totals = self._state.totals
        actions = np.bincount(np.array(self._actions, np.int64), minlength=self.service.domain.n_actions)
        confidence, _ = np.histogram(self._confidence, BINS, (0.0, 1.0))
        (p50, p99), completed = self._latency(), totals.completed
        return {
            "per_second": rate_per_second(self._decision_counts),
            "p50_ms": p50,
            "p99_ms": p99,
            "waiting": len(self.batcher) if self.batcher is not None else 0,
            "overloaded": self._overloaded,
            "recent_count": len(self._sent),
            "recent_sent": len(self._actions),
            "recent": list(self._listed.values()),
            "actions": self.service.domain.action_chart(actions),
            "confidence": confidence.tolist(),
            "entropy": _mean(self._entropy),
            "expected_and_actual": list(self._pairs),
            "outcomes": completed,
            "actual_first": totals.first / min(completed, FIRST_OUTCOMES) if completed else None,
            "actual_recent": _mean(self._state.buffer.recent_outcomes(FIRST_OUTCOMES).tolist()),
            "mean_actual": totals.actual / completed if completed else None,
            "mean_expected": totals.expected / completed if completed and self._estimates else None,
        }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
