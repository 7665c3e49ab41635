"""Commands that read what a service has stored, for both storages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import Program, program
from decide.ads_service import ask, request
from decide.both_storages import Opener, open_at, visit


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("versions")` runs the command in this process."""
    return program(capsys, monkeypatch, "decide")


@pytest.fixture
def words(place: str | Path) -> list[str]:
    """The option that names the service."""
    return ["--storage" if "://" in str(place) else "--folder", str(place)]


def test_versions_replay_and_verify(open_service: Opener, townlet: Program, words: list[str]) -> None:
    one = open_service()
    visit(one, 20)
    one.learner.save_snapshot()
    ask(one.service, request(1e6, "pending"))
    one.service.versions.pin(1, "looks best")
    one.learner.versions.refresh()
    one.learner.await_durable()
    listed = townlet("versions", *words)
    assert "version 1: pinned: looks best" in listed.out
    assert "Stored: 3 versions, 1 to 3. Serving: 1. Pinned." in listed.out
    summary = json.loads(townlet("versions", *words, "--json").out)
    assert [version["version"] for version in summary["versions"]] == [1, 2, 3]
    assert (summary["serving"], summary["pinned"], summary["damaged"]) == (1, 1, {})
    assert "3 of 3 versions are identical." in townlet("replay", *words).out
    checked = townlet("verify", *(words if words[0] == "--storage" else words[1:]))
    assert checked.code == 0, checked.out
    decisions = one.counts().decisions  # fewer than 41 if the disk of a busy machine stalled
    assert f"{decisions} decisions = " in " ".join(checked.out.split())
    assert "Intact: every checksum matches." in checked.out


def test_an_empty_database_is_named(database: str, townlet: Program) -> None:
    for command in ("versions", "replay", "verify"):
        found = townlet(command, "--storage", database)
        assert found.code == 2
        assert f"{database} holds no decisions" in found.err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE version SET state = set_byte(state, 90, 7) WHERE number = 2", "version 2"),
        ("UPDATE snapshot SET state = set_byte(state, 90, 7)", "snapshot"),
        ("UPDATE decision SET status = 4 WHERE number = 3", "1 decisions differ from the events, such as 3"),
        ("DELETE FROM decision WHERE number = 3", "decisions, but the events have"),
        ("UPDATE territory SET game_time = game_time + 1", "2 territories differ from the events"),
        ("DELETE FROM serving_change WHERE number = 2", "change 2 is missing"),
        ("DELETE FROM event WHERE body LIKE '[\"outcome%' AND id < 20", "order of the events"),
    ],
)
def test_changed_rows_are_found(database: str, townlet: Program, change: str, problem: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    one = open_at(database)
    visit(one, 20)
    one.learner.save_snapshot()
    one.close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(change)
    found = townlet("verify", "--storage", database)
    assert found.code == 1
    assert "damaged" in found.out
    assert problem in " ".join(found.out.split())
