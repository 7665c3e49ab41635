"""What running the program gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.main import get_command

from townlet.cli.app import app, main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Program = Callable[..., Done]


def program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *first: str) -> Program:
    """Runs a command in this process, which begins with these words, and tells how it ended and what it printed."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([*first, *arguments])
        printed = capsys.readouterr()
        code = leaving.value.code
        return Done(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run


def _family(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, with the words that call it."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _family(below, (*words, name))


EVERY: dict[tuple[str, ...], Any] = dict(_family(get_command(app)))
VERBS = [words for words, command in EVERY.items() if not hasattr(command, "commands")]
