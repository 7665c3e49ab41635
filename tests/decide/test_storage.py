"""One suite for both storages: the same promises, whatever keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from decide.ads_service import QUICK, Clock, ask, click, request
from townlet.decide import events
from townlet.decide.domains import DOMAINS
from townlet.decide.join import DecisionCounts
from townlet.decide.recovery import ReplayedVersion, replay, replay_folder
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.protocol import LearnerStorage
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError


@dataclass
class Opened:
    """A service with its learner, in this process."""

    service: Service
    learner: LearnerStorage
    training: TrainingThread
    clock: Clock
    close: Callable[[], None]
    replayed: Callable[[], Iterator[ReplayedVersion]]

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
    def __call__(self, words: Sequence[str] = (), domain: str = "bandit-ads", clock: Clock | None = None) -> Opened: ...


@pytest.fixture(params=["file", "postgres"])
def open_service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens a service; opening it again continues it, after `close`."""
    url = request.getfixturevalue("database") if request.param == "postgres" else ""
    opened: list[Opened] = []

    def open_again(words: Sequence[str] = (), domain: str = "bandit-ads", clock: Clock | None = None) -> Opened:
        settings, clock = load_settings(domain, [*QUICK, *words], DOMAINS), clock or Clock()
        arguments = DOMAINS[domain], settings, clock
        one = open_postgres(url, *arguments) if url else open_file(tmp_path / "service", *arguments)
        if one.service.versions.serving is None:
            one.training.publish()
            one.service.versions.refresh()
        opened.append(one)
        return one

    yield open_again
    for one in opened:
        one.close()


def open_file(folder: Path, domain: Any, settings: Any, clock: Clock) -> Opened:
    storage = FileStorage(folder, domain, settings, clock)
    return Opened(
        Service(storage), storage, TrainingThread(storage), clock, storage.close, lambda: replay_folder(folder)
    )


def open_postgres(url: str, domain: Any, settings: Any, clock: Clock) -> Opened:
    from townlet.decide.storage.postgres.database import Database
    from townlet.decide.storage.postgres.decisions import PostgresStorage
    from townlet.decide.storage.postgres.event_table import EventTable
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

    def replayed() -> Iterator[ReplayedVersion]:
        database = Database(url, "replay")
        yield from replay(EventTable(database), lambda version: learner.versions.open(version)[1])
        database.close()

    return Opened(Service(storage), learner, TrainingThread(learner), clock, close, replayed)


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


def test_repeated_and_stale_observations(open_service: Opener) -> None:
    one = open_service()
    first, again = ask(one.service, request(1.0))[0], ask(one.service, request(1.0))[0]
    assert first == again
    both = ask(one.service, request(2.0), request(2.0), request(3.0))
    assert both[0] == both[1] != first
    assert both[2]["decisionId"] not in (both[0]["decisionId"], first["decisionId"])
    assert ask(one.service, request(1.0))[0] == first
    assert ask(one.service, request(1.5))[0]["code"] == "STALE_OBSERVATION"
    assert one.counts().decisions == 3


def test_reports_count_once(open_service: Opener) -> None:
    one = open_service()
    id = ask(one.service, request(1.0))[0]["decisionId"]
    for _ in range(3):
        assert one.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    assert one.service.report(click(id, clicked=False)).reply["code"] == "CONTRADICTING_REPORT"
    assert one.service.report(click(f"{id[:-1]}g")).reply["code"] == "UNKNOWN_DECISION"
    counts = one.counts()
    assert (counts.decisions, counts.joined, counts.duplicates, counts.contradicting) == (1, 1, 2, 1)
    assert one.learner.state.totals.completed == 1


@pytest.mark.parametrize("outcome", ["null", "0"])
def test_decisions_expire(open_service: Opener, outcome: str) -> None:
    one = open_service([f"memory.expired_outcome={outcome}"])
    id = ask(one.service, request(1.0))[0]["decisionId"]
    one.clock.now += 19
    one.maintain()
    assert one.counts().pending == 1
    one.clock.now += 2
    one.maintain()
    assert one.service.report(click(id)).reply["type"] == "outcome_ack"
    counts = one.counts()
    assert (counts.expired, counts.joined, counts.late) == (1, 0, 1)
    state = one.learner.state
    assert len(state.buffer) + len(state.held_out) == (outcome == "0")


def test_pending_decisions_and_territories_are_limited(open_service: Opener) -> None:
    one = open_service(["memory.pending=3", "memory.territories=4"])
    for n in range(6):
        ask(one.service, request(float(n), f"site {n}"))
    one.maintain()
    counts = one.counts()
    assert (counts.expired, counts.pending) == (3, 3)
    assert sorted(one.learner.state.territories) == [f"site {n}" for n in range(2, 6)]
    assert ask(one.service, request(0.5, "site 0"))[0]["type"] == "ad_decision"  # evicted, so it begins as a new one


