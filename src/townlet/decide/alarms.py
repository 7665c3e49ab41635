"""Active alarms: each has a message and a remedy, and clears when its condition ends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Final, NamedTuple

from townlet.decide.events import DecisionMade
from townlet.decide.service import Service
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.training_progress import TrainingProgress
from townlet.decide.training_thread import Learning
from townlet.decide.websocket import ConnectionLimits
from townlet.web.limits import DESCRIPTOR_REMEDY

COLLAPSE_WINDOW: Final = 200  # latest decisions made by a network, checked for a collapse
MIN_DECISIONS: Final = 50  # decisions needed to check the mean entropy
DOMINANCE: Final = 0.9  # share of one action above which a policy has collapsed
RECENT: Final = 60.0  # seconds for which an alarm lasts after a failure
LEARNER_SILENT: Final = 15.0  # seconds without a report of the learner, after which an alarm is raised
OUTDATED: Final = 5.0  # seconds since what serves was read, after which an alarm is raised
UNANSWERED: Final = 20  # this many decisions without an outcome, for half of the expiry time, raise an alarm


class Alarm(NamedTuple):
    """A condition that needs attention."""

    name: str
    critical: bool  # decisions or training are at risk
    what: str
    fix: str
    since: float = 0.0  # seconds since 1970


class Alarms:
    """Checks a service for alarm conditions."""

    def __init__(self, service: Service, learning: Learning, limits: ConnectionLimits) -> None:
        self._service, self._learning, self._limits = service, learning, limits
        self._actions: deque[int] = deque(maxlen=COLLAPSE_WINDOW)  # chosen by a network, not by the gate alone
        self._entropy: deque[float] = deque(maxlen=COLLAPSE_WINDOW)
        self._last_decision = self._unanswered_since = -inf
        self._unanswered = 0  # decisions sent since the last outcome
        self._failures, self._overload = _RecentGrowth(), _RecentGrowth()
        self._refused, self._slow = _RecentGrowth(), _RecentGrowth()
        self.loops: list[ServiceLoop] = []  # of the server; storage and learning have others
        self._since: dict[str, float] = {}  # start of each active alarm

    def on_decision(self, decision: DecisionMade, entropy: float) -> None:
        self._last_decision = decision.at
        if decision.version:
            self._actions.append(decision.action)
            self._entropy.append(entropy)
        if decision.send:
            if not self._unanswered:
                self._unanswered_since = decision.at
            self._unanswered += 1

    def on_outcome(self) -> None:
        self._unanswered = 0

    def active(self, overloaded: int) -> list[Alarm]:
        """Active alarms, critical ones first; `overloaded` counts observations affected by overload so far."""
        now = self._service.clock()
        alarms = [*self._storage(), *self._failed_loops(), *self._outdated(), *self._collapse()]
        alarms += [*self._training(now), *self._traffic(overloaded, now), *self._versions()]
        self._since = {alarm.name: self._since.get(alarm.name, now) for alarm in alarms}
        dated = (alarm._replace(since=self._since[alarm.name]) for alarm in alarms)
        return sorted(dated, key=lambda alarm: not alarm.critical)

    def problem(self) -> str | None:
        """Why this process should not get requests; None if it should."""
        ended = (alarm.what for alarm in self._failed_loops(only_ended=True))
        outdated = (alarm.what for alarm in self._outdated())
        return self._service.storage.problem or next(chain(ended, outdated), None)

    def _failed_loops(self, only_ended: bool = False) -> Iterator[Alarm]:
        for loop in (*self.loops, *self._service.storage.loops, *self._learning.loops):
            if loop.ended:
                yield Alarm(loop.name, True, f"The thread '{loop.name}' has ended", "Restart this process.")
            elif loop.problem and not only_ended:
                what = f"The thread '{loop.name}' failed, and tries again: {loop.problem}"
                yield Alarm(loop.name, True, what, "If this persists, check the output of this process.")

    def _outdated(self) -> Iterator[Alarm]:
        age = self._service.storage.seconds_since_refresh
        if age > OUTDATED:
            what = f"What serves was last read {age:.0f} s ago: a rollback, a pin or gate-only mode may be missed here"
            yield Alarm("outdated", True, what, "Check the database, and the output of this process.")

    def _storage(self) -> Iterator[Alarm]:
        if problem := self._service.storage.problem:
            what = f"The log cannot be written, so nothing is learned: {problem}"
            yield Alarm("log", True, what, "Free disk space, or check the database.")
        for notice in self._service.storage.notices:
            yield Alarm(notice.name, notice.critical, notice.what, notice.fix)

    def _collapse(self) -> Iterator[Alarm]:
        if self._service.versions.gate_only or len(self._actions) < MIN_DECISIONS:
            return
        floor, entropy = self._service.settings.promotion.entropy_floor, sum(self._entropy) / len(self._entropy)
        action, count = Counter(self._actions).most_common(1)[0]
        if entropy < floor:
            why = f"its normalized entropy is {entropy:.3f}, below the floor of {floor:g}"
        elif len(self._actions) == COLLAPSE_WINDOW and count > DOMINANCE * COLLAPSE_WINDOW:
            why = f"{count} of its last {COLLAPSE_WINDOW} decisions are action {action}"
        else:
            return
        fix = "Roll back, pin an older version, or turn on gate-only mode; then raise learning.entropy_coef."
        yield Alarm("collapsed", True, f"The policy has collapsed: {why}", fix)

    def _training(self, now: float) -> Iterator[Alarm]:
        training = self._learning.training
        if training is None:
            yield from self._learner_of_others(now)
            return
        progress = training.progress
        failing = self._failures.grew_recently(progress.failed, now)
        yield from self._slow_training(progress, now)
        if failing and not any(loop.ended or loop.problem for loop in training.loops):
            problem = progress.problem or "the reason is unknown"
            what = f"{progress.failed} training rounds have failed since the start, the last one with: {problem}"
            yield Alarm("training", False, what, "Failed steps were undone, and training continues.")

    def _slow_training(self, progress: TrainingProgress, now: float) -> Iterator[Alarm]:
        interval, took = self._service.settings.learning.interval, progress.seconds_of_current_step()
        slow = self._slow.grew_recently(progress.slow, now)  # called always, to notice growth
        if 0 < interval < took:
            what = f"A training step has been running for {took:.3g} s, longer than learning.interval ({interval:g} s)"
        elif slow:
            what = f"A training step took {progress.slow_seconds:.3g} s, longer than learning.interval ({interval:g} s)"
        else:
            return
        fix = "Lower learning.batch_size, or raise learning.interval. Decisions are not affected."
        yield Alarm("slow_training", False, what, fix)

    def _learner_of_others(self, now: float) -> Iterator[Alarm]:
        _, age = self._service.storage.learner_report()
        if age is None or age > LEARNER_SILENT:
            since = "There is no learner" if age is None else f"No learner has reported for {age:.0f} s"
            fix = "Start a process with --role learn, and check its output and its connection to the database."
            serving, published = self._service.versions.serving, None
            if serving is not None:
                published = self._service.versions.published_at(serving.version)
            version = f"version {serving.version}" if serving else "the gate alone"
            old = "" if published is None else f", published {now - published:.0f} s ago"
            yield Alarm("learner", True, f"{since}: decisions are made with {version}{old}", fix)

    def _traffic(self, overloaded: int, now: float) -> Iterator[Alarm]:
        silent, limit = now - self._unanswered_since, self._service.settings.memory.expire_after / 2
        if self._unanswered >= UNANSWERED and silent >= limit and now - self._last_decision < RECENT:
            what = f"No outcome has arrived for {silent:.0f} s, while {self._unanswered} decisions were sent"
            fix = "Nothing can be learned without outcomes. Check that the game reports them, with the right ids."
            yield Alarm("silence", False, what, fix)
        if self._overload.grew_recently(overloaded, now):
            refused = self._service.settings.overload.mode == "refuse"
            how = "refused" if refused else "answered by the gate alone or refused"
            what = f"The service is overloaded: {overloaded} observations have been {how} since the start"
            yield Alarm("overload", False, what, "Send fewer observations, or raise overload.waiting and .patience.")
        games, limits = self._limits.games, self._limits
        if self._refused.grew_recently(games.refused, now):
            what = f"{games.refused} game connections were refused or closed since the start; {games.limit} may be open"
            fix = "Run a second service for the other games."
            if limits.limited_by_descriptors:
                what += f". It is set by file descriptors: this process may open {limits.descriptor_limit} files"
                fix = f"{DESCRIPTOR_REMEDY[0].upper()}{DESCRIPTOR_REMEDY[1:]}."
            yield Alarm("connections", True, what, fix)

    def _versions(self) -> Iterator[Alarm]:
        versions = self._service.versions
        if fault := versions.fault:
            what = f"The serving log cannot be trusted, so only the gate decides: {fault}"
            fix = "Check which version serves and whether one is pinned, then switch gate-only mode off (or on)."
            yield Alarm("serving_log", True, what, fix)
        if damaged_pin := versions.replaced_pin or (None if versions.serving else versions.pinned):
            now = f"version {versions.pinned} is pinned instead" if versions.serving else "the gate decides alone"
            what = f"The pinned version {damaged_pin} was damaged at startup: {now}"
            yield Alarm("pin", True, what, "Pin an intact version, or unpin.")
        if damaged := versions.damaged:
            version, error = max(damaged.items())
            what = f"Version {version} is damaged: {error}"
            yield Alarm("damaged", False, what, "It never serves. Check the disk, and remove its folder.")


class _RecentGrowth:
    """Detects whether a count has grown recently."""

    def __init__(self) -> None:
        self._count, self._at = 0, -inf

    def grew_recently(self, count: int, now: float) -> bool:
        if count > self._count:
            self._at = now
        self._count = count
        return now - self._at < RECENT
