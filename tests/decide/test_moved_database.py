"""A database that was restored from a backup, taken over by a standby that lags, or moved with a dump."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from decide.ads_service import QUICK, ask, click, request
from decide.both_storages import open_at, visit
from decide.postgres_cluster import Cluster, find_binaries, running_cluster
from decide.test_shared_database import check_replay
from townlet.decide.clock import ManualClock
from townlet.decide.domains import DOMAINS
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.stored_service import open_stored

psycopg = pytest.importorskip("psycopg")


def decider(url: str, clock: ManualClock) -> Service:
    from townlet.decide.storage.postgres.decisions import PostgresStorage

    return Service(PostgresStorage(url, DOMAINS["bandit-ads"], load_settings("bandit-ads", QUICK, DOMAINS), clock))


def number(id: str) -> int:
    return int(id.split("-")[1])


def test_ids_of_decisions_that_a_restored_backup_lacks_are_not_used_again(cluster_folder: Path) -> None:
    """The same process continues, as after a failover to a standby that lags, and another one starts."""
    clock = ManualClock()
    with running_cluster(cluster_folder / "original", "fsync = off") as original:
        backup = Cluster(cluster_folder / "backup")
        url = original.make_database("ads")
        hosts = f"127.0.0.1:{original.port},127.0.0.1:{backup.port}"
        running = decider(url.replace(f"127.0.0.1:{original.port}", hosts), clock)
        kept = [ask(running, request(float(n), "kept"))[0]["decisionId"] for n in range(4)]
        backup.folder.mkdir(mode=0o700)
        shutil.chown(backup.folder, original.folder.owner())
        source = original.url
        original.run("pg_basebackup", "-D", str(backup.folder), "-c", "fast", "--no-sync", "-d", source)
        lost = [ask(running, request(float(n), "lost"))[0]["decisionId"] for n in range(6)]
    backup.start().wait()
    try:
        started = decider(backup.url.removesuffix("postgres") + "ads", clock)
        services = (running, started)
        made = [ask(services[n % 2], request(float(n), "made"))[0]["decisionId"] for n in range(60)]
        again = set(map(number, made)) & set(map(number, lost))
        assert again
        assert not set(made) & set(lost)
        for service in services:
            for id in lost:
                assert service.report(click(id)).reply["code"] == "UNKNOWN_DECISION"
            for id in (*kept, *made):
                assert service.report(click(id)).reply["type"] == "outcome_ack"
        counts = started.storage.counts()
        assert (counts.joined, counts.duplicates, counts.contradicting) == (64, 64, 0)
        for service in services:
            service.close()
        with closing(open_stored(backup.url.removesuffix("postgres") + "ads")) as stored:
            assert stored.verify().intact
    finally:
        backup.stop()


def test_a_database_that_was_moved_with_a_dump_continues(cluster: Cluster, cluster_folder: Path) -> None:
    """The new server numbers its transactions from the beginning."""
    source = cluster.make_database(f"moved_{secrets.token_hex(4)}")
    with psycopg.connect(source, autocommit=True) as connection:  # so that the numbers here are higher
        connection.execute("DO 'BEGIN FOR n IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END'")
    one = open_at(source)
    visit(one, 20)
    (pending,) = ask(one.service, request(1e6, "late"))
    one.learner.save_snapshot()
    counts, clock = one.counts(), one.clock
    one.close()
    binaries = find_binaries()
    assert binaries is not None
    with running_cluster(cluster_folder / "moved", "fsync = off") as target:
        url = target.make_database("ads")
        dumped = subprocess.run([binaries / "pg_dump", source], check=True, capture_output=True).stdout
        subprocess.run([binaries / "psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=dumped, check=True)
        assert check_replay(url) == 3
        again = open_at(url, clock=ManualClock(clock.now))
        assert again.counts() == counts
        for id in (pending["decisionId"], ask(again.service, request(1.0, "new"))[0]["decisionId"]):
            assert again.service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
        visit(again, 10, sites=0)
        assert again.counts().joined == counts.joined + 2
        again.close()
        assert check_replay(url) == 4
