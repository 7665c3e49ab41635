"""What an operator should look at now: said in words, with what can be done about it, and gone when it is over."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from townlet.decide.events import DecisionMade
from townlet.decide.room import ConnectionLimits
from townlet.decide.service import Service
from townlet.decide.training_thread import TrainingThread

WINDOW: Final = 200  # decisions of networks by which a collapse is seen
LEAST: Final = 50  # of them, before their entropy tells anything
ALIKE: Final = 0.9  # share of one action beyond which a policy has collapsed
LATELY: Final = 60.0  # seconds for which a failure is told
UNANSWERED: Final = 20  # decisions without any outcome, at least; and half the time after which they expire


class Alarm(NamedTuple):
    """Something is wrong."""

    name: str
    grave: bool  # decisions or what is learned are at stake
    what: str
    fix: str
    since: float = 0.0  # seconds since 1970


class Alarms:
    """Listens to a service, and says what is wrong at this moment."""

    def __init__(self, service: Service, rounds: TrainingThread, room: ConnectionLimits) -> None:
        self._service, self._rounds, self._room = service, rounds, room
        self._chosen: deque[int] = deque(maxlen=WINDOW)  # by networks: what the gate decides alone is no policy
        self._entropy: deque[float] = deque(maxlen=WINDOW)
        self._decided_at = self._waits_since = -inf
        self._unanswered = 0  # sent since the last outcome
        self._failures, self._restarts, self._overload = _Growing(), _Growing(), _Growing()
        self._refused = _Growing()
        self._since: dict[str, float] = {}  # alarms that are told now, and since when

    def decided(self, made: DecisionMade, entropy: float) -> None:
        """A decision was made, by a policy of this entropy (a share of the largest)."""
        self._decided_at = made.at
        if made.version:
            self._chosen.append(made.action)
            self._entropy.append(entropy)
        if made.send:
            if not self._unanswered:
                self._waits_since = made.at
            self._unanswered += 1

    def answered(self) -> None:
        """It became known what came of a decision."""
        self._unanswered = 0

    def look(self, overloaded: int) -> list[Alarm]:
        """All that is wrong now, the gravest first; `overloaded` counts what the overload mode has answered."""
        now = self._service.clock()
        found = [*self._disk(), *self._collapse(), *self._training(now), *self._silence(now)]
        found += [*self._load(overloaded, now), *self._crowd(now), *self._damage()]
        self._since = {alarm.name: self._since.get(alarm.name, now) for alarm in found}
        return sorted((alarm._replace(since=self._since[alarm.name]) for alarm in found), key=lambda one: not one.grave)

    def _disk(self) -> Iterator[Alarm]:
        if problem := self._service.log.problem:
            what = f"Nothing is written down, so nothing is learned: {problem}"
            yield Alarm("log", True, what, "Make room on the disk. Meanwhile decisions are made as before.")

        if problem := self._service.log.control_problem:
            yield Alarm("control", False, f"The control data of the log are out of date: {problem}", "Check the disk.")
        for notice in self._service.notices:
            yield Alarm(notice.name, notice.grave, notice.what, notice.fix)

    def _collapse(self) -> Iterator[Alarm]:
        if self._service.gate_only or len(self._chosen) < LEAST:
            return
        floor, entropy = self._service.settings.judge.entropy_floor, sum(self._entropy) / len(self._entropy)
        action, times = Counter(self._chosen).most_common(1)[0]
        if entropy < floor:
            why = f"its entropy is {entropy:.3f} of the largest, and {floor:g} is the floor"
        elif len(self._chosen) == WINDOW and times > ALIKE * WINDOW:
            why = f"{times} of its last {WINDOW} decisions are action {action}"
        else:
            return
        fix = "Roll back, pin an older version, or let the gate decide alone; raise learning.entropy before you go on."
        yield Alarm("collapsed", True, f"The policy has collapsed: {why}", fix)

    def _training(self, now: float) -> Iterator[Alarm]:
        progress, rounds = self._rounds.progress, self._rounds
        again, failing = self._restarts.lately(progress.restarts, now), self._failures.lately(progress.failed, now)
        problem = progress.problem or "no reason is known"
        if not rounds.running:
            what = f"The trainer does not run: {progress.problem}" if progress.problem else "The trainer does not run"
            fix = "It is started again every second. If it stays like this, start the service again."
            yield Alarm("training", True, what, fix)
        elif again:
            yield Alarm("training", True, f"The trainer died and was started again: {problem}", "Look at its output.")
        elif failing:
            what = f"{progress.failed} rounds of learning have failed since the start, the last so: {problem}"
            yield Alarm("training", False, what, "Each was undone, and learning goes on. Lower learning.lr.")

    def _silence(self, now: float) -> Iterator[Alarm]:
        silent, patience = now - self._waits_since, self._service.settings.memory.expire_after / 2
        if self._unanswered >= UNANSWERED and silent >= patience and now - self._decided_at < LATELY:
            what = f"No outcome has come for {silent:.0f} s, and {self._unanswered} decisions were sent meanwhile"
            fix = "Nothing can be learned like this. See whether the game still reports, and by the right ids."
            yield Alarm("silence", False, what, fix)

    def _load(self, overloaded: int, now: float) -> Iterator[Alarm]:
        if self._overload.lately(overloaded, now):
            refused = self._service.settings.overload.mode == "refuse"
            how = "were refused" if refused else "were decided by the gate alone or refused"
            what = f"More is asked than can be answered: {overloaded} observations {how} since the start"
            yield Alarm("overload", False, what, "Let games ask less often, or raise overload.waiting and .patience.")

    def _crowd(self, now: float) -> Iterator[Alarm]:
        games = self._room.games
        if self._refused.lately(games.refused, now):
            what = f"{games.refused} game connections were refused since the start: the limit is {games.limit}"
            if self._room.short:
                what += f". File descriptors limit it: this process may open {self._room.limit} files"
            yield Alarm("connections", True, what, self._room.remedy)

    def _damage(self) -> Iterator[Alarm]:
        versions = self._service.versions
        if fault := versions.fault:
            what = f"The serving record cannot be trusted, so only the gate decides: {fault}"
            fix = "Check which version serves and whether one is pinned, then switch gate-only off (or on) by hand."
            yield Alarm("serving_record", True, what, fix)
        if wanted := versions.instead_of or (versions.pinned if versions.serving is None else None):
            now = f"version {versions.pinned} is held in its place" if versions.serving else "the gate decides alone"
            what = f"Version {wanted} is pinned and was not whole at the start: {now}"
            yield Alarm("pin", True, what, "Pin a version that is whole, or unpin.")
        if damaged := versions.damaged:
            version, error = max(damaged.items())
            what = f"Version {version} is damaged: {error}"
            yield Alarm("damaged", False, what, "It never serves. Look at the disk, and remove its folder.")


class _Growing:
    """A count, and whether it has grown lately."""

    def __init__(self) -> None:
        self._count, self._at = 0, -inf

    def lately(self, count: int, now: float) -> bool:
        if count > self._count:
            self._at = now
        self._count = count
        return now - self._at < LATELY
