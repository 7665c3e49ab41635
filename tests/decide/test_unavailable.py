"""A database that cannot be used for a while: the message says so, and afterwards everything continues."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import warm
from decide.ads_service import ask, request
from decide.both_storages import Opener, open_at
from decide.postgres_cluster import Cluster
from decide.service_process import Process
from decide.service_process import environment as environment_with_tokens
from decide.test_shared_database import serving
from townlet.decide.storage.availability import Retry, StorageUnavailable
from townlet.errors import TownletError

psycopg = pytest.importorskip("psycopg")
SECRET = "s3cret"
DOCUMENTED = 10.0  # seconds for which a message waits
SERVE = ("serve", "bandit-ads", "--no-token", "--port", "0", "--storage")
WITHOUT_PSYCOPG = """
import sys
for name in [name for name in sys.modules if name.startswith(("psycopg", "townlet.decide.storage.postgres"))]:
    del sys.modules[name]
sys.modules["psycopg"] = None
from townlet.cli.app import main
main()
"""


def run(*words: str, program: Sequence[str] = ("-m", "townlet")) -> subprocess.CompletedProcess[str]:
    """`townlet decide` in another process."""
    command = [sys.executable, *program, "decide", *words]
    environment = environment_with_tokens() | {"COLUMNS": "200"}
    return warm.run(command, env=environment, capture_output=True, text=True, timeout=60)


def refused(*words: str, program: Sequence[str] = ("-m", "townlet")) -> str:
    """The message of a command that fails with one readable error."""
    done = run(*words, program=program)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


@contextmanager
def read_only(cluster: Cluster) -> Iterator[None]:
    """What managed databases do when their disk is full."""
    try:
        _alter(cluster, "ALTER SYSTEM SET default_transaction_read_only = on")
        yield
    finally:
        _alter(cluster, "ALTER SYSTEM RESET default_transaction_read_only")


def _alter(cluster: Cluster, sql: str) -> None:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(sql)
        connection.execute("SELECT pg_reload_conf()")


@contextmanager
def locked(url: str, *tables: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        yield


def send(process: Process, second: float, site: str) -> dict[str, Any]:
    with connect(process.url, proxy=None) as socket:
        socket.send(json.dumps(request(second, site)))
        reply: dict[str, Any] = json.loads(socket.recv(60))
        return reply


def health(process: Process) -> tuple[int, str]:
    try:
        return 200, process.get("/health")["problem"] or ""
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["problem"]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while True:
        with suppress(urllib.error.HTTPError):
            if condition():
                return
        assert time.monotonic() < limit
        time.sleep(0.1)


def version(process: Process) -> int:
    return int(process.get("/api/decide/stats")["service"]["version"])


def play(process: Process, sites: list[str], second: float) -> None:
    """Decisions and outcomes, from which versions are trained."""
    with connect(process.url, proxy=None) as socket:
        for site in sites:
            socket.send(json.dumps(request(second, site)))
            reply = json.loads(socket.recv(60))
            assert reply["type"] in ("ad_decision", "no_ad"), reply
            if reply["type"] == "ad_decision":
                report = {"type": "click_report", "decisionId": reply["decisionId"], "clicked": True}
                socket.send(json.dumps(report))
                assert json.loads(socket.recv(60))["type"] == "outcome_ack"


def check_that_everything_continues(decider: Process, others: list[Process]) -> None:
    """New versions serve, the kill switch reaches every process, and all say that they are well."""
    sites = [f"site {n}" for n in range(40)]
    before = version(decider)
    play(decider, sites, time.time())
    until(lambda: version(decider) > before + 1)
    decider.post("/api/decide/gate-only", on=True, reason="test")
    processes = [decider, *others]
    until(lambda: all(one.get("/api/decide/stats")["service"]["gate_only"] for one in processes), 10)
    until(lambda: all(health(one) == (200, "") for one in processes), 20)
    decider.post("/api/decide/gate-only", on=False, reason="test")


def test_a_database_that_is_read_only_for_a_moment_breaks_nothing(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    with serving(database, tmp_path, ["all"]) as (process,):
        play(process, [f"site {n}" for n in range(40)], 1.0)
        with read_only(cluster):
            answers: list[dict[str, Any]] = []
            waiting = threading.Thread(target=lambda: answers.append(send(process, 2.0, "site 1")))
            waiting.start()
            until(lambda: "read-only" in health(process)[1])
            time.sleep(1)  # the leader renews its lease in this time
        waiting.join(30)
        assert answers[0]["type"] in ("ad_decision", "no_ad")  # the message waited
        check_that_everything_continues(process, [])


@pytest.mark.long(minutes=2)
def test_after_three_seconds_of_a_read_only_database_a_standby_still_takes_over(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    with serving(database, tmp_path, ["decide", "decide", "learn", "learn"]) as processes:
        first, second, *learners = processes
        play(first, [f"site {n}" for n in range(40)], 1.0)
        with read_only(cluster):
            time.sleep(3)
        check_that_everything_continues(first, [second, *learners])
        until(lambda: sum(one.get("/api/decide/stats")["service"]["learns"] for one in learners) == 1)
        leader, standby = sorted(learners, key=lambda one: not one.get("/api/decide/stats")["service"]["learns"])
        leader.end()
        until(lambda: standby.get("/api/decide/stats")["service"]["learns"], 30)
        check_that_everything_continues(second, [first, standby])


@pytest.mark.long(minutes=1)
def test_while_tables_are_locked_messages_wait_for_ten_seconds_and_health_says_why(
    database: str, tmp_path: Path
) -> None:
    with serving(database, tmp_path, ["all"]) as (process,):
        until(lambda: version(process))
        before = version(process)
        with locked(database, "decision", "serving_change"):
            replies: list[tuple[float, dict[str, Any]]] = []
            refusals: list[str] = []

            def wait_for_reply(number: int) -> None:
                time.sleep(number / 2)  # the later ones are queued behind the batches that wait for the lock
                sent = time.monotonic()
                reply = send(process, 1.0 + number, f"site {number % 3}")
                replies.append((time.monotonic() - sent, reply))

            def throw_the_switch() -> None:
                try:
                    process.post("/api/decide/gate-only", on=True, reason="test")
                except urllib.error.HTTPError as error:
                    refusals.append(json.loads(error.read())["what"])

            threads = [threading.Thread(target=wait_for_reply, args=[n]) for n in range(8)]
            threads.append(threading.Thread(target=throw_the_switch))
            for thread in threads:
                thread.start()
            until(lambda: health(process)[0] == 503, 8)
            until(lambda: "outdated" in {one["name"] for one in process.get("/api/decide/stats")["alarms"]}, 15)
            for thread in threads:
                thread.join(60)
            assert {reply["code"] for _, reply in replies} == {"STORAGE_UNAVAILABLE"}
            assert max(seconds for seconds, _ in replies) < DOCUMENTED + 1.0, sorted(replies)
            assert re.match(rf"NOT done, version {before} serves: .*lock timeout", refusals[0])
            assert version(process) == before
        until(lambda: health(process) == (200, ""), 20)
        check_that_everything_continues(process, [])


def test_attempts_end_in_time() -> None:
    retry, begun = Retry(), time.monotonic()

    def attempt() -> None:
        time.sleep(0.2)
        raise StorageUnavailable("locked")

    for _ in range(2):  # the second one is queued behind the first one, and is not even tried
        with pytest.raises(StorageUnavailable, match="locked"):
            retry(attempt, begun + 0.75)
    assert 0.2 < time.monotonic() - begun < 0.75
    assert retry(lambda: "stored") == "stored"


def test_the_change_of_an_operator_wins_against_a_learner_that_promotes(open_service: Opener) -> None:
    one = open_service()
    operator, learner = one.service.versions, one.learner.versions
    for _ in range(3):
        one.training.publish()
    stop, errors, promoted = threading.Event(), list[TownletError](), 0

    def promote() -> None:
        nonlocal promoted
        while not stop.is_set():
            try:
                learner.promote(1 + promoted % 3, "better")
                learner.note(1, "hold: worse")
            except TownletError as error:
                errors.append(error)
            promoted += 1

    thread = threading.Thread(target=promote)
    thread.start()
    try:
        for number in range(20):
            operator.set_gate_only(number % 2 == 0, f"change {number}")
            assert operator.gate_only == (number % 2 == 0)
        operator.pin(2, "the best one")
        seen = promoted
        while promoted < seen + 3:
            time.sleep(0.01)
        operator.set_gate_only(True, "stop it")
    finally:
        stop.set()
        thread.join()
    assert not errors
    for versions in (operator, learner):
        versions.refresh()
        assert (versions.gate_only, versions.pinned, versions.serving and versions.serving.version) == (True, 2, 2)
    one.close()
    again = open_service(clock=one.clock)
    assert (again.service.versions.gate_only, again.service.versions.pinned) == (True, 2)


def test_a_change_that_cannot_be_stored_is_not_done(
    cluster: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("townlet.decide.storage.availability.RETRY_SECONDS", 0.3)
    one = open_at(database)
    versions = one.service.versions
    one.training.publish()
    versions.pin(2, "to look at it")
    with read_only(cluster):
        for change in (partial(versions.set_gate_only, True), partial(versions.pin, 1), versions.roll_back):
            with pytest.raises(TownletError, match=r"NOT done, version 2 serves: .*read-only"):
                change("stop it")
    assert versions.serving is not None
    assert (versions.serving.version, versions.gate_only) == (2, False)
    versions.set_gate_only(True, "stop it")
    assert ask(one.service, request(1.0))[0]["modelVersion"] == 0
    one.close()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:#{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:x/{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:1/{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:?{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:x@{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:%{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:{SECRET}@127.0.0.1:1/db?options=%zz",
        f"postgresql://user:{SECRET}@[::1:1/db",
        f"postgresql://127.0.0.1:1/db?user=user&password={SECRET}",
        f"postgresql:/user:{SECRET}@127.0.0.1:1/db",
        f"mysql://user:{SECRET}@127.0.0.1:1/db",
        f"user:{SECRET}@127.0.0.1:1/db",
    ],
)
def test_no_message_contains_the_password_of_the_database(url: str) -> None:
    for words in (("versions", "--storage"), SERVE, ("serve", "--log-format", "json", *SERVE[1:])):
        message = refused(*words, url)
        assert SECRET not in message
        assert "cannot be used" in message or "is not a URL of PostgreSQL" in message


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("CREATE TABLE event (name text)", 'other tables than those of a service: relation "event" already exists'),
        ("CREATE TABLE migration (at text)", 'other tables than those of a service: column "number" does not exist'),
    ],
)
def test_tables_of_another_program_are_one_clear_error(database: str, prepare: str, message: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(prepare)
    assert message in refused(*SERVE, database)


def test_a_role_without_privileges_is_one_clear_error(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS nobody_special")
        connection.execute("CREATE ROLE nobody_special LOGIN")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    message = refused(*SERVE, database.replace("postgres@", "nobody_special@"))
    assert "cannot be used: permission denied for schema public" in message
    assert "the privileges of its user" in message


@pytest.mark.parametrize("words", [SERVE, ("versions", "--storage")])
def test_missing_extra_is_one_line(words: tuple[str, ...]) -> None:
    message = refused(*words, "postgresql://townlet@db/townlet", program=("-c", WITHOUT_PSYCOPG))
    assert message.endswith("needs psycopg fix: pip install 'townlet[postgres]'")
