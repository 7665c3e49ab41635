"""A folder belongs to the code of its domain: what may change, what is refused, and what replay needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import Program, program
from decide.ads_service import start_service
from decide.custom.conftest import Write
from decide.custom.test_serving import play
from townlet.config import user_code
from townlet.decide.domains import DOMAINS
from townlet.decide.domains.custom.source import Source
from townlet.errors import TownletError

HARMLESS = [
    ('name = "my-game"', '# a comment\n\nname = "my-game"'),
    ("The observation as a list of numbers, always equally many.", "Numbers."),
    ("return (outcome[", "return (  outcome["),
    ("18 if near else 0", "17 if near else 1"),
]
CHANGES = [
    ('observation["stones"],', 'observation["stones"] / 3,'),
    ('outcome["hurt"]) / 20', 'outcome["hurt"]) / 25'),
    ('"archer", "wizard"]', '"wizard", "archer"]'),
    ('"club", "throw"', '"throw", "club"'),
    ('observation["stones"] > 0', 'observation["stones"] > 1'),
]
SYNTAX = '''
@str
class Kind(dict, metaclass=type): pass
async def wait(first, /, *rest: "int", key: list[int] = None, **more) -> None:
    """Documented."""
    async with first as second: return f"{key!r:>{second}}" + f'{1:g}' + u"x" + b"y".decode()
match HEROES:
    case [first, *_] | {"a": first, **rest} if first: assert 1 < 2 < 1e3, ...
try: print(*HEROES, sep="", end=(lambda: -1j)())
except* (ValueError, OSError) as errors: del errors
'''


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    return program(capsys, monkeypatch, "decide")


def fill(file: str, folder: Path) -> None:
    service, training, _ = start_service(folder, domain=file)
    play(service, training, 60)
    service.close()


def test_harmless_edits_continue(write: Write, tmp_path: Path) -> None:
    fill(write(), tmp_path / "service")
    service, _, _ = start_service(tmp_path / "service", domain=write(*[part for edit in HARMLESS for part in edit]))
    assert service.storage.counts().decisions == 60
    service.close()


@pytest.mark.parametrize("edit", CHANGES)
def test_other_code_is_refused(write: Write, tmp_path: Path, edit: tuple[str, str]) -> None:
    folder = tmp_path / "service"
    start_service(folder, domain=write())[0].close()
    file = write(*edit)
    with pytest.raises(TownletError) as caught:
        start_service(folder, domain=file)
    assert str(caught.value) == (
        f"{file}: the code of my-game is not the one with which these decisions were made; "
        "undo the change, or choose another --folder or --storage"
    )
    with pytest.raises(TownletError, match=r"options\.code"):
        start_service(tmp_path / "another", ["options.code=0123456789ab"], domain=file)
    start_service(folder, domain=write())[0].close()


def test_hash_is_the_same_in_all_releases_of_python(write: Write) -> None:
    file = Path(write('name = "my-game"', f'name = "my-game"\n{SYNTAX}'))
    assert Source(file, "my-game.py").hash == "6abb3d8adda0"


def test_replay_and_verify_need_the_file(
    write: Write, tmp_path: Path, townlet: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = write(), tmp_path / "service"
    fill(file, folder)
    monkeypatch.setattr(user_code, "_permitted", False)
    monkeypatch.setattr(user_code, "_executed", [])
    monkeypatch.delitem(DOMAINS, "my-game")
    unknown = townlet("replay", "--folder", str(folder))
    assert unknown.code == 2
    assert "the domain 'my-game' made these decisions, but it is not known here" in unknown.err
    unchecked = townlet("verify", str(folder))
    assert unchecked.code == 0
    assert "not checked: the domain 'my-game'" in " ".join(unchecked.out.split())
    assert townlet("versions", "--folder", str(folder)).code == 0
    assert townlet("replay", file, "--folder", str(folder)).code == 2
    replayed = townlet("replay", file, "--allow-code", "--folder", str(folder))
    assert replayed.code == 0
    assert "versions are identical" in replayed.out
    checked = townlet("verify", str(folder), file, "--allow-code")
    assert checked.code == 0
    assert "60 decisions = " in checked.out
    changed = write(*CHANGES[0])
    refused = townlet("replay", changed, "--allow-code", "--folder", str(folder))
    assert refused.code == 2
    assert "the code of my-game is not the one with which these decisions were made" in refused.err
    assert "not checked:" in townlet("verify", str(folder), changed, "--allow-code").out


def test_folder_of_another_domain_is_refused(write: Write, tmp_path: Path) -> None:
    start_service(tmp_path / "ads")[0].close()
    with pytest.raises(TownletError, match="this folder holds decisions for bandit-ads, not for my-game"):
        start_service(tmp_path / "ads", domain=write())
    start_service(tmp_path / "own", domain=write())[0].close()
    with pytest.raises(TownletError, match="this folder holds decisions for my-game, not for bandit-ads"):
        start_service(tmp_path / "own")
