"""The metrics as one CSV table for a spreadsheet: env_steps, updates, name, value."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

from townlet.runs.disk import replace_file
from townlet.runs.reader import Reader

# column of an evaluation → the metric's name
EVALUATED: Final = {
    "length": "evaluation_length",
    "return": "evaluation_return",
    "survived": "survived",
    "works": "works",
}


def write_csv(store: Reader, path: Path) -> None:
    """Write every figure of every interval and evaluation, each once. Single lives stay in the database."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("env_steps", "updates", "name", "value"))
    moments = ("env_steps", "updates")
    found = store.read("updates", (*moments, "name", "value"))
    table.writerows(zip(*found.values(), strict=True))
    # The yardstick of random lives is no figure of this agent.
    rows = store.read("evaluations", (*moments, *EVALUATED), where={"policy": "greedy"})
    for column, name in EVALUATED.items():
        for moment, updates, value in zip(rows["env_steps"], rows["updates"], rows[column], strict=True):
            if value is not None:
                table.writerow((moment, updates, name, value))
    replace_file(path, text.getvalue().encode())
