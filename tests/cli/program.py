"""What running the program gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from townlet.cli.app import app


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Program = Callable[..., Done]


def _family(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, with the words that call it."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _family(below, (*words, name))


EVERY: dict[tuple[str, ...], Any] = dict(_family(get_command(app)))
VERBS = [words for words, command in EVERY.items() if not hasattr(command, "commands")]
