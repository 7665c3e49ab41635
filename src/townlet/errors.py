"""Errors a person can act on: each says where it is, what is wrong and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

INTERRUPTED: Final = 130  # exit code of a program that somebody stopped; errors have their own


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a file (or on the command line); lines and columns count from 1, 0 means unknown."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.source
        return f"{self.source}:{self.line}:{self.column}" if self.column else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong: what it is, how to fix it, and where it stands."""

    what: str
    fix: str = ""
    where: Mark | None = None

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}" + (f"; {self.fix}" if self.fix else "")


class TownletError(Exception):
    """The user's mistake. The command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, what: str, fix: str = "", where: Mark | None = None) -> None:
        self.mistakes: tuple[Mistake, ...] = (Mistake(what, fix, where),)
        super().__init__(str(self.mistakes[0]))


class EnvironmentFailed(TownletError):
    """An environment of others raised something, which is its cause."""


class Mistakes(TownletError):
    """All mistakes of one input at once, in the order of their lines."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        found = sorted(dict.fromkeys(mistakes), key=lambda m: m.where or Mark(""))
        self.mistakes = tuple(found)
        Exception.__init__(self, "\n".join(str(m) for m in self.mistakes))

    def __reduce__(self) -> tuple[type[Mistakes], tuple[tuple[Mistake, ...]]]:
        """From one process to another it goes by its mistakes, not by its text."""
        return Mistakes, (self.mistakes,)


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The name that was probably meant, if any is near."""
    near = get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    return next(k for k in known if k.lower() == near[0]) if near else None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The nearest right name as a hint, or the list of names when none is near."""
    if near := nearest(word, known):
        return f"did you mean '{near}'?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known: {shown}" if known else "none is known here"
