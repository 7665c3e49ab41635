"""Where commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, TYPE_CHECKING, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.verify import IntegrityReport

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
    for mistake in error.diagnostics:
        line = Text()
        if mistake.where:
            line.append(f"{mistake.where}: ", "bold")
        line.append(mistake.what, "red")
        if mistake.fix:
            line.append(f"\n    fix: {mistake.fix}", "cyan")
        console.print(line, soft_wrap=True)
    if len(error.diagnostics) > 1:
        console.print(f"{len(error.diagnostics)} mistakes", style="bold")


def examples(*commands: str) -> str:
    """The end of a command's help: lines to copy."""
    return "\n".join(f"  $ {command}" for command in commands)


ITEM_STYLES: Final = {
    "damaged": "red",
    "missing": "red",
    "unprotected": "dim",
    "noted": "yellow",
}  # by state of an item


def plain_table(*headings: str) -> Table:
    """A table without lines; a heading that ends in ">" stands over figures. The first column stays whole."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading.rstrip(">"), overflow="fold", no_wrap=place == 0)
        table.columns[-1].justify = "right" if heading.endswith(">") else "left"
    return table


def format_number(value: float | None) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def format_percent(value: float | None) -> str:
    """A share in per cent."""
    return "–" if value is None else f"{value:.0%}"


def format_setting(value: Any) -> str:
    """A value of a recipe in one line."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def runs_in_words(count: int) -> str:
    """1 run, 2 runs."""
    return f"{count} run" + "s" * (count != 1)


def print_integrity(report: IntegrityReport, as_json: bool) -> None:
    """Print the result of an integrity check; exits with code 1 if something is damaged."""
    from rich.text import Text

    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        table = plain_table("file", "state", "")
        for item in report.items:
            table.add_row(Text(item.name), Text(item.state, ITEM_STYLES.get(item.state, "")), Text(item.text))
        out().print(table)
        verdict = "Whole: every checksum matches." if report.whole else "Damaged: see above."
        for sentence in (*report.usable, verdict):
            out().print(sentence, markup=False, soft_wrap=True)
    if not report.whole:
        raise typer.Exit(1)
