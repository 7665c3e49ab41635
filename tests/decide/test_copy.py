"""`decide copy`: a service moves between folders and databases without loss, or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import warm
from cli.program import Program, program
from decide.ads_service import ask, click, request
from decide.both_storages import Opened, open_at, visit
from decide.postgres_cluster import Cluster
from decide.service_process import environment
from townlet.decide.clock import ManualClock
from townlet.decide.service import Service
from townlet.decide.storage.segments import list_segments
from townlet.decide.storage.stored_service import open_stored

psycopg = pytest.importorskip("psycopg")
STORAGES = ("file", "postgres")


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    return program(capsys, monkeypatch, "decide")


def place(storage: str, name: str, cluster: Cluster, tmp_path: Path) -> str:
    """An empty folder or database."""
    return str(tmp_path / name) if storage == "file" else cluster.make_database(f"{tmp_path.name}_{name}")


@pytest.fixture(params=[(one, other) for one in STORAGES for other in STORAGES], ids="-".join)
def places(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> tuple[str, str]:
    """Where the service is, and where it is copied to."""
    return place(request.param[0], "from", cluster, tmp_path), place(request.param[1], "to", cluster, tmp_path)


def played(where: str) -> Opened:
    """A service with versions, a snapshot, joined and pending decisions."""
    one = open_at(where)
    visit(one, 20)
    one.learner.save_snapshot()
    visit_again(one, 10)
    return one


def visit_again(one: Opened, times: int) -> None:
    """More decisions, of which every second has an outcome."""
    for n in range(times):
        (reply,) = ask(one.service, request(1e6 + n, f"more {n % 3}"))
        if n % 2:
            one.service.report(click(reply["decisionId"]))
        one.clock.now += 0.1


def number(reply: dict[str, Any]) -> int:
    return int(reply["decisionId"].split("-")[1])


def test_a_copied_service_continues(places: tuple[str, str], townlet: Program) -> None:
    source, to = places
    one = played(source)
    (pending,) = ask(one.service, request(2e6, "late"))
    one.maintain()
    counts, serving, clock = one.counts(), one.service.versions.serving, one.clock
    assert serving is not None
    one.learner.await_durable()
    one.close()
    copied = townlet("copy", source, to)
    assert copied.code == 0, copied.err
    assert "3 versions, 1 snapshots" in copied.out
    check(townlet, to, versions=3)
    again = open_at(to, clock=ManualClock(clock.now))
    assert again.service.versions.serving is not None
    assert again.service.versions.serving.digest == serving.digest
    for name in ("decisions", "joined", "expired", "pending", "waited", "failed"):
        assert getattr(again.counts(), name) == getattr(counts, name), name
    assert ask(again.service, request(2e6, "late"))[0] == pending
    assert again.service.report(click(pending["decisionId"])).reply["type"] == "outcome_ack"
    assert again.counts().joined == counts.joined + 1
    assert number(ask(again.service, request(2e6, "next"))[0]) > number(pending)
    visit(again, 10, sites=0)
    again.learner.await_durable()
    again.close()
    check(townlet, to, versions=4)
    check(townlet, source, versions=3)


def check(townlet: Program, where: str, versions: int) -> None:
    """Everything is intact, and a replay gives equal versions."""
    option = "--storage" if "://" in where else "--folder"
    assert f"{versions} of {versions} versions are identical." in townlet("replay", option, where).out
    found = townlet("verify", *([option, where] if option == "--storage" else [where]))
    assert found.code == 0, found.out


def test_it_needs_a_stopped_service_and_an_empty_target(places: tuple[str, str], townlet: Program) -> None:
    source, to = places
    one = open_at(source)
    one.learner.await_durable()
    found = townlet("copy", source, to)
    assert found.code == 2
    assert ("is being served" if "://" in source else "another process is writing to this folder") in found.err
    one.close()
    assert townlet("copy", source, to).code == 0
    found = townlet("copy", source, to)
    assert found.code == 2
    assert ("holds a service already" if "://" in to else "is not empty") in found.err


@pytest.fixture(params=[("file", "postgres"), ("postgres", "file")], ids="-".join)
def locked(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> tuple[str, str, str]:
    """As `places`, and the one of the two that is a database."""
    source, to = (place(one, name, cluster, tmp_path) for one, name in zip(request.param, ("from", "to"), strict=True))
    return source, to, source if "://" in source else to


def test_a_copy_that_is_killed_can_be_repeated(locked: tuple[str, str, str], townlet: Program) -> None:
    """It is killed when the records are written, and the versions are not."""
    source, to, url = locked
    played(source).close()
    if url == to:
        from townlet.decide.storage.postgres.database import Database, migrate

        with closing(Database(url, "test")) as empty:
            migrate(empty)
    command = [sys.executable, "-m", "townlet", "decide", "copy", source, to]
    with psycopg.connect(url) as blocking:
        blocking.execute("LOCK TABLE version IN ACCESS EXCLUSIVE MODE")
        process = warm.Popen(command, stdout=subprocess.DEVNULL, env=environment())
        waiting = "SELECT 1 FROM pg_locks JOIN pg_class ON oid = relation WHERE relname = 'version' AND NOT granted"
        until = time.monotonic() + 60
        while blocking.execute(waiting).fetchone() is None:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    if url == to:
        assert "holds no decisions" in townlet("verify", "--storage", to).err
    else:
        assert not Path(to).exists()
    assert townlet("copy", source, to).code == 0
    check(townlet, to, versions=3)
    check(townlet, source, versions=3)


def test_a_damaged_folder_is_refused(tmp_path: Path, database: str, townlet: Program) -> None:
    source = tmp_path / "from"
    played(str(source)).close()
    (segment,) = list_segments(source / "log")
    data = bytearray(segment.path.read_bytes())
    data[len(data) // 2] ^= 1
    segment.path.write_bytes(data)
    found = townlet("copy", str(source), database)
    assert found.code == 2
    assert "is damaged at byte" in found.err
    assert townlet("verify", "--storage", database).code == 2


def test_decisions_keep_their_ids(tmp_path: Path, database: str, townlet: Program) -> None:
    """A folder has a key for each start; ids that were made with all of them are valid in the copy."""
    folder, replies = str(tmp_path / "from"), list[dict[str, Any]]()
    for start in range(3):
        one = open_at(folder)
        replies += ask(one.service, request(float(start), f"site {start}"))
        one.learner.await_durable()
        one.close()
    assert townlet("copy", folder, database).code == 0
    again = open_at(database)
    for reply in replies:
        assert again.service.report(click(reply["decisionId"])).reply["type"] == "outcome_ack"
    assert again.counts().joined == 3
    forged = f"{replies[0]['decisionId'][:8]}-3-{replies[2]['decisionId'][-16:]}"
    assert again.service.report(click(forged)).reply["code"] == "UNKNOWN_DECISION"
    again.close()
    with closing(open_stored(database)) as copied:
        assert copied.log_id == open_stored(folder).log_id


def test_ids_of_processes_that_decided_at_the_same_time_are_valid_in_a_copy(
    tmp_path: Path, database: str, townlet: Program
) -> None:
    from townlet.decide.storage.postgres.decisions import PostgresStorage

    one = open_at(database)
    other = Service(PostgresStorage(database, one.learner.domain, one.learner.settings, one.clock))
    ids = [ask(service, request(float(n)))[0]["decisionId"] for n in range(3) for service in (one.service, other)]
    assert len(set(ids)) == 3  # a repeated observation has one answer
    ids += [
        ask(service, request(n + 9.0, site))[0]["decisionId"]
        for n in range(3)
        for site, service in (("a", one.service), ("b", other))
    ]
    one.learner.save_snapshot()
    other.close()
    one.close()
    folder = tmp_path / "to"
    assert townlet("copy", database, str(folder)).code == 0
    again = open_at(folder)
    for id in ids:
        assert again.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
    again.close()


def test_an_evicted_territory_may_repeat_its_times(database: str) -> None:
    one = open_at(database, ["memory.territories=1"])
    first = ask(one.service, request(1.0, "a"))[0]
    ask(one.service, request(1.0, "b"))
    one.maintain()
    again = ask(one.service, request(1.0, "a"))[0]
    assert again["type"] == "ad_decision"
    assert again["decisionId"] != first["decisionId"]
    assert ask(one.service, request(1.0, "a"))[0] == again
    one.close()
