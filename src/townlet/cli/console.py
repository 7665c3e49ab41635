"""Console output: results on stdout, everything else on stderr; tables and number formats."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.text import Text

from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.verify import IntegrityReport

PIPE_WIDTH: Final = 120  # a pipe has no width; Rich's default of 80 would wrap tables
ITEM_STYLES: Final = {"damaged": "red", "missing": "red", "unprotected": "dim", "noted": "yellow"}


def _console(stream: IO[str], stderr: bool = False) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, emoji=False)


def out() -> Console:
    """Console for results."""
    return _console(sys.stdout)


def err() -> Console:
    """Console for progress, warnings and errors."""
    return _console(sys.stderr, stderr=True)


def echo(*lines: str) -> None:
    """Print lines of results as they are: no markup, no wrapping."""
    console = out()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def echo_err(*lines: str, style: str | None = None) -> None:
    """Print lines on stderr as they are: no markup, no wrapping."""
    console = err()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, style=style)


def print_error(error: TownletError) -> None:
    """Print each diagnostic with its location (which editors can open), message and fix."""
    console = err()
    for diagnostic in error.diagnostics:
        line = Text()
        if diagnostic.where:
            line.append(f"{diagnostic.where}: ", "bold")
        line.append(diagnostic.what, "red")
        if diagnostic.fix:
            line.append(f"\n    fix: {diagnostic.fix}", "cyan")
        console.print(line, soft_wrap=True)
    if len(error.diagnostics) > 1:
        console.print(f"{len(error.diagnostics)} errors", style="bold")


def plain_table(*headings: str) -> Table:
    """A table without lines. Headings that end in ">" are right-aligned; the first column never wraps."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        table.add_column(heading.rstrip(">"), overflow="fold", no_wrap=index == 0)
        table.columns[-1].justify = "right" if heading.endswith(">") else "left"
    return table


def format_number(value: float | None) -> str:
    """A number with at most one decimal, or a dash."""
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def format_percent(value: float | None) -> str:
    """A fraction as a percentage, or a dash."""
    return "–" if value is None else f"{value:.0%}"


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" + "s" * (count != 1)


def print_integrity(report: IntegrityReport, as_json: bool) -> None:
    """Print the result of an integrity check; exits with code 1 if something is damaged."""
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        table = plain_table("file", "state", "")
        for item in report.items:
            table.add_row(Text(item.name), Text(item.state, ITEM_STYLES.get(item.state, "")), Text(item.text))
        out().print(table)
        echo(*report.usable, "Intact: every checksum matches." if report.intact else "Damaged: see above.")
    if not report.intact:
        raise typer.Exit(1)
