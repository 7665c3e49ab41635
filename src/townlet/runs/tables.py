"""Metrics and evaluations of a run as columns of numbers, for analysis in Python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.runs.metric_catalog import EVALUATION_METRICS
from townlet.runs.metrics_reader import MetricsReader

Table = dict[str, NDArray[Any]]  # columns of equal length by name


def metrics_table(store: MetricsReader) -> Table:
    """One row per interval: env_steps, updates and a column for every metric, NaN where there is no value."""
    read = store.read("updates", ("env_steps", "updates", "name", "value"))
    steps, first, row = np.unique(np.asarray(read["env_steps"], np.int64), return_index=True, return_inverse=True)
    names, column = np.unique(np.asarray(read["name"], np.str_), return_inverse=True)
    values = np.full((len(names), len(steps)), np.nan)
    values[column, row] = [np.nan if value is None else value for value in read["value"]]
    table: Table = {"env_steps": steps, "updates": np.asarray(read["updates"], np.int64)[first]}
    return table | dict(zip(names.tolist(), values, strict=True))


def evaluation_table(store: MetricsReader) -> Table:
    """One row per evaluation of the agent; columns without any value are left out."""
    names = ("env_steps", "updates", "episodes", *EVALUATION_METRICS, "score")
    read = store.read("evaluations", tuple(dict.fromkeys(names)), where={"policy": "greedy"})
    counts = ("env_steps", "updates", "episodes")
    return {
        name: np.asarray([np.nan if v is None else v for v in values], np.int64 if name in counts else np.float64)
        for name, values in read.items()
        if name in counts or any(value is not None for value in values)
    }


def concatenate(tables: Mapping[int, Table], name: str) -> Table:
    """The tables as one, with a first column `name` for their keys; NaN where a table lacks a column."""
    rows = {key: len(table["env_steps"]) for key, table in tables.items()}
    stacked: Table = {name: np.repeat(np.asarray([*rows], np.int64), [*rows.values()])}
    for column in dict.fromkeys(column for table in tables.values() for column in table):
        parts = [table.get(column, np.full(rows[key], np.nan)) for key, table in tables.items()]
        stacked[column] = np.concatenate(parts)
    return stacked


def as_pandas(table: Table) -> Any:
    """The table as a pandas.DataFrame."""
    try:
        pandas: Any = import_module("pandas")
    except ImportError:
        raise TownletError("pandas is not installed", "pip install pandas, or leave out pandas=True") from None
    return pandas.DataFrame(table)