def test_territories_belong_to_their_client(open_service: Opener) -> None:
    one = open_service()
    owner, other = "a" * 12 + "." + "b" * 12, "a" * 12 + "." + "c" * 12
    with one.service.clients.connect("game", "one"):
        (mine,) = one.service.answer([request(1.0)], clients=[owner])
        (theirs,) = one.service.answer([request(2.0)], clients=[other])
    assert (mine.reply["type"], theirs.reply["code"]) == ("ad_decision", "FOREIGN_TERRITORY")
    assert one.service.report(click(mine.reply["decisionId"]), other).reply["code"] == "FOREIGN_DECISION"
    assert one.service.report(click(mine.reply["decisionId"]), owner).reply["type"] == "outcome_ack"


def test_outcomes_follow_from_the_next_observation(open_service: Opener) -> None:
    one = open_service(domain="hive")
    game = one.service.domain.make_game(3, "north", 0)
    sent = 0
    for _ in range(40):
        (answer,) = one.service.answer([game.observe()])
        sent += answer.reply["type"] == "spawn_decision"
        for report in game.apply(answer.reply) + game.advance():
            one.service.report(report)
        one.clock.now += 1
    counts = one.counts()
    assert sent > 3
    assert counts.joined + counts.failed + counts.pending == sent
    assert counts.pending <= 1


def test_a_failed_decision_is_undone_in_its_territory(open_service: Opener) -> None:
    one = open_service(domain="hive")
    game = one.service.domain.make_game(3, "north", 0)
    reply: dict[str, Any] = {}
    while reply.get("type") != "spawn_decision":
        game.advance()
        (answer,) = one.service.answer([game.observe()])
        reply = answer.reply
    failed = {"type": "spawn_result", "decisionId": reply["decisionId"], "success": False, "reason": "no path"}
    with one.service.storage.batch(["north"]) as batch:
        before = {name: column.copy() for name, column in batch.state("north").items()}
    assert one.service.report(failed).reply["type"] == "outcome_ack"
    with one.service.storage.batch(["north"]) as batch:
        after = batch.state("north")
    assert any((before[name] != after[name]).any() for name in after)
    assert one.counts().failed == 1
    learned = one.learner.state.territory("north").state
    assert all((learned[name] == after[name]).all() for name in after)


def test_it_continues_after_a_restart_and_its_replay_gives_equal_weights(open_service: Opener) -> None:
    one = open_service(["promotion.min_count=10"])
    visit(one, 40)
    one.learner.save_snapshot()
    counts, weights = one.counts(), one.learner.trainer.weights()
    serving, id = one.service.versions.serving, ask(one.service, request(1e6, "late"))[0]["decisionId"]
    before = {name: weight.clone() for name, weight in weights.items()}
    one.close()
    again = open_service(["promotion.min_count=10"], clock=one.clock)
    assert again.counts().decisions == counts.decisions + 1
    assert all((again.learner.trainer.weights()[name] == weight).all() for name, weight in before.items())
    assert serving is not None
    assert again.service.versions.serving is not None
    assert again.service.versions.serving.digest == serving.digest
    assert again.service.report(click(id)).reply["type"] == "outcome_ack"
    again.training.step()
    again.training.publish()
    again.learner.catch_up()
    versions = list(again.replayed())
    assert len(versions) == len(again.learner.versions.list_versions())
    assert all(version.same for version in versions)


def test_an_operator_pins_rolls_back_and_turns_the_network_off(open_service: Opener) -> None:
    one = open_service()
    visit(one, 20)
    versions = one.service.versions
    newest = versions.list_versions()[-1]
    versions.pin(1, "looks best")
    assert versions.serving is not None
    assert (versions.serving.version, versions.pinned) == (1, 1)
    one.learner.versions.refresh()
    assert not one.learner.versions.promote(newest, "better").applied
    versions.refresh()
    versions.unpin()
    versions.set_gate_only(True, "strange decisions")
    assert ask(one.service, request(1e6, "new"))[0]["modelVersion"] == 0
    one.close()
    again = open_service(clock=one.clock)
    assert again.service.versions.gate_only
    assert again.service.versions.serving is not None
    assert again.service.versions.serving.version == 1


@pytest.mark.parametrize(
    ("domain", "words", "message"),
    [
        ("hive", (), "holds decisions for bandit-ads, not for hive"),
        ("bandit-ads", ("seed=3",), "seed is 3, but this .* was created with 0"),
    ],
)
def test_incompatible_settings_are_refused(
    open_service: Opener, domain: str, words: tuple[str, ...], message: str
) -> None:
    one = open_service()
    ask(one.service, request(1.0))
    one.close()
    with pytest.raises(TownletError, match=message):
        open_service(words, domain)
    assert open_service().counts().decisions == 1


def test_new_settings_are_adopted(open_service: Opener) -> None:
    one = open_service()
    visit(one, 6)
    one.close()
    again = open_service(["learning.lr=0.005"], clock=one.clock)
    assert again.learner.state.settings.learning.lr == 0.005
    again.learner.await_durable()
    recent = list(again.learner.recent_events(10_000))
    assert sum(isinstance(event, events.ServiceStarted) for event in recent) == 2
