"""Errors that users can act on: where the problem is, what is wrong and how to fix it."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

EXIT_INTERRUPTED: Final = 130  # exit code after Ctrl-C or SIGTERM


@dataclass(frozen=True, order=True)
class SourceLocation:
    """A position in a file or on the command line; lines and columns count from 1, 0 means unknown."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.source
        return f"{self.source}:{self.line}:{self.column}" if self.column else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """One problem: what is wrong, how to fix it, and where it is."""

    what: str
    fix: str = ""
    where: SourceLocation | None = None

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        return f"{prefix}{self.what}" + (f"; {self.fix}" if self.fix else "")


class TownletError(Exception):
    """An error for the user. The command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, what: str, fix: str = "", where: SourceLocation | Path | None = None) -> None:
        location = SourceLocation(str(where)) if isinstance(where, Path) else where
        self.diagnostics: tuple[Diagnostic, ...] = (Diagnostic(what, fix, location),)
        super().__init__(str(self.diagnostics[0]))

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show: the message, after the traceback of the exception that caused it, if any."""
        cause = traceback.format_exception(self.__cause__) if self.__cause__ else []
        return [*"".join(cause).splitlines(), str(self)]


class EnvironmentFailed(TownletError):
    """A third-party environment raised an exception, which is the `__cause__` of this one."""


class ConfigError(TownletError):
    """All problems of one input, sorted by location and without duplicates."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(dict.fromkeys(diagnostics), key=lambda d: d.where or SourceLocation("")))
        Exception.__init__(self, "\n".join(map(str, self.diagnostics)))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Diagnostic, ...]]]:
        # By default an exception is rebuilt from its message, but __init__ takes diagnostics.
        return ConfigError, (self.diagnostics,)


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known name closest to the word, or None if none is close."""
    near = get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    return next(k for k in known if k.lower() == near[0]) if near else None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint with the closest known name, or with the list of names if none is close."""
    if near := nearest(word, known):
        return f"did you mean '{near}'?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known: {shown}" if known else "none is known here"
