"""Trains while this process leads; otherwise it is a standby."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from townlet.decide.clock import ServiceClock
from townlet.decide.domain import Domain
from townlet.decide.logs import log_event
from townlet.decide.settings import DecideSettings
from townlet.decide.storage.postgres.event_table import Position
from townlet.decide.storage.postgres.leadership import RENEW_SECONDS, Election
from townlet.decide.storage.postgres.learner import PostgresLearner
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError

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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    @property
    def position(self) -> Position | None:
        """The place of the last event that was applied, while this process leads."""
        return self._learner.position if (self.training and self._learner) else None

    def start(self) -> None:
        """Stand for election, again and again."""
        self._thread.start()

    def ensure_running(self) -> None:
        """Restart the training thread if it died; called periodically."""
        if (training := self.training) is not None:
            training.ensure_running()

    def stop(self) -> None:
        """Stop training; a standby takes over at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        problem = ""
        while not self._stop.is_set():
            try:
                self._check()
            except TownletError as error:
                if str(error) != problem:  # repeated every second until it is over
                    logger.warning("the learner cannot lead: %s", error)
                problem = str(error)
                self._give_up()
            else:
                problem = ""
            self._stop.wait(RENEW_SECONDS)
        self._give_up()

    def _check(self) -> None:
        if self._election.epoch is None:
            if (epoch := self._election.stand()) is not None:
                self._lead(epoch)
        elif not self._election.renew() or (self._learner is not None and self._learner.broken):
            self._give_up()

    def _lead(self, epoch: int) -> None:
        """Recover the state from the stored events, and start training. The lease is renewed meanwhile."""
        recovered = threading.Event()
        renewing = threading.Thread(target=self._renew_until, args=[recovered], name="renewal", daemon=True)
        renewing.start()
        try:
            self._learner = self._open(epoch)
        finally:
            recovered.set()
            renewing.join()
        self.training = TrainingThread(self._learner, self._log_every)
        self.on_change(self.training)
        self.training.start()
        log_event(logger, "elected", f"This process is the learner now (epoch {epoch}).", epoch=epoch)

    def _renew_until(self, recovered: threading.Event) -> None:
        while not recovered.wait(RENEW_SECONDS):
            try:
                self._election.renew()
            except TownletError as error:
                logger.warning("the lease could not be renewed: %s", error)

    def _give_up(self) -> None:
        self._election.resign()
        training, self.training = self.training, None
        if training is not None:
            training.stop()
            self.on_change(None)
        if self._learner is not None:
            self._learner.close()
            self._learner = None
