"""Figures and plain tables for a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import typer

from townlet.cli.console import out

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.runs.integrity_report import IntegrityReport

STYLES: Final = {"damaged": "red", "missing": "red", "unprotected": "dim", "noted": "yellow"}  # by state of an item


def plain_table(*headings: str) -> Table:
    """A table without lines; a heading that ends in ">" stands over figures. The first column stays whole."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading.rstrip(">"), overflow="fold", no_wrap=place == 0)
        table.columns[-1].justify = "right" if heading.endswith(">") else "left"
    return table


def figure(value: float | None) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def share(value: float | None) -> str:
    """A share in per cent."""
    return "–" if value is None else f"{value:.0%}"


def setting(value: Any) -> str:
    """A value of a recipe in one line."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def runs_in_words(count: int) -> str:
    """1 run, 2 runs."""
    return f"{count} run" + "s" * (count != 1)


def show_integrity(report: IntegrityReport, as_json: bool) -> None:
    """Print the result of an integrity check; exits with code 1 if something is damaged."""
    from rich.text import Text

    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        table = plain_table("file", "state", "")
        for item in report.items:
            table.add_row(Text(item.name), Text(item.state, STYLES.get(item.state, "")), Text(item.text))
        out().print(table)
        verdict = "Whole: every checksum matches." if report.whole else "Damaged: see above."
        for sentence in (*report.usable, verdict):
            out().print(sentence, markup=False, soft_wrap=True)
    if not report.whole:
        raise typer.Exit(1)
