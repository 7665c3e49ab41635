"""The training thread: train, publish a version, evaluate it offline, repeat. Serving never waits for it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from townlet.decide.decider import sample_observation
from townlet.decide.events import StepUndone, TrainerRewound, TrainingStep, VersionPublished
from townlet.decide.logs import log_event
from townlet.decide.offline_eval import OfflineEvaluator, Verdict, judge_candidate, judge_serving
from townlet.decide.service_loop import ServiceLoop, describe_error
from townlet.decide.storage import snapshots
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.protocol import LearnerStorage
from townlet.decide.storage.retention import is_due
from townlet.decide.storage.versions import NetworkVersion
from townlet.decide.tracing import span
from townlet.decide.training_progress import TrainingProgress

REVIEW_INTERVAL: Final = 20  # published versions between two reviews of the serving version
IDLE_SECONDS: Final = 0.02  # pause between two rounds if learning.interval is 0
EXPLAINED: Final = 32  # recent observations whose parts are rated
YIELD_SECONDS: Final = 0.005  # pause between two pieces of work of about one millisecond each
REPLACED: Final = "another version started serving during the evaluation"
logger = logging.getLogger(__name__)


class Learning(Protocol):
    """The part of a process that trains, always or while it is the learner."""

    on_change: Callable[[TrainingThread | None], object]  # called when training begins and ends

    @property
    def training(self) -> TrainingThread | None:
        """The training thread, while this process trains."""

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        """The loops that run in threads."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class NoLearning:
    """A process that only decides."""

    training: TrainingThread | None = None
    loops: Sequence[ServiceLoop] = ()
    on_change: Callable[[TrainingThread | None], object] = staticmethod(lambda training: None)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class TrainingThread:
    """Trains beside a service, in a separate thread."""

    def __init__(self, storage: LearnerStorage, log_every: int = 0) -> None:
        self.storage, self.progress = storage, TrainingProgress()
        self._log_every = log_every  # training steps between two lines of the log; 0: none
        self.on_change: Callable[[TrainingThread | None], object] = lambda training: None
        self._evaluator = OfflineEvaluator(storage, self._yield_cpu)
        self._last_snapshot = storage.record, storage.clock()  # record and time of the last snapshot, or of the start
        self._recent: deque[Mapping[str, Any]] = deque(maxlen=EXPLAINED)  # the latest observations
        storage.state.decision_listeners.append(lambda event: self._recent.append(event.message))
        self._loop = ServiceLoop("training", self._run_round, storage.settings.learning.interval or IDLE_SECONDS)
        self._parent: int | None = None  # the version rewound to, until the next one is published
        self._generator = np.random.Generator(np.random.PCG64())  # for confidence intervals, not for training

    @property
    def training(self) -> TrainingThread:
        """This process always trains."""
        return self

    def start(self) -> None:
        """Serve the initial weights if nothing serves yet, and start the thread."""
        try:
            self.storage.trainer.warm_up(sample_observation(self.storage.domain))
            self._ensure_serving()
        except Exception as error:  # for example a full disk: the gate decides alone until there is space
            self._note_failure(error)
            logger.warning("nothing serves yet: %s", self.progress.problem)
        self._loop.start()

    def _ensure_serving(self) -> None:
        versions = self.storage.versions
        if versions.serving is None and versions.pinned is None:  # a pinned version would prevent the promotion
            self.publish()

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        return [self._loop]

    @property
    def running(self) -> bool:
        return not self._loop.ended

    def stop(self) -> None:
        self._loop.stop()

    def _run_round(self) -> None:
        try:
            self.train_round()
        except Exception as error:
            self._note_failure(error)
            raise

    def _yield_cpu(self) -> None:
        """In the training thread, give the decision path a chance to run."""
        self._loop.pause(YIELD_SECONDS)

    def _note_failure(self, error: Exception) -> None:
        self.progress.failed += 1
        self.progress.problem = describe_error(error)[:300]

    def train_round(self) -> NetworkVersion | None:
        """Take `gradient_steps` steps and publish the resulting version; None without enough experience."""
        self.storage.catch_up()
        self._ensure_serving()
        self._save_snapshot_if_due()
        taken = [self.step() for _ in range(self.storage.settings.learning.gradient_steps)]
        if not any(taken):
            return None
        version = self.publish()
        if version.version % REVIEW_INTERVAL == 0:
            self.review_serving()
            self.explain_serving()
        return version

    def _save_snapshot_if_due(self) -> None:
        storage, (record, at) = self.storage, self._last_snapshot
        since, interval = storage.clock() - at, snapshots.SNAPSHOT_INTERVAL
        if is_due(storage.record - record, since, interval, storage.settings.keep):
            self._last_snapshot = storage.record, storage.clock()
            storage.save_snapshot()

    def step(self) -> bool:
        """Take one step if there is enough experience; returns whether it succeeded. A failed step is undone."""
        storage, trainer = self.storage, self.storage.trainer
        with storage.lock:
            if storage.problem or not trainer.allowed or (batch := trainer.sample()) is None:
                return False
            try:
                storage.write(TrainingStep(trainer.step))
            except LogStopped:
                trainer.cancel(batch)  # a step that is not logged must not be made
                raise
        progress, started = self.progress, time.perf_counter()
        progress.began = time.monotonic()
        try:
            with span("training_step", step=trainer.step, batch=len(batch)) as describe:
                metrics = trainer.learn(batch, self._yield_cpu)
                describe({"loss": metrics.loss, "agreement": metrics.agreement})
        except Exception as error:  # any error: the step must be undone, and a replay must undo it too
            trainer.undo()
            self.storage.write(StepUndone(trainer.step, str(error)[:300]))
            self._note_failure(error)
            logger.warning("a training step failed: %s", self.progress.problem)
            return False
        finally:
            progress.began = None
        progress.add(replace(metrics, seconds=time.perf_counter() - started), storage.settings.learning.interval)
        if self._log_every and progress.steps % self._log_every == 0:
            fields: dict[str, Any] = {"step": metrics.step, **progress.means()}
            log_event(logger, "training", progress.summary(), **fields)
        return True

    def publish(self) -> NetworkVersion:
        """Write the weights as a version, once the log of their training is on disk, and review it."""
        storage, trainer = self.storage, self.storage.trainer
        record = storage.await_durable()  # a version must not refer to records that a crash could lose
        self._yield_cpu()
        info = {"gate": storage.gate_hash, "record": record, "at": storage.clock(), **storage.version_info()}
        state = trainer.state()
        version = storage.versions.publish(trainer.step, trainer.weights(), state, info, self._parent, self._yield_cpu)
        storage.write(VersionPublished(version.version, version.step, version.digest))
        self._parent = None
        storage.await_durable()  # a version must not serve before its record is on disk
        self._yield_cpu()
        self.review_candidate(version)
        return version

    def review_candidate(self, candidate: NetworkVersion) -> Verdict:
        """Evaluate a version offline, and promote it if it may serve."""
        with span("promotion", version=candidate.version, step=candidate.step) as describe:
            verdict = self._review_candidate(candidate)
            describe({"verdict": verdict.action, "reason": verdict.reason})
        return verdict

    def _review_candidate(self, candidate: NetworkVersion) -> Verdict:
        storage, progress = self.storage, self.progress
        serving, estimate = storage.versions.serving, None
        if serving is None and candidate.finite:
            verdict = Verdict("promote", "it is the first version")
        elif serving is None:
            verdict = Verdict("refuse", "its weights are not finite")
        else:
            evidence = self._evaluator.evaluate(candidate, serving, self._generator)
            verdict, estimate = judge_candidate(evidence, storage.settings.promotion), evidence.difference
        change = None
        with storage.versions.lock:  # the operator cannot intervene between this check and the promotion
            if verdict.action == "promote" and storage.versions.serving is not serving:
                verdict = Verdict("hold", REPLACED)
            elif verdict.action == "promote":
                change = storage.versions.promote(candidate.version, verdict.reason, estimate)
        progress.verdicts[verdict.action] = progress.verdicts.get(verdict.action, 0) + 1
        progress.held = progress.held + 1 if verdict.action == "hold" else 0
        if change is not None:
            return verdict
        storage.versions.note(candidate.version, f"{verdict.action}: {verdict.reason}", estimate)
        if serving is not None and (verdict.action == "refuse" or progress.held >= storage.settings.promotion.patience):
            self._rewind()
        return verdict

    def review_serving(self) -> Verdict | None:
        """Compare the serving version with the previous one, and roll back if it is worse; None if not applicable."""
        versions = self.storage.versions
        serving, previous = versions.serving, versions.previous
        if serving is None or previous is None or versions.pinned is not None:
            return None
        evidence = self._evaluator.evaluate(serving, previous, self._generator)
        verdict = judge_serving(evidence, self.storage.settings.promotion)
        if verdict.action != "roll_back":
            return verdict
        with versions.lock:
            if versions.serving is not serving:  # an operator's change takes precedence
                return Verdict("keep", REPLACED)
            change = versions.roll_back(verdict.reason, evidence.difference, previous.version)
        if change.applied:  # otherwise an operator has pinned it in the meantime
            self._rewind()
        return verdict

    def explain_serving(self) -> None:
        """Compare recent decisions with the reference policy, and rate the parts of recent observations."""
        storage = self.storage
        if (serving := storage.versions.serving) is None:
            return
        if storage.domain.reference:
            self.progress.gain = self._evaluator.compare_with_reference(serving, self._generator)
        self.progress.parts = storage.domain.evidence(serving.network, list(self._recent))

    def _rewind(self) -> None:
        """Continue training from the serving version, after newer ones were refused or held too often."""
        self.progress.held = 0
        if (serving := self.storage.versions.serving) is None:
            return
        state = self.storage.versions.open(serving.version)[1]
        self.storage.write(TrainerRewound(serving.version))  # logged first: a replay must do the same
        self.storage.trainer.rewind(state)
        self._parent = serving.version
