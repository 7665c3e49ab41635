"""The trainer's thread: steps, a version, a verdict, and again. No failure ends it, and serving never waits for it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from errno import EMFILE, ENFILE
from typing import Final

import numpy as np

from townlet.decide.events import StepUndone, TrainerRewound, TrainingStep, VersionPublished
from townlet.decide.judge import Verdict, judge, review_serving
from townlet.decide.offline_eval import OfflineEvaluator
from townlet.decide.service import Service
from townlet.decide.storage import snapshots
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.versions import NetworkVersion
from townlet.decide.trainer import StepMetrics
from townlet.errors import TownletError
from townlet.web.limits import DESCRIPTOR_REMEDY

LOOK: Final = 20  # versions between two looks at what serves
IDLE: Final = 0.02  # seconds between looks for new experience, where rounds follow each other at once
REST: Final = 0.005  # seconds between two pieces of work, each of which takes about one millisecond
PATIENCE: Final = 60.0  # seconds that the disk may take for the log
# Errors of one round; after any other error the thread is restarted.
FAILURES: Final = (TownletError, ArithmeticError, ValueError, RuntimeError, OSError, MemoryError)
REPLACED: Final = "another version was put in place while it was judged"
logger = logging.getLogger(__name__)


@dataclass
class TrainingProgress:
    """What the thread has done since the service began."""

    steps: int = 0
    failed: int = 0
    restarts: int = -1  # the first start is none
    seconds: float = 0.0  # of the last step
    agreed: float = 0.0  # sum of the agreement over all steps
    last: StepMetrics | None = None
    problem: str = ""
    held: int = 0  # versions in a row of which too little is known
    verdicts: dict[str, int] = field(default_factory=dict)


class TrainingThread:
    """Learns beside a service, in a thread of its own."""

    def __init__(self, service: Service) -> None:
        self.service, self.progress = service, TrainingProgress()
        self._hearing = OfflineEvaluator(service, self._rest)
        self._marked = service.log.last  # the record of the last milestone, or where this began
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._origin: int | None = None  # the version that was gone back to, until another is published
        self._draws = np.random.Generator(np.random.PCG64())  # for intervals only, which decide nothing in a replay

    def begin(self) -> None:
        """Let the first weights serve where nothing serves yet, and start the thread."""
        try:
            self._serve_something()
        except FAILURES as error:  # of a full disk, perhaps: the gate can decide alone until there is room
            self._failed(error)
        self.ensure()

    def _serve_something(self) -> None:
        versions = self.service.versions
        if versions.serving is None and versions.pinned is None:  # else it would only be noted, again and again
            self.publish()

    def ensure(self) -> None:
        """Start the thread, again where it died; to be called now and then."""
        if self._stop.is_set() or (self._thread and self._thread.is_alive()):
            return
        self.progress.restarts += 1
        self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """After the step that is being made."""
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self.round()
            except FAILURES as error:
                self._failed(error)
            except BaseException as error:
                self.progress.problem = _explained(error)[:300]
                raise
            every = self.service.settings.learning.every or IDLE
            self._stop.wait(max(0.0, every - (time.monotonic() - begun)))

    def _rest(self) -> None:
        """In the thread of its own: whoever decides may need the processor now."""
        if threading.current_thread() is self._thread:
            self._stop.wait(REST)

    def _failed(self, error: Exception) -> None:
        self.progress.failed += 1
        self.progress.problem = _explained(error)[:300]
        logger.warning("a round of learning failed: %s", self.progress.problem)

    def round(self) -> NetworkVersion | None:
        """Some steps, and a version of what they gave; None where there was nothing to learn from."""
        self._serve_something()
        if self.service.log.last - self._marked >= snapshots.SNAPSHOT_RECORDS:
            self._marked = self.service.log.last
            self.service.milestone()
        done = [self.step() for _ in range(self.service.settings.learning.steps)]
        if not any(done):
            return None
        published = self.publish()
        if published.version % LOOK == 0:
            self.watch()
        return published

    def step(self) -> bool:
        """One step, if there is enough to learn from. One that fails is undone and written down as such."""
        service, trainer = self.service, self.service.trainer
        with service.lock:
            if service.log.problem or not trainer.allowed or (sample := trainer.draw()) is None:
                return False
            try:
                service.write(TrainingStep(trainer.step))
            except LogStopped:
                trainer.put_back(sample)  # what the log does not know never was
                raise
        begun = time.perf_counter()
        try:
            figures = trainer.learn(sample, self._rest)
        except Exception as error:  # whatever it is, nothing may be learned that a replay would not learn
            trainer.undo()
            self.service.write(StepUndone(trainer.step, str(error)[:300]))
            self._failed(error)
            return False
        self._count(figures, time.perf_counter() - begun)
        return True

    def _count(self, figures: StepMetrics, seconds: float) -> None:
        progress = self.progress
        progress.steps, progress.last, progress.seconds = progress.steps + 1, figures, seconds
        progress.agreed += figures.agreement

    def publish(self) -> NetworkVersion:
        """Write what was learned as a version, once the log has all that it was learned from; and judge it."""
        service, trainer = self.service, self.service.trainer
        self._await_log()
        self._rest()
        state, facts = trainer.state(), service.facts()
        snapshot = service.versions.publish(trainer.step, trainer.weights(), state, facts, self._origin, self._rest)
        service.write(VersionPublished(snapshot.version, snapshot.step, snapshot.digest))
        self._origin = None
        self._await_log()  # nothing may serve that the log would not know after a crash
        self._rest()
        self.judge(snapshot)
        return snapshot

    def _await_log(self) -> None:
        """Until the disk has all that was written down."""
        log = self.service.log
        if not log.wait(log.last, timeout=PATIENCE):
            raise TownletError("the log does not come to the disk", str(log.problem or "look at the disk"))

    def judge(self, candidate: NetworkVersion) -> Verdict:
        """Whether it may serve."""
        service, progress = self.service, self.progress
        serving, estimate = service.versions.serving, None
        if serving is None and candidate.finite:
            verdict = Verdict("promote", "it is the first")
        elif serving is None:
            verdict = Verdict("refuse", "its weights are not finite")
        else:
            found = self._hearing.hear(candidate, serving, self._draws)
            verdict, estimate = judge(found, service.settings.judge), found.difference
        change = None
        with service.versions.lock:  # an operator comes before this look at what serves, or after the promotion
            if verdict.action == "promote" and service.versions.serving is not serving:
                verdict = Verdict("hold", REPLACED)
            elif verdict.action == "promote":
                change = service.versions.promote(candidate.version, verdict.reason, estimate)
        progress.verdicts[verdict.action] = progress.verdicts.get(verdict.action, 0) + 1
        progress.held = progress.held + 1 if verdict.action == "hold" else 0
        if change is not None:
            return verdict
        service.versions.note(candidate.version, f"{verdict.action}: {verdict.reason}", estimate)
        if serving is not None and (verdict.action == "refuse" or progress.held >= service.settings.judge.patience):
            self._go_back()
        return verdict

    def watch(self) -> Verdict | None:
        """Whether what serves should go on to, beside what served before it; None where there is nothing to compare."""
        versions = self.service.versions
        serving, before = versions.serving, versions.previous
        if serving is None or before is None or versions.pinned is not None:
            return None
        found = self._hearing.hear(serving, before, self._draws)
        verdict = review_serving(found, self.service.settings.judge)
        if verdict.action != "roll_back":
            return verdict
        with versions.lock:
            if versions.serving is not serving:  # an operator was quicker, and knows better
                return Verdict("keep", REPLACED)
            change = versions.roll_back(verdict.reason, found.difference, before.version)
        if change.served:  # else somebody has pinned it meanwhile
            self._go_back()
        return verdict

    def _go_back(self) -> None:
        """What was refused, or held for too long, is not learned on from, but what serves by now."""
        self.progress.held = 0
        if (serving := self.service.versions.serving) is None:
            return
        state = self.service.versions.open(serving.version)[1]
        self.service.write(TrainerRewound(serving.version))  # first: what the log does not know is not done
        self.service.trainer.go_back(state)
        self._origin = serving.version


def _explained(error: BaseException) -> str:
    """The error as text, with the remedy if file descriptors are used up."""
    if isinstance(error, OSError) and error.errno in (EMFILE, ENFILE):
        return f"file descriptors are used up: {DESCRIPTOR_REMEDY}"
    return f"{type(error).__name__}: {error}"
