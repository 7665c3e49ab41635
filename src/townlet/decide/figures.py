"""What the dashboard shows, gathered while it happens: counts for ever, and the last decisions one by one."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from townlet.decide.alarms import Alarms
from townlet.decide.batcher import Batcher
from townlet.decide.curves import RateMeter, RecentCurves
from townlet.decide.decider import DraftDecision
from townlet.decide.events import DecisionMade, OutcomeRecorded
from townlet.decide.history import summarize_history
from townlet.decide.recovery import events
from townlet.decide.room import ConnectionLimits
from townlet.decide.service import Service
from townlet.decide.state import FIRST_OUTCOMES, Experience
from townlet.decide.storage import LOG
from townlet.decide.training_thread import TrainingThread

RECENT: Final = 50  # decisions that are told one by one
LATELY: Final = 1000  # decisions of which means and histograms are told
LOOKED_BACK: Final = 5000  # records of the log that are read for them at a start
BINS: Final = 10
PAIRS: Final = 200  # of expected and actual rewards, and decisions that a point of a curve is the mean of
COUNTED: Final = (  # over the whole life of the service, or since it began: what only grows
    "step", "steps", "failed", "restarts", "decisions", "joined", "expired", "not_executed", "waited", "duplicates",
    "late", "unknown", "contradicting", "completed", "overloaded", "outcomes",
)  # fmt: skip
ROOMS: Final = ("service", "training", "buffer", "gate", "decisions")  # whose numbers Prometheus is told


class ServiceStats:
    """Listens to a service and can tell everything about it at once, as JSON."""

    def __init__(self, service: Service, rounds: TrainingThread, room: ConnectionLimits | None = None) -> None:
        self.service, self.rounds, self._room = service, rounds, room or ConnectionLimits()
        self.batcher: Batcher | None = None  # where observations wait, once there is a server
        self._begun = time.monotonic()
        self._alarms, self._curves = Alarms(service, rounds, self._room), RecentCurves()
        self._decision_pace, self._step_pace = RateMeter(), RateMeter()
        self._recent: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._actions: deque[int] = deque(maxlen=LATELY)
        self._confidence: deque[float] = deque(maxlen=LATELY)
        self._sent: deque[bool] = deque(maxlen=LATELY)
        self._entropy: deque[float] = deque(maxlen=LATELY)
        self._components: deque[np.ndarray[Any, Any]] = deque(maxlen=LATELY)
        self._pairs: deque[tuple[float, float]] = deque(maxlen=PAIRS)
        self._look_back()
        service.decision_listeners.append(self._decided)
        service.state.outcome_listeners.append(self._joined)

    def _look_back(self) -> None:
        """What was decided last before the service began anew."""
        made: dict[int, DecisionMade] = {}
        for event in events(self.service.folder / LOG, max(0, self.service.log.last - LOOKED_BACK)):
            if isinstance(event, DecisionMade):
                self._tell(event)
                made[event.number] = event
            elif isinstance(event, OutcomeRecorded) and event.number in made:
                self._came(made.pop(event.number), event.value, event.how)  # what is told of it again does not count

    def _decided(self, made: DecisionMade, draft: DraftDecision) -> None:
        self._tell(made)
        if made.expected is not None:
            self._components.append(draft.components)
        self._entropy.append(draft.entropy)
        self._alarms.decided(made, draft.entropy)

    def _tell(self, made: DecisionMade) -> None:
        if made.send:
            self._actions.append(made.action)
        self._confidence.append(made.confidence)
        self._sent.append(made.send)
        told = {"number": made.number, "territory": made.territory, "action": made.action, "send": made.send}
        why = {"reason": made.reason, "confidence": made.confidence, "expected": made.expected, "actual": None}
        self._recent[made.number] = told | why | {"version": made.version, "at": made.at}
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _joined(self, experience: Experience, value: float, how: str) -> None:
        if how != "default":
            self._alarms.answered()
        self._came(experience.made, value, how)

    def _came(self, made: DecisionMade, value: float, how: str) -> None:
        if made.number in self._recent:
            self._recent[made.number]["actual"] = value
        if how != "default" and made.expected is not None:
            self._pairs.append((made.expected, value))

    def look(self) -> None:
        """To be called about once a second: paces, curves and alarms know time by this."""
        now = time.monotonic()
        self._decision_pace.look(now, self.service.state.decisions)
        self._step_pace.look(now, self.rounds.progress.steps)
        self._alarms.look(self._overloaded)
        expected, actual = np.mean(self._pairs, axis=0).tolist() if self._pairs else (None, None)
        p50, p99 = self._latency()
        last = self.rounds.progress.last
        figures = {
            "decisions_per_second": self._decision_pace.per_second, "p50_ms": p50, "p99_ms": p99,
            "pass_rate": _mean(_newest(self._sent)), "entropy": _mean(_newest(self._entropy)),
            "expected": expected, "actual": actual, "loss": last.loss if last else None,
        }  # fmt: skip
        self._curves.add(self.service.clock(), now, figures)

    @property
    def _overloaded(self) -> int:
        return self.batcher.overloaded if self.batcher is not None else 0

    def _latency(self) -> tuple[float | None, float | None]:
        """Milliseconds within which a half and 99 % of the last observations were answered."""
        if self.batcher is None or not self.batcher.latency:
            return None, None
        half, most = np.percentile(self.batcher.latency, (50, 99))
        return 1000 * float(half), 1000 * float(most)

    def whole(self) -> dict[str, Any]:
        """Everything, at this moment."""
        with self.service.lock:
            return {
                "alarms": [alarm._asdict() for alarm in self._alarms.look(self._overloaded)],
                "service": self._service(),
                "training": self._training(),
                "buffer": self._buffer(),
                "gate": self._gate(),
                "decisions": self._decisions(),
                "versions": self._versions(),
                "curves": self._curves.told(),
            }

    def _service(self) -> dict[str, Any]:
        service = self.service
        serving = service.versions.serving
        return {
            "domain": service.domain.name,
            "policy": service.settings.policy,
            "now": service.clock(),
            "up_seconds": time.monotonic() - self._begun,
            "version": serving.version if serving else 0,
            "gate_only": service.gate_only,
            "games": len(self._room.games),
            "dashboards": len(self._room.dashboards),
            "problem": service.log.problem or "",
        }

    def _training(self) -> dict[str, Any]:
        progress, last = self.rounds.progress, self.rounds.progress.last
        shown = ("loss", "batch", "reward", "entropy", "agreement", "grad_norm")
        return {
            "running": self.rounds.running,
            "every": self.service.settings.learning.every,
            "steps": progress.steps,
            "steps_per_second": self._step_pace.per_second,
            "step_seconds": progress.seconds,
            "failed": progress.failed,
            "restarts": max(progress.restarts, 0),
            "problem": progress.problem,
            "agreement_ever": progress.agreed / progress.steps if progress.steps else None,
            "verdicts": dict(progress.verdicts),
            "step": self.service.trainer.step,
            **{name: getattr(last, name) if last else None for name in shown},
        }

    def _buffer(self) -> dict[str, Any]:
        ledger, counts = self.service.state, self.service.state.join.counts
        ages = ledger.join.ages(self.service.clock())
        return {
            "size": len(ledger.buffer),
            "capacity": ledger.buffer.capacity,
            "use": len(ledger.buffer) / ledger.buffer.capacity,
            "held_out": len(ledger.held_out),
            "decisions": counts.decisions,
            "joined": counts.joined,
            "expired": counts.expired,
            "pending": counts.pending,
            "not_executed": counts.not_executed,
            "waited": counts.waited,
            "failed": counts.failed,
            "duplicates": counts.duplicates,
            "late": counts.late,
            "unknown": counts.unknown,
            "contradicting": counts.contradicting,
            "oldest_pending": ages.oldest,
            "mean_pending": ages.mean,
            "expire_after": self.service.settings.memory.expire_after,
            "completed": ledger.tally.completed,
        }

    def _gate(self) -> dict[str, Any]:
        domain, tally = self.service.domain, self.service.state.tally
        means = np.mean(self._components, axis=0) if self._components else np.zeros(len(domain.components))
        counts = self.service.state.join.counts
        return {
            "pass_rate": _mean(self._sent),
            "pass_rate_ever": tally.sent / counts.decisions if counts.decisions else None,
            "reasons": dict(tally.reasons),
            "components": dict(zip(domain.components, map(float, means), strict=True)),
            "hash": self.service.gate_hash,
        }

    def _versions(self) -> dict[str, Any]:
        """As they tell it themselves, with chapters instead of the history: that would be over within a minute."""
        versions = self.service.versions
        told = versions.overview() | {"chapters": summarize_history(versions.history)}
        del told["history"]
        return told

    def _decisions(self) -> dict[str, Any]:
        tally = self.service.state.tally
        actions = np.bincount(np.array(self._actions, np.int64), minlength=self.service.domain.n_actions)
        confidence, _ = np.histogram(self._confidence, BINS, (0.0, 1.0))
        p50, p99 = self._latency()
        return {
            "per_second": self._decision_pace.per_second,
            "p50_ms": p50,
            "p99_ms": p99,
            "waiting": len(self.batcher) if self.batcher is not None else 0,
            "overloaded": self._overloaded,
            "lately": len(self._sent),
            "sent_lately": len(self._actions),
            "recent": list(self._recent.values()),
            "actions": self.service.domain.action_chart(actions),
            "confidence": confidence.tolist(),
            "entropy": _mean(self._entropy),
            "expected_and_actual": list(self._pairs),
            "outcomes": tally.completed,
            "actual_first": tally.first / min(tally.completed, FIRST_OUTCOMES) if tally.completed else None,
            "actual_lately": _mean(self.service.state.buffer.outcomes(FIRST_OUTCOMES).tolist()),
            "mean_actual": tally.actual / tally.completed if tally.completed else None,
            "mean_expected": tally.expected / tally.completed if tally.completed else None,
        }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _newest(values: deque[Any]) -> list[Any]:
    """Those that a point of a curve is the mean of."""
    return list(islice(reversed(values), PAIRS))


def as_prometheus(told: dict[str, Any]) -> str:
    """The numbers in Prometheus' text form; those that are not known yet are left out."""
    lines = []
    for room in ROOMS:
        for name, value in told[room].items():
            if isinstance(value, bool | int | float):
                kind = "counter" if name in COUNTED else "gauge"
                lines += [f"# TYPE townlet_decide_{room}_{name} {kind}", f"townlet_decide_{room}_{name} {value + 0!r}"]
    lines.append("# TYPE townlet_decide_alarm gauge")
    lines += [f'townlet_decide_alarm{{name="{alarm["name"]}"}} 1' for alarm in told["alarms"]]
    return "\n".join(lines) + "\n"
