"""Several processes and a database, any of which may be killed: nothing acknowledged is lost or counted twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from decide.postgres_cluster import Cluster
from decide.service_process import Process
from decide.test_kill import Acknowledged, play
from townlet.decide import events
from townlet.decide.clock import ServiceClock
from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load_settings
from townlet.decide.storage.stored_service import open_stored, replay_stored

psycopg = pytest.importorskip("psycopg")
WORDS = ("learning.interval=0.05", "learning.samples_per_insert=100", "versions=50")


@contextmanager
def serving(url: str, folder: Path, roles: list[str]) -> Iterator[list[Process]]:
    """One process for each role; the folders hold only tokens."""
    words = (*WORDS, "--storage", url)
    processes = [Process(folder / f"{n}", "bandit-ads", *words, "--role", role) for n, role in enumerate(roles)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait()
        yield processes
    finally:
        for process in processes:
            with suppress(AssertionError):
                process.end()


def read_table(url: str) -> list[events.Event]:
    from townlet.decide.storage.postgres.database import Database
    from townlet.decide.storage.postgres.event_table import EventTable

    with closing(Database(url, "test")) as opened:
        return list(EventTable(opened).events())


def statuses(url: str) -> Counter[int]:
    with psycopg.connect(url) as connection:
        return Counter(dict(connection.execute("SELECT status, count(*) FROM decision GROUP BY status").fetchall()))


def check(url: str, acknowledged: Acknowledged) -> None:
    """Everything acknowledged is stored once, and the events give the same counts as the tables."""
    found = read_table(url)
    made = [event for event in found if isinstance(event, events.DecisionMade)]
    decided = {event.reply["decisionId"]: event for event in made}
    assert len(decided) == len(made) == len({event.number for event in made})
    for id, reply in acknowledged.decided.items():
        assert decided[id].reply == reply
    outcomes = Counter(event.number for event in found if isinstance(event, events.OutcomeRecorded))
    assert all(decided[id].number in outcomes for id in acknowledged.reported)
    assert not outcomes or outcomes.most_common(1)[0][1] == 1
    expired = [n for event in found if isinstance(event, events.DecisionsExpired) for n in event.numbers]
    by_status = statuses(url)
    assert by_status.total() == len(made)
    assert by_status[2] + by_status[3] == len(outcomes)
    assert by_status[4] == len(expired) == len(set(expired) - outcomes.keys())
    assert by_status[1] == sum(not event.send for event in made)


def check_replay(url: str) -> int:
    """Training again from the events gives every version bit for bit; returns how many there are."""
    with closing(open_stored(url)) as stored:
        report = stored.verify()
        replayed = list(replay_stored(stored))
    assert report.intact, report
    assert all(version.same for version in replayed)
    return len(replayed)


def epochs_overlap(url: str) -> list[tuple[int, int]]:
    """Learners' events whose place is before one that an earlier leader had already applied."""
    with psycopg.connect(url) as connection:
        sql = "SELECT after_transaction, after_id FROM event WHERE after_id IS NOT NULL ORDER BY id"
        places = connection.execute(sql).fetchall()
    return [place for place, before in zip(places[1:], places, strict=False) if place < before]


async def kill_at_random(
    processes: list[Process], cluster: Cluster, kills: int, acknowledged: Acknowledged, rng: random.Random
) -> list[str]:
    deciders = [process for process in processes if "learn" not in process.settings]
    players = [asyncio.create_task(play(deciders[n % len(deciders)].url, n, acknowledged)) for n in range(4)]
    killed = []
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.5, 1.5))
        victims: list[Process | Cluster] = [*processes, cluster]
        victim = rng.choice(victims)
        killed.append("database" if isinstance(victim, Cluster) else victim.settings[-1])
        if isinstance(victim, Cluster):
            await asyncio.to_thread(victim.restart_killed)
        else:
            await asyncio.to_thread(victim.end)
            victim.start()
            await asyncio.to_thread(victim.wait)
    await asyncio.sleep(2.0)
    acknowledged.over = True
    await asyncio.gather(*players)
    return killed


def kill_anything(cluster_folder: Path, tmp_path: Path, roles: list[str], kills: int, seed: int) -> None:
    cluster = Cluster(cluster_folder / f"killed-{seed}").create().start().wait()
    try:
        url, acknowledged = cluster.make_database("ads"), Acknowledged()
        with serving(url, tmp_path, roles) as processes:
            asyncio.run(kill_at_random(processes, cluster, kills, acknowledged, random.Random(seed)))
            time.sleep(1)
        check(url, acknowledged)
        assert len(acknowledged.decided) > 10 * kills
        assert epochs_overlap(url) == []
        assert check_replay(url) > 0
    finally:
        cluster.stop()


def test_kill_any_process_or_the_database(cluster_folder: Path, tmp_path: Path) -> None:
    kill_anything(cluster_folder, tmp_path, ["decide", "learn"], kills=3, seed=2)


@pytest.mark.long(minutes=25)
def test_kill_any_process_or_the_database_100_times(cluster_folder: Path, tmp_path: Path) -> None:
    kill_anything(cluster_folder, tmp_path, ["decide", "decide", "decide", "learn", "learn"], kills=100, seed=7)


