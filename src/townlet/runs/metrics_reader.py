"""Read-only access to the metrics of a run, even while it trains, and export as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from townlet.errors import TownletError, did_you_mean
from townlet.runs.database import DAMAGED, TABLES, connect, sqlite_errors
from townlet.runs.disk import replace_file
from townlet.runs.integrity import require_intact
from townlet.runs.metric_catalog import EVALUATION_METRICS, METRICS

Columns = dict[str, list[Any]]
ROW_NUMBER: Final = "number"  # SQLite's rowid
IRREPRODUCIBLE_METRICS: Final = tuple(name for name, metric in METRICS.items() if not metric.reproducible)


class MetricsReader:
    """Reader of the metrics of one run."""

    read_only = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path, self.read_only)

    @contextmanager
    def _snapshot(self, table: str, last: int | None = None) -> Iterator[None]:
        """A read transaction in which a table is checked and read."""
        self.flush()
        with sqlite_errors(self.path):
            started = not self._connection.in_transaction
            if started:
                self._connection.execute("BEGIN")
            try:
                if self.read_only:  # the rows of a writer were checked by its `rewind`
                    require_intact(self._connection, self.path, table, last)
                yield
            finally:
                if started:
                    self._connection.execute("COMMIT")

    def flush(self) -> None:
        """No-op: a reader buffers nothing."""

    def read(
        self,
        table: str,
        columns: Sequence[str] = (),
        *,
        since: int | None = None,
        until: int | None = None,
        last: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Columns:
        """Columns, as lists by name, of the rows with since < env_steps ≤ until and the values in `where`.

        Rows are in insertion order; with `last`, only that many of the newest. Every table also has the column
        `number`, which identifies a row and is returned only if named.
        """
        types = table_columns(table, (*columns, *(where or {})))
        names = tuple(columns) or tuple(types)
        conditions: list[str] = ["1"]
        values: list[Any] = []
        for condition, value in (('"env_steps" > ?', since), ('"env_steps" <= ?', until)):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        for name, value in (where or {}).items():
            conditions.append(f"{_column(name)} IS ?")
            values.append(value)
        shown = ", ".join(map(_column, names))
        select = f'SELECT {shown} FROM "{table}" WHERE {" AND ".join(conditions)} ORDER BY rowid'
        with self._snapshot(table, None if values else last):
            rows = self._fetch(f"{select} DESC LIMIT ?", (*values, last))[::-1] if last else self._fetch(select, values)
        lists = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
        found = dict(zip(names, lists, strict=True))
        try:
            for name, texts in found.items():
                if types.get(name) == "JSON":
                    found[name] = [None if text is None else json.loads(text) for text in texts]
        except (ValueError, TypeError, RecursionError):
            raise TownletError(*DAMAGED, self.path) from None
        return found

    def names(self) -> list[str]:
        """Names of the recorded metrics of updates."""
        with self._snapshot("updates"):
            return [row[0] for row in self._fetch('SELECT DISTINCT "name" FROM "updates" ORDER BY "name"')]

    def series(self, name: str, points: int = 0) -> tuple[list[int], list[float]]:
        """A metric over env_steps; with `points` at most that many, each the mean of a bin."""
        query = 'SELECT "env_steps", "value" FROM "updates" WHERE "name" = :name ORDER BY rowid'
        if points:
            span = 'SELECT min("env_steps") AS low, max("env_steps") AS high FROM "updates" WHERE "name" = :name'
            bin_index = '("env_steps" - low) * :points / (high - low + 1)'
            query = (
                f'SELECT max("env_steps"), avg("value") FROM "updates", ({span}) WHERE "name" = :name '
                f"GROUP BY {bin_index} ORDER BY 1"
            )
        with self._snapshot("updates"):
            rows = self._fetch(query, {"name": name, "points": points} if points else {"name": name})
        present = [row for row in rows if row[1] is not None]
        return [env_steps for env_steps, _ in present], [value for _, value in present]

    def totals(self, table: str, by: Sequence[str], since: int = -1) -> dict[tuple[Any, ...], int]:
        """The sum of the column `count` after `since`, for each combination of values in the columns `by`."""
        table_columns(table, (*by, "count"))
        keys = ", ".join(f'"{name}"' for name in by)
        query = f'SELECT {keys}, sum("count") FROM "{table}" WHERE "env_steps" > ? GROUP BY {keys} ORDER BY {keys}'
        with self._snapshot(table):
            rows = self._fetch(query, (since,))
        return {tuple(row[:-1]): int(row[-1] or 0) for row in rows}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close()

    def _fetch(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        with sqlite_errors(self.path):
            return self._connection.execute(query, values).fetchall()


def table_columns(table: str, columns: Sequence[str] = ()) -> dict[str, str]:
    """Column types of a table; raises TownletError with a suggestion for unknown names."""
    if table not in TABLES:
        raise TownletError(f"there is no table '{table}'", did_you_mean(table, tuple(TABLES)))
    for name in columns:
        if name not in TABLES[table] and name != ROW_NUMBER:
            raise TownletError(f"'{table}' has no column '{name}'", did_you_mean(name, tuple(TABLES[table])))
    return TABLES[table]


def _column(name: str) -> str:
    return "rowid" if name == ROW_NUMBER else f'"{name}"'


def counted_fraction(store: MetricsReader) -> float:
    """Fraction of the steps whose visits and transitions were counted: of several processes, only the first counts."""
    env_steps = store.read("cell_visits", ("env_steps",), last=1)["env_steps"]
    return sum(store.totals("cell_visits", ("cell",)).values()) / env_steps[0] if env_steps else 1.0


def as_rows(columns: Columns) -> list[dict[str, Any]]:
    """Columns of equal length as one dictionary per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def evaluation_metric(column: str) -> str:
    """The metric of a column of the table `evaluations`."""
    return f"evaluation_{column}" if column in ("length", "return") else column


