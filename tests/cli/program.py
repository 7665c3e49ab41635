"""Run the command line in this process, and list all commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import typer.main

from townlet.cli.app import app, main

typer.main.get_command = cache(typer.main.get_command)  # building all commands takes longer than most of them


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Program = Callable[..., Done]


def program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *first: str) -> Program:
    """A function that runs commands that start with the words `first`, in this process."""
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


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and its subcommands, each with the words that call it."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*words, name))


COMMANDS: dict[tuple[str, ...], Any] = dict(_commands(typer.main.get_command(app)))
LEAF_COMMANDS = [words for words, command in COMMANDS.items() if not hasattr(command, "commands")]
