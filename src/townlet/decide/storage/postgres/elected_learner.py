"""Trains while this process leads; otherwise it is a standby."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from townlet.decide.clock import ServiceClock
from townlet.decide.domain import Domain
from townlet.decide.logs import log_event
from townlet.decide.service_loop import ServiceLoop
from townlet.decide.settings import DecideSettings
from townlet.decide.storage.postgres.event_table import Position
from townlet.decide.storage.postgres.leadership import RENEW_SECONDS, Election
from townlet.decide.storage.postgres.learner import PostgresLearner
from townlet.decide.storage.postgres.versions import LeadershipLost
from townlet.decide.training_thread import TrainingThread

logger = logging.getLogger(__name__)


class ElectedLearner:
    """Stands for election, and trains for as long as this process leads."""

    def __init__(
        self, url: str, domain: Domain, settings: DecideSettings, clock: ServiceClock, process: str,
        log_every: int = 0,
    ) -> None:  # fmt: skip
        self._open = partial(PostgresLearner, url, domain, settings, clock)
        self._election, self._log_every = Election(url, process), log_every
        self.training: TrainingThread | None = None  # while this process leads
        self.on_change: Callable[[TrainingThread | None], object] = lambda training: None
        self._learner: PostgresLearner | None = None
        self._loop = ServiceLoop("election", self._run, RENEW_SECONDS)

    @property
    def position(self) -> Position | None:
        """The place of the last event that was applied, while this process leads."""
        return self._learner.position if (self.training and self._learner) else None

    def start(self) -> None:
        """Stand for election, again and again."""
        self._loop.start()

    @property
    def loops(self) -> Sequence[ServiceLoop]:
        training = self.training
        return [self._loop, *(training.loops if training else ())]

    def stop(self) -> None:
        """Stop training; a standby takes over at once."""
        self._loop.stop()
        self._give_up()

    def _run(self) -> None:
        try:
            self._check()
        except BaseException:
            self._give_up()
            raise

    def _check(self) -> None:
        if self._election.epoch is None:
            if (epoch := self._election.stand()) is not None:
                self._lead(epoch)
        elif not self._election.renew() or (self._learner is not None and self._learner.broken):
            self._give_up()

    def _lead(self, epoch: int) -> None:
        """Recover the state from the stored events, and start training. The lease is renewed meanwhile."""
        renewal = ServiceLoop("renewal", self._election.renew, RENEW_SECONDS)
        renewal.start()
        try:
            self._learner = self._open(epoch)
        finally:
            renewal.stop()
        if self._election.epoch is None:  # it could not be renewed
            raise LeadershipLost
        self.training = TrainingThread(self._learner, self._log_every)
        self.on_change(self.training)
        self.training.start()
        log_event(logger, "elected", f"This process is the learner now (epoch {epoch}).", epoch=epoch)

    def _give_up(self) -> None:
        self._election.resign()
        training, self.training = self.training, None
        if training is not None:
            training.stop()
            self.on_change(None)
        if self._learner is not None:
            self._learner.close()
            self._learner = None