def metric_table(store: MetricsReader) -> dict[int, dict[str, float]]:
    """Every metric of every interval and evaluation: {env_steps: {name: value}}, with `updates` as the first name."""
    table: dict[int, dict[str, float]] = {}
    for env_steps, updates, name, value in _metric_values(store):
        table.setdefault(env_steps, {"updates": updates})[name] = value
    return dict(sorted(table.items()))


def csv_columns(names: Iterable[str]) -> list[str]:
    """The columns of metrics.csv for these metrics: in the order of the catalog, then by name."""
    order = {name: index for index, name in enumerate(("updates", *METRICS))}
    return ["env_steps", *sorted({"updates", *names}, key=lambda name: (order.get(name, len(order)), name))]


def write_csv(store: MetricsReader, path: Path, long: bool = False) -> None:
    """Write every metric of every interval and evaluation; single episodes stay in the database.

    There is one row for each step and one column for each metric. In the `long` format each value has a row of its own.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if long:
        writer.writerow(("env_steps", "updates", "name", "value"))
        writer.writerows(_metric_values(store))
    else:
        table = metric_table(store)
        columns = csv_columns(name for row in table.values() for name in row)
        writer.writerow(columns)
        writer.writerows(csv_row(columns, env_steps, row) for env_steps, row in table.items())
    replace_file(path, text.getvalue().encode())


def csv_row(columns: Sequence[str], env_steps: int, row: Mapping[str, float]) -> list[float | str]:
    """A row of metrics.csv; metrics that were not recorded at this step are empty."""
    return [env_steps, *(row.get(name, "") for name in columns[1:])]


def _metric_values(store: MetricsReader) -> Iterator[tuple[int, int, str, float]]:
    """Every metric as (env_steps, updates, name, value). Evaluations of the random policy are no metrics of the run."""
    columns = store.read("updates", ("env_steps", "updates", "name", "value"))
    yield from (row for row in zip(*columns.values(), strict=True) if row[3] is not None)
    rows = store.read("evaluations", ("env_steps", "updates", *EVALUATION_METRICS), where={"policy": "greedy"})
    for column in EVALUATION_METRICS:
        for env_steps, updates, value in zip(rows["env_steps"], rows["updates"], rows[column], strict=True):
            if value is not None:
                yield env_steps, updates, evaluation_metric(column), value