def test_a_learner_that_was_paused_cannot_write(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease expires, a standby takes over, and whatever the former leader then tries to write is refused."""
    from townlet.decide.storage.postgres import leadership
    from townlet.decide.storage.postgres.decisions import PostgresStorage
    from townlet.decide.storage.postgres.leadership import Election
    from townlet.decide.storage.postgres.learner import PostgresLearner
    from townlet.decide.training_thread import TrainingThread
    from townlet.errors import TownletError

    monkeypatch.setattr(leadership, "END_EXPIRED", leadership.END_EXPIRED.replace("8.0 seconds", "0.5 seconds"))
    settings, domain = load_settings("bandit-ads", WORDS, DOMAINS), DOMAINS["bandit-ads"]
    storage = PostgresStorage(database, domain, settings, ServiceClock())
    first, second = Election(database, "first"), Election(database, "second")
    epoch = first.stand()
    assert epoch is not None
    assert second.stand() is None
    former = PostgresLearner(database, domain, settings, ServiceClock(), epoch)
    paused = TrainingThread(former)
    paused.publish()
    time.sleep(1)  # the first one does not renew: its process is paused
    until = time.monotonic() + 20
    while (following := second.stand()) is None:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert following > epoch
    before = len(read_table(database))
    with pytest.raises(TownletError, match="another process is the learner now"):
        paused.publish()
    assert not first.renew()
    assert len(read_table(database)) == before
    learner = PostgresLearner(database, domain, settings, ServiceClock(), following)
    TrainingThread(learner).publish()
    assert learner.versions.list_versions() == [1, 2]
    second.resign()
    for opened in (former, learner, storage):
        opened.close()


@pytest.mark.long(minutes=1)
def test_a_paused_learner_process_is_replaced(database: str, tmp_path: Path) -> None:
    with serving(database, tmp_path, ["decide", "learn", "learn"]) as processes:
        decider, learners = processes[0], processes[1:]

        def learns() -> list[int]:
            listed = decider.get("/api/decide/stats")["processes"]
            return [one["games"] for one in listed if one["learns"] and one["seen_seconds_ago"] < 3]

        until = time.monotonic() + 60
        while len(learns()) != 1:
            assert time.monotonic() < until
            time.sleep(0.2)
        leading = next(p for p in learners if p.get("/api/decide/stats")["training"]["running"])
        assert leading.process is not None
        os.kill(leading.process.pid, signal.SIGSTOP)
        other = next(p for p in learners if p is not leading)
        until = time.monotonic() + 60
        while not other.get("/api/decide/stats")["service"]["learns"]:
            assert time.monotonic() < until
            time.sleep(0.2)
        os.kill(leading.process.pid, signal.SIGCONT)
        time.sleep(3)
        assert not leading.get("/api/decide/stats")["service"]["learns"]
        assert epochs_overlap(database) == []


def test_processes_with_different_settings_are_reported_by_both(database: str) -> None:
    from townlet.decide.storage.postgres.decisions import PostgresStorage

    words: list[list[str]] = [[], ["explore=false", "gate.prior=0.2", "memory.expire_after=9"]]
    domain = DOMAINS["bandit-ads"]
    storages = [
        PostgresStorage(database, domain, load_settings("bandit-ads", each, DOMAINS), ServiceClock()) for each in words
    ]
    for storage in storages:
        storage.process_reports.start()
    until = time.monotonic() + 20
    here = "explore is False, here True, gate.prior is 0.2, here 0.1, memory.expire_after is 9.0, here 300.0"
    there = "explore is True, here False, gate.prior is 0.1, here 0.2, memory.expire_after is 300.0, here 9.0"
    first, second = storages
    for storage, other, differing in ((first, second, here), (second, first, there)):
        while not (found := [notice.what for notice in storage.notices if notice.name == "settings"]):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert found == [f"Process {other.process} (all) has other settings: {differing}"]
    for storage in storages:
        storage.close()


def test_concurrent_observations_of_one_territory_are_answered_once(database: str) -> None:
    """Two processes get the same observations at the same time, as after a reconnect through a load balancer."""
    from decide.ads_service import request
    from townlet.decide.service import Service
    from townlet.decide.storage.postgres.decisions import PostgresStorage

    settings, domain = load_settings("bandit-ads", WORDS, DOMAINS), DOMAINS["bandit-ads"]
    storages = [PostgresStorage(database, domain, settings, ServiceClock()) for _ in range(2)]
    services = [Service(storage) for storage in storages]
    services[0].warm_up()
    replies: list[list[dict[str, Any]]] = [[], []]

    def ask_all(which: int) -> None:
        for number in range(30):
            (answer,) = services[which].answer([request(float(number // 2), f"site {number % 2}")])
            replies[which].append(answer.reply)

    threads = [threading.Thread(target=ask_all, args=[which]) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [[reply.get("decisionId") for reply in each if reply["type"] != "error"] for each in replies]
    assert set(ids[0]) & set(ids[1])
    assert statuses(database).total() == len(set(ids[0]) | set(ids[1])) == 30
    for storage in storages:
        storage.close()
