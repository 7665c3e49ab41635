"""`keep`: old records are removed once a snapshot covers them, and replay still proves the versions that follow."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from cli.program import Program, program
from decide.ads_service import ask, click, request
from decide.both_storages import Opened, Opener, visit
from townlet.decide.storage.retention import is_due, plan_retention
from townlet.decide.storage.segments import list_segments
from townlet.decide.storage.stored_service import open_stored

KEEP = ("keep=200s", "versions=2", "promotion.min_count=10")


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    return program(capsys, monkeypatch, "decide")


def serve_for_long(one: Opened, rounds: int = 6) -> None:
    """Visits, a version and a snapshot in each round, which takes a minute."""
    for _ in range(rounds):
        visit(one, 4)
        one.training.publish()
        one.clock.now += 56
        one.learner.save_snapshot()
        for n in range(5):
            (reply,) = ask(one.service, request(one.clock.now, f"more {n}"))
            one.service.report(click(reply["decisionId"]))


def stored_records(where: str | Path) -> list[int]:
    with closing(open_stored(where)) as stored:
        return [record for record, _ in stored.records()]


def check(townlet: Program, where: str | Path) -> int:
    """Everything is intact, and a replay gives equal versions; returns how many there are."""
    option = "--storage" if "://" in str(where) else "--folder"
    replayed = re.match(r"(\d+) of (\d+) versions are identical", townlet("replay", option, str(where)).out)
    assert replayed
    assert replayed[1] == replayed[2]
    found = townlet("verify", *([option] if option == "--storage" else []), str(where))
    assert found.code == 0, found.out
    assert "are in a snapshot" in " ".join(found.out.split())
    return int(replayed[1])


def test_old_records_are_removed_and_replay_starts_at_the_snapshot(
    open_service: Opener, place: str | Path, townlet: Program
) -> None:
    one = open_service(KEEP)
    one.service.versions.pin(1, "the trainer goes back to it at the end")
    one.learner.versions.refresh()
    serve_for_long(one)
    counts = one.counts()
    one.training._rewind()
    one.learner.await_durable()
    records = stored_records(place)
    assert records[0] > 20
    assert records == list(range(records[0], one.learner.record + 1))
    assert 1 <= check(townlet, place) < 6
    one.close()
    again = open_service(KEEP, clock=one.clock)
    for name in ("decisions", "joined", "expired", "pending", "waited"):
        assert getattr(again.counts(), name) == getattr(counts, name), name
    (reply,) = ask(again.service, request(2e6, "new"))
    assert again.service.report(click(reply["decisionId"])).reply["type"] == "outcome_ack"
    serve_for_long(again, 2)
    again.learner.await_durable()
    assert stored_records(place)[0] > records[0]
    check(townlet, place)


def test_everything_is_kept_by_default(open_service: Opener, place: str | Path) -> None:
    one = open_service()
    serve_for_long(one, 4)
    one.learner.await_durable()
    assert stored_records(place)[0] == 1


def test_keeping_everything_again_does_not_lose_the_beginning(
    open_service: Opener, place: str | Path, townlet: Program
) -> None:
    """Without `keep`, the snapshot with which the stored records begin stays."""
    one = open_service(KEEP)
    serve_for_long(one)
    one.close()
    again = open_service(["versions=2"], clock=one.clock)
    serve_for_long(again, 3)
    again.learner.await_durable()
    assert check(townlet, place) > 3


@pytest.mark.parametrize("to", ["file", "postgres"])
def test_a_shortened_service_is_copied(
    open_service: Opener, place: str | Path, to: str, cluster: object, tmp_path: Path, townlet: Program
) -> None:
    one = open_service(KEEP)
    serve_for_long(one)
    counts = one.counts()
    one.close()
    from decide.both_storages import open_at
    from decide.postgres_cluster import Cluster

    assert isinstance(cluster, Cluster)
    target = str(tmp_path / "to") if to == "file" else cluster.make_database(f"{tmp_path.name}_{to}")
    copied = townlet("copy", str(place), target)
    assert copied.code == 0, copied.err
    check(townlet, target)
    again = open_at(target, KEEP, clock=one.clock)
    found = again.counts()
    assert (found.decisions, found.joined, found.pending) == (counts.decisions, counts.joined, counts.pending)
    again.learner.await_durable()
    again.close()


def test_a_lost_base_is_named(tmp_path: Path, townlet: Program) -> None:
    from decide.both_storages import open_at

    one = open_at(tmp_path / "service", KEEP)
    serve_for_long(one)
    one.close()
    assert list_segments(tmp_path / "service" / "log")[0].first > 1
    (tmp_path / "service" / "snapshots").rename(tmp_path / "elsewhere")
    found = townlet("replay", "--folder", str(tmp_path / "service"))
    assert found.code == 2
    assert "no intact snapshot covers the records before it" in found.err


def test_snapshots_are_kept_at_intervals() -> None:
    infos = [{"record": n, "at": 10.0 * n} for n in range(100)]
    retention = plan_retention(infos, "500s", 990.0)
    assert retention.base == 49
    assert sorted(retention.snapshots) == [*range(49, 99, 5), 99]
    assert plan_retention(infos, None, 990.0).base is None
    assert plan_retention(infos[:5], "500s", 990.0).base == 4
    assert plan_retention([], "500s", 990.0).base is None


def test_a_quiet_service_takes_snapshots_too() -> None:
    assert is_due(20_000, 0.0, 20_000, None)
    assert not is_due(19_999, 1e9, 20_000, None)
    assert is_due(1, 9 * 86400.0, 20_000, "90d")
    assert not is_due(0, 9 * 86400.0, 20_000, "90d")
