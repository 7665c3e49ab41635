"""`townlet decide new` writes a file that can be served at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import Program, program
from townlet.config import user_code
from townlet.decide.domains import DOMAINS


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    monkeypatch.chdir(tmp_path)
    return program(capsys, monkeypatch, "decide")


def test_new_file_is_short_and_complete(townlet: Program, tmp_path: Path) -> None:
    done = townlet("new", "dark-forest")
    assert done.code == 0
    text = (tmp_path / "dark-forest.py").read_text()
    assert len(text.splitlines()) <= 100
    assert "my-game" not in text
    for command in ("serve", "simulate"):
        assert f"townlet decide {command} dark-forest.py --allow-code" in text
        assert f"townlet decide {command} dark-forest.py --allow-code" in done.out
    user_code.permit()
    assert DOMAINS["dark-forest.py"].name == "dark-forest"
    assert DOMAINS["dark-forest"].n_actions == 4


def test_existing_file_is_not_overwritten(townlet: Program, tmp_path: Path) -> None:
    (tmp_path / "my-game.py").write_text("precious")
    for name in ("my-game", "my-game.py"):
        refused = townlet("new", name)
        assert refused.code == 2
        assert "my-game.py: the file exists, and is not overwritten" in refused.err
    assert (tmp_path / "my-game.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["My Game", "9lives", "a--b", "", "-x", "x" * 41, "ä"])
def test_impossible_names_are_refused(townlet: Program, tmp_path: Path, name: str) -> None:
    refused = townlet("new", "--", name)
    assert refused.code == 2
    assert "cannot be the name of a domain" in refused.err
    assert not list(tmp_path.iterdir())
    assert "no such folder/my-game.py" in townlet("new", "no such folder/my-game").err
