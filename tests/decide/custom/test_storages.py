"""A domain of a user in both storages, and in several processes that share a database."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from decide.ads_service import ask
from decide.both_storages import Opener
from decide.custom.conftest import Write
from decide.custom.test_serving import FROM_NEXT, observed, outcome
from decide.service_process import Process
from decide.test_commands import Captured
from townlet.decide.domains import DOMAINS
from townlet.decide.recovery import replay
from townlet.decide.simulate import simulate

START = 60.0


def test_outcomes_are_learned_and_replayed(write: Write, open_service: Opener) -> None:
    file = write()
    opened = open_service(["memory.held_out=0.2"], file)
    for number in range(1, 61):
        (answer,) = ask(opened.service, observed(number, stones=number % 3))
        assert opened.service.report(outcome(answer["decisionId"], number % 20)).reply["type"] == "outcome_ack"
        if number % 20 == 0:
            opened.training.train_round()
    assert opened.counts().joined == 60
    opened.close()
    replayed = list(open_service(["memory.held_out=0.2"], file).replayed())
    assert len(replayed) >= 3
    assert all(version.same for version in replayed)


def test_a_reward_that_fails_leaves_the_outcome_unknown(write: Write, open_service: Opener) -> None:
    opened = open_service((), write(*FROM_NEXT))
    answers = [ask(opened.service, observed(time, distance=distance))[0] for time, distance in ((1, 4), (2, 7), (3, 4))]
    assert [answer["type"] for answer in answers] == ["decision"] * 3
    counts = opened.counts()  # the reward of the second decision divides by 0
    assert (counts.joined, counts.expired, counts.pending) == (1, 1, 1)
    late = opened.service.report({"type": "not_executed", "decisionId": answers[1]["decisionId"]})
    assert late.reply["type"] == "outcome_ack"
    assert opened.counts().failed == 0
    ask(opened.service, observed(4))
    assert opened.counts().joined == 2


@pytest.mark.parametrize("text", ["\0", "\ud800", "\u2028", "😀" * 1000, "'; DROP TABLE event; --"])
def test_any_text_is_stored_or_refused(write: Write, open_service: Opener, text: str) -> None:
    file = write()
    opened = open_service((), file)
    (answer,) = ask(opened.service, observed(1, hero=text))
    assert answer["type"] == "decision" or answer["code"] == "INVALID_OBSERVATION"
    made = opened.counts().decisions
    assert made == (answer["type"] == "decision")
    opened.close()
    assert open_service((), file).counts().decisions == made


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_several_processes_serve_one_domain(write: Write, database: str, tmp_path: Path, processes: ExitStack) -> None:
    file = write()
    words = ("--allow-code", "learning.interval=0.05", "versions=50", "--storage", database, "--role")
    running = [Process(tmp_path / str(n), file, *words, role) for n, role in enumerate(("decide", "decide", "learn"))]
    for process in running:
        process.start()
        processes.callback(process.end, signal.SIGTERM)
    first, second, _ = (process.wait() for process in running)
    for process in (first, second):
        games = [DOMAINS[file].make_game(seed, f"{process.port}.{seed}", 0) for seed in range(2)]
        played = asyncio.run(simulate(process.url, games, 60))
        assert (played.refused, played.reports) == (0, 120)
    wait_until(lambda: first.get("/api/decide/stats")["service"]["version"] >= 2)
    wait_until(lambda: second.get("/api/decide/stats")["buffer"]["joined"] == 240)
    changed = write('observation["stones"],', 'observation["stones"] / 3,')
    refused = Captured(tmp_path / "changed", changed, *words, "decide").start()
    refused.until("the code of my-game is not the one with which these decisions were made")
    assert refused.process is not None
    assert refused.process.wait(30) == 2
    processes.close()
    replay_is_identical(database)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + START
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def replay_is_identical(url: str) -> None:
    from townlet.decide.storage.postgres.database import Database
    from townlet.decide.storage.postgres.event_table import EventTable
    from townlet.decide.storage.postgres.versions import VersionTable

    opened = Database(url, "replay")
    archive = VersionTable(opened)
    replayed = list(replay(EventTable(opened), lambda version: archive.load(version)[0]["trainer"]))
    opened.close()
    assert len(replayed) >= 2
    assert all(version.same for version in replayed)
