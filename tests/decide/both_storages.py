"""A service with its learner in this process, in a folder or in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from decide.ads_service import QUICK
from townlet.decide.clock import ManualClock
from townlet.decide.domains import DOMAINS
from townlet.decide.join import DecisionCounts
from townlet.decide.recovery import ReplayedVersion
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.protocol import LearnerStorage
from townlet.decide.storage.stored_service import is_url, open_stored, replay_stored
from townlet.decide.training_thread import TrainingThread


@dataclass
class Opened:
    """A service with its learner, in this process."""

    service: Service
    learner: LearnerStorage
    training: TrainingThread
    clock: ManualClock
    close: Callable[[], None]
    where: str | Path  # the folder, or the URL of the database

    def replayed(self) -> Iterator[ReplayedVersion]:
        """All versions, trained again from the stored events."""
        with closing(open_stored(self.where)) as stored:
            yield from replay_stored(stored)

    def counts(self) -> DecisionCounts:
        """The counts of the storage, which must be those of the learner's state."""
        self.learner.catch_up()
        found = self.service.storage.counts()
        assert found.balanced
        learned = self.learner.state.join.counts
        for name in ("decisions", "joined", "expired", "pending", "waited", "failed"):
            assert getattr(found, name) == getattr(learned, name), name
        return found

    def maintain(self) -> None:
        """What is done once per second."""
        self.service.storage.maintain()
        self.learner.catch_up()


class Opener(Protocol):
    def __call__(
        self, words: Sequence[str] = (), domain: str = "bandit-ads", clock: ManualClock | None = None
    ) -> Opened: ...


def open_file(folder: Path, domain: Any, settings: Any, clock: ManualClock) -> Opened:
    storage = FileStorage(folder, domain, settings, clock)
    return Opened(Service(storage), storage, TrainingThread(storage), clock, storage.close, folder)


def open_postgres(url: str, domain: Any, settings: Any, clock: ManualClock) -> Opened:
    from townlet.decide.storage.postgres.decisions import PostgresStorage
    from townlet.decide.storage.postgres.leadership import Election
    from townlet.decide.storage.postgres.learner import PostgresLearner

    storage = PostgresStorage(url, domain, settings, clock)
    election = Election(url, storage.process)
    epoch = election.stand()
    assert epoch is not None
    learner = PostgresLearner(url, domain, settings, clock, epoch)

    def close() -> None:
        election.resign()
        learner.close()
        storage.close()

    return Opened(Service(storage), learner, TrainingThread(learner), clock, close, url)


def visit(opened: Opened, visits: int, sites: int = 2) -> None:
    """Play, with a training step after every second visit and a version after every tenth."""
    games = [opened.service.domain.make_game(seed, f"site {seed}", 0) for seed in range(sites)]
    for number in range(visits):
        answers = opened.service.answer([game.observe() for game in games])
        for game, answer in zip(games, answers, strict=True):
            for report in game.apply(answer.reply) + game.advance():
                opened.service.report(report)
        opened.clock.now += 1
        opened.maintain()
        if number % 2:
            opened.training.step()
        if number % 10 == 9:
            opened.training.publish()
            opened.service.versions.refresh()


def open_at(where: str | Path, words: Sequence[str] = (), domain: str = "bandit-ads", clock: Any = None) -> Opened:
    """Open the service in this folder or database, and serve a first version."""
    arguments = DOMAINS[domain], load_settings(domain, [*QUICK, *words], DOMAINS), clock or ManualClock()
    one = open_postgres(str(where), *arguments) if is_url(where) else open_file(Path(where), *arguments)
    if one.service.versions.serving is None:
        one.training.publish()
        one.service.versions.refresh()
    return one


def replay_folder(folder: Path) -> Iterator[ReplayedVersion]:
    """All versions of the service in a folder, trained again from its log."""
    yield from replay_stored(open_stored(folder))
