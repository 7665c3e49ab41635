"""Where commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import IO

from rich.console import Console
from rich.text import Text

from townlet.errors import TownletError

# A pipe has no width; tables cut to 80 columns are worse there than long lines.
PIPE_WIDTH = 120


def _console(stream: IO[str], stderr: bool = False) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, emoji=False)


def out() -> Console:
    """For what was asked for."""
    return _console(sys.stdout)


def err() -> Console:
    """For warnings and mistakes."""
    return _console(sys.stderr, stderr=True)


def print_mistakes(error: TownletError) -> None:
    """Each mistake with its place, what is wrong and the fix, ready to be clicked in an editor."""
    console = err()
    for mistake in error.mistakes:
        line = Text()
        if mistake.where:
            line.append(f"{mistake.where}: ", "bold")
        line.append(mistake.what, "red")
        if mistake.fix:
            line.append(f"\n    fix: {mistake.fix}", "cyan")
        console.print(line, soft_wrap=True)
    if len(error.mistakes) > 1:
        console.print(f"{len(error.mistakes)} mistakes", style="bold")


def examples(*commands: str) -> str:
    """The end of a command's help: lines to copy."""
    return "\n".join(f"  $ {command}" for command in commands)
