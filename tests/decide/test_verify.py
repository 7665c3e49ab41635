"""`decide verify` with every domain: what a service has stored is intact, also in copies; a changed reply is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.program import Done, Program, program
from decide.both_storages import open_at, visit
from decide.custom.conftest import Write, forget_domains, write  # noqa: F401
from decide.forged_log import Fields, rewrite
from townlet.decide.domains import DOMAINS, SHIPPED
from townlet.decide.events import DecisionMade

OWN = "my-game"
REPLY = DecisionMade._fields.index("reply") + 1
Verify = Callable[[str | Path], Done]


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("versions")` runs the command in this process, which knows no domain of a user."""
    command = program(capsys, monkeypatch, "decide")

    def run(*words: str) -> Done:
        DOMAINS.pop(OWN, None)
        return command(*words)

    return run


@pytest.fixture(params=[*(domain.name for domain in SHIPPED), OWN])
def domain(request: pytest.FixtureRequest, write: Write) -> str:  # noqa: F811
    """The name of a domain, or the file of one's own."""
    return write() if request.param == OWN else str(request.param)


@pytest.fixture
def own_file(domain: str) -> list[str]:
    """What a command needs to know the domain."""
    return [domain, "--allow-code"] if domain.endswith(".py") else []


@pytest.fixture
def verify(townlet: Program, own_file: list[str]) -> Verify:
    def run(where: str | Path) -> Done:
        return townlet("verify", *(["--storage"] if "://" in str(where) else []), str(where), *own_file)

    return run


@pytest.fixture
def played(place: str | Path, domain: str) -> str:
    """A stopped service with versions, a snapshot, and decisions after it."""
    one = open_at(place, ["memory.held_out=0.2"], domain)
    visit(one, 20)
    one.learner.save_snapshot()
    visit(one, 5, sites=3)
    one.learner.await_durable()
    one.close()
    return str(place)


def test_what_a_service_stores_is_intact_in_every_domain_also_in_copies(
    played: str, verify: Verify, townlet: Program, tmp_path: Path, own_file: list[str]
) -> None:
    places = [played, str(tmp_path / "copy")]
    assert townlet("copy", *places, *own_file).code == 0
    if "://" not in played:
        places.append(str(tmp_path / "backup"))
        assert townlet("backup", played, places[-1]).code == 0
    for where in places:
        found = verify(where)
        assert found.code == 0, found.out
        assert "Intact: every checksum matches." in found.out
        assert "not checked" not in found.out
        assert "amaged" not in found.out


def test_a_reply_of_another_decision_is_found_in_every_domain(played: str, verify: Verify) -> None:
    replies: list[Fields] = []

    def exchange(fields: Fields) -> None:
        if fields[0] == "decisionmade":
            replies.append(fields[REPLY])
            if len(replies) == 8:
                fields[REPLY] = replies[4]

    rewrite(played, exchange)
    found = verify(played)
    assert found.code == 1
    assert "which is not that of its decision" in " ".join(found.out.split())
    assert "Damaged: see above." in found.out
    assert "is intact" not in found.out
    assert "start from this" not in found.out
