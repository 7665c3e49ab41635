"""`townlet world`: list, check, show, explain, new, schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import Program
from townlet.town.world.load import load, shipped

WRONG = """\
extends: town
max_stepz: 400
meters:
  - {name: energy, decay: lots}
affordances:
  - name: Bed
    prise: .02
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_names_every_shipped_world(townlet: Program) -> None:
    done = townlet("world", "list")
    assert done.code == 0
    for name in shipped():
        assert f" {name} " in done.out


def test_check_reports_all_errors_with_locations_and_fixes(townlet: Program, folder: Path) -> None:
    (folder / "wrong.yaml").write_text(WRONG)
    done = townlet("world", "check", "wrong.yaml")
    assert done.code == 2
    assert done.out == ""
    lines = done.err.splitlines()
    assert [line.split(": ")[0] for line in lines if line.startswith("wrong.yaml")] == [
        "wrong.yaml:2:1",
        "wrong.yaml:4:20",
        "wrong.yaml:7:5",
    ]
    assert "    fix: did you mean 'max_steps'?" in lines
    assert "    fix: did you mean 'price'?" in lines
    assert lines[-1] == "3 errors"


def test_check_does_not_wrap_long_messages(townlet: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    (folder / "wrong.yaml").write_text(WRONG)
    places = [line for line in townlet("world", "check", "wrong.yaml").err.splitlines() if line.startswith("wrong")]
    assert len(places) == 3


def test_check_of_a_valid_world_reports_survival(townlet: Program) -> None:
    done = townlet("world", "check", "town-l0")
    assert done.code == 0
    assert "passive" in done.out
    assert "planner" in done.out
    assert "town-l0 is a valid world." in done.out


def test_check_warns_if_income_is_too_low(townlet: Program) -> None:
    done = townlet("world", "check", "town-l0", "affordances.Bed.price=.001")
    assert done.code == 0
    assert done.err.startswith("warning: income cannot pay forever")


def test_check_of_a_missing_file_names_the_folder(townlet: Program, folder: Path) -> None:
    done = townlet("world", "check", "nowhere.yaml")
    assert done.code == 2
    assert "there is no file 'nowhere.yaml'" in done.err
    assert str(folder) in done.err.replace("\n", "")


def test_show_applies_overrides(townlet: Program) -> None:
    plain, changed = townlet("world", "show", "town"), townlet("world", "show", "town", "affordances.Bed.price=.31")
    assert plain.code == changed.code == 0
    assert "Bed" in plain.out
    assert plain.out != changed.out


def test_explain_lists_what_changes_a_meter(townlet: Program) -> None:
    done = townlet("world", "explain", "town", "mood")
    assert done.code == 0
    for word in ("hygiene", "social", "Therapist", "Bar"):
        assert word in done.out
    assert "Shower" not in done.out


def test_explain_suggests_the_nearest_meter(townlet: Program) -> None:
    done = townlet("world", "explain", "town", "moode")
    assert done.code == 2
    assert "did you mean 'mood'?" in done.err


def test_wrong_override_is_located_on_the_command_line(townlet: Program) -> None:
    done = townlet("world", "show", "town", "meters.enrgy.decay=.1")
    assert done.code == 2
    assert "command line: meters.enrgy.decay=.1" in done.err
    assert "did you mean 'energy'?" in done.err


def test_new_writes_a_valid_world(townlet: Program, folder: Path) -> None:
    assert townlet("world", "new", "mine", "--from", "town-l2", "--to", "worlds").code == 0
    mine, parent = load(folder / "worlds" / "mine.yaml"), load("town-l2")
    assert mine.interface_hash == parent.interface_hash
    assert mine.name == "mine"


def test_new_world_equals_its_parent(townlet: Program, folder: Path) -> None:
    townlet("world", "new", "mine")
    file = folder / "mine.yaml"
    before = load(file)
    assert before.content_hash == load("town", [f"description={json.dumps(before.spec.description)}"]).content_hash
    file.write_text(file.read_text().replace("# remove:", "remove:"))
    assert len(load(file).affordances) == len(before.affordances) - 1


def test_new_may_extend_a_file_elsewhere(townlet: Program, folder: Path) -> None:
    townlet("world", "new", "first", "--to", "a")
    (folder / "a" / "first.yaml").write_text("extends: town\nmax_steps: 77\n")
    assert townlet("world", "new", "second", "--from", "a/first.yaml", "--to", "b").code == 0
    assert load(folder / "b" / "second.yaml").spec.max_steps == 77


def test_new_never_overwrites(townlet: Program, folder: Path) -> None:
    (folder / "mine.yaml").write_text("precious")
    done = townlet("world", "new", "mine")
    assert done.code == 2
    assert "mine.yaml already exists" in done.err
    assert (folder / "mine.yaml").read_text() == "precious"


@pytest.mark.parametrize("name", ["../escape", "a b", "", "1st", "x" * 41])
def test_new_rejects_invalid_names(townlet: Program, folder: Path, name: str) -> None:
    assert townlet("world", "new", name).code == 2
    assert list(folder.rglob("*.yaml")) == []


def test_new_reports_an_unwritable_folder(townlet: Program, folder: Path) -> None:
    (folder / "file").write_text("")
    done = townlet("world", "new", "mine", "--to", "file/below")
    assert done.code == 2
    assert "cannot write" in done.err


def test_schema_lists_the_keys_of_world_files(townlet: Program) -> None:
    done = townlet("world", "schema")
    schema = json.loads(done.out)
    assert {"extends", "remove", "meters", "affordances", "rewards"} <= set(schema["properties"])
    assert "required" not in schema
