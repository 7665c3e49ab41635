"""The metrics as one CSV table for a spreadsheet: env_steps, updates, name, value."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from townlet.runs.disk import replace_file
from townlet.runs.reader import Reader

# table → column → the metric's name
FIGURES = {
    "episodes": {"length": "episode_length", "return": "episode_return"},
    "episode_intervals": {"length_mean": "episode_length", "return_mean": "episode_return"},
    "evaluations": {
        "length": "evaluation_length",
        "return": "evaluation_return",
        "survived": "survived",
        "works": "works",
    },
}


def write_csv(store: Reader, path: Path) -> None:
    """Write every figure of updates, episodes and evaluations, one to a line."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("env_steps", "updates", "name", "value"))
    moments = ("env_steps", "updates")
    found = store.read("updates", (*moments, "name", "value"))
    table.writerows(zip(*found.values(), strict=True))
    for source, columns in FIGURES.items():
        # The yardstick of random lives is no figure of this agent.
        where = {"policy": "greedy"} if source == "evaluations" else None
        rows = store.read(source, (*moments, *columns), where=where)
        for column, name in columns.items():
            for moment, updates, value in zip(rows["env_steps"], rows["updates"], rows[column], strict=True):
                if value is not None:
                    table.writerow((moment, updates, name, value))
    replace_file(path, text.getvalue().encode())
