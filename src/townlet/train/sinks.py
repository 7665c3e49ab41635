"""Sinks: console, log file and TensorBoard. The metrics store is not a sink: the logger writes to it directly."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from townlet.interfaces.counters import Counters, MetricsInterval, Sink, format_count
from townlet.runs.metric_catalog import EVALUATION_METRICS
from townlet.runs.metrics_reader import csv_columns, csv_row, evaluation_metric, write_csv

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from townlet.recipes.schema import Recipe
    from townlet.runs.metrics_reader import MetricsReader

REFRESH_SECONDS: Final = 0.1
FLUSH_SECONDS: Final = 1.0  # least time between flushes of metrics.csv
METRIC_WIDTH: Final = 38  # characters for a metric and its value in the table of all metrics
METRIC_COLUMNS: Final = 3  # of that table if the console has no width
STEPS_WIDTH: Final = 10  # characters for env_steps
LINE_METRICS: Final = ("episode_length", "stage", "loss", "epsilon", "entropy")  # metrics that fit into one line


@contextmanager
def closing_sinks(sinks: list[Sink]) -> Iterator[list[Sink]]:
    """Close all sinks at the end, including those added later. After an error, errors of `close` are suppressed."""
    try:
        yield sinks
    except BaseException:
        for sink in sinks:
            with suppress(Exception):
                sink.close()
        raise
    with ExitStack() as stack:  # closes all, even if one fails
        for sink in reversed(sinks):
            stack.callback(sink.close)


def evaluation_text(evaluation: Mapping[str, Any]) -> str:
    """The result of an evaluation, given as its row of the metrics store."""
    name = "random agent" if evaluation["policy"] == "random" else "evaluation"
    if evaluation["meters"] is None:  # not a town
        return f"{name}: return {evaluation['return']:.2f} in {evaluation['length']:.0f} steps"
    text = f"{name}: {evaluation['length']:.0f} of {evaluation['limit']} steps, {evaluation['survived']:.0%} survive"
    earns_money = evaluation["earns_money"]
    return text if earns_money is None else f"{text}, {earns_money:.0%} earn money"


def rate_text(rate: float) -> str:
    """Steps per second, in units of 1, k or M; the thresholds keep rounding from showing "1000 k/s"."""
    if rate >= 999_500:
        return f"{rate / 1e6:.2f} M/s"
    return f"{rate / 1e3:.0f} k/s" if rate >= 999.5 else f"{rate:.0f}/s"


def interval_line(interval: MetricsInterval) -> str:
    """A console line: the steps, their rate, and the most important metrics."""
    metrics = interval.metrics
    values = [f"{name.removeprefix('episode_')} {metrics[name]:.4g}" for name in LINE_METRICS if name in metrics]
    rate = rate_text(metrics["steps_per_second"])
    return f"{interval.env_steps:>{STEPS_WIDTH},} steps  {rate:>9}  " + "  ".join(values)


def metric_columns(metrics: Mapping[str, float], columns: int) -> list[list[str]]:
    """All metrics with their values, as rows of a table of this many columns, which are filled from top to bottom."""
    cells = [f"{name} {metrics[name]:.4g}" for name in csv_columns(metrics) if name in metrics]
    height = -(-len(cells) // columns)
    return [cells[row::height] for row in range(height)]


class LineSink(Sink):
    """A sink that shows evaluations as messages."""

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        self.message(f"{counters.env_steps:>{STEPS_WIDTH},} steps  {evaluation_text(evaluation)}")


class LogFile(LineSink):
    """log.txt: every interval, evaluation and message, with date and time."""

    def __init__(self, path: Path) -> None:
        self._file, self._flushed = path.open("a", encoding="utf-8"), time.monotonic()

    def on_interval(self, interval: MetricsInterval) -> None:
        self.message(interval_line(interval), flush_interval=1.0)

    def message(self, text: str, flush_interval: float = 0.0) -> None:
        """Write a line; flush unless the last flush was less than `flush_interval` seconds ago."""
        self._file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}\n")
        if time.monotonic() - self._flushed >= flush_interval:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


class PlainConsole(LineSink):
    """Output for a console that is not a terminal: at most one line of metrics every `seconds`."""

    def __init__(self, stream: IO[str], seconds: float = 5.0, all_metrics: bool = False) -> None:
        self._stream, self._seconds, self._last = stream, seconds, time.monotonic()
        self._all_metrics = all_metrics

    def on_interval(self, interval: MetricsInterval) -> None:
        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self.message(interval_line(interval))
            if self._all_metrics:
                for row in metric_columns(interval.metrics, METRIC_COLUMNS):
                    self.message("    " + "".join(f"{cell:{METRIC_WIDTH}}" for cell in row).rstrip())

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class CsvFile(Sink):
    """metrics.csv: one row for each step with an interval or an evaluation, one column for each metric.

    It is written from the metrics store when it is opened and when a new column appears; otherwise rows are appended.
    """

    def __init__(self, path: Path, store: MetricsReader) -> None:
        self._path, self._store = path, store
        self._rewrite()

    def _rewrite(self) -> None:
        """Write all rows of the store, and continue after them."""
        write_csv(self._store, self._path)
        self._file = self._path.open("r+", encoding="utf-8", newline="")
        header, *rows = csv.reader(self._file)
        self._columns, self._row = header, dict[str, Any](zip(header, rows[-1] if rows else (), strict=False))
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._file.seek(0)
        size = sum(len(line.encode()) for line in self._file.readlines()[: len(rows)])
        self._row_start = size  # bytes before the last row
        self._file.seek(0, io.SEEK_END)
        self._flushed = time.monotonic()

    def on_interval(self, interval: MetricsInterval) -> None:
        self._add(interval.env_steps, {"updates": interval.updates, **interval.metrics})

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        if evaluation["policy"] != "random":
            values = {evaluation_metric(name): evaluation[name] for name in EVALUATION_METRICS}
            self._add(counters.env_steps, {"updates": counters.updates, **values})

    def _add(self, env_steps: int, values: Mapping[str, float | None]) -> None:
        row = {name: value for name, value in values.items() if value is not None and not math.isnan(value)}
        if not row.keys() <= set(self._columns):
            self._file.close()
            self._rewrite()
            return
        if self._row.get("env_steps") == str(env_steps):  # a second part of the last row
            self._row |= row
            self._file.seek(self._row_start)
        else:
            self._row = {"env_steps": str(env_steps), **row}
            self._row_start = self._file.tell()
        self._writer.writerow(csv_row(self._columns, env_steps, self._row))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


class TensorBoard(Sink):
    """Scalars of every interval, histograms of the weights at every evaluation."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard import SummaryWriter

        self._summary = Summary
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step, max_queue=1000, flush_secs=30)
        self._weights: Mapping[str, Tensor] = {}

    def on_interval(self, interval: MetricsInterval) -> None:
        """Write all metrics as one event, which wakes the writer thread once."""
        self._weights = interval.weights
        scalars = interval.metrics.items()
        values = [self._summary.Value(tag=tensorboard_tag(name), simple_value=value) for name, value in scalars]
        self._writer.file_writer.add_summary(self._summary(value=values), interval.env_steps)

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        if evaluation["policy"] != "random":
            for name in EVALUATION_METRICS:
                if evaluation[name] is not None:
                    self._writer.add_scalar(f"evaluation/{name}", evaluation[name], counters.env_steps)
            for name, values in self._weights.items():
                self._writer.add_histogram(f"weights/{name}", values.detach().cpu().numpy(), counters.env_steps)

    def close(self) -> None:
        self._writer.close()


def tensorboard_tag(name: str) -> str:
    """The tag `group/name` of a metric; the group is `meters` or `episodes` by the name's prefix, else `updates`."""
    if name.startswith("meter_"):
        return f"meters/{name}"
    return f"episodes/{name}" if name.startswith("episode_") else f"updates/{name}"


class ProgressBar(LineSink):
    """Output for a terminal: a progress bar, a line of metrics below it, evaluations and messages above.

    It fits into 80 columns. Nothing is drawn before the first rollout, so that early errors appear on a clean screen.
    The cursor stays visible, so that it need not be restored.
    """

    def __init__(self, console: Console, title: str, budget: int | None, all_metrics: bool = False) -> None:
        from rich import progress
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        columns = (
            progress.TextColumn("[bold]{task.description}"), progress.BarColumn(), progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(), progress.TextColumn("elapsed ·"),
            progress.TimeRemainingColumn(), progress.TextColumn("left"),
        )  # fmt: skip
        self._progress = progress.Progress(*columns, console=console)
        self._task = self._progress.add_task(title, total=budget)
        self._line = Text(style="dim", no_wrap=True, overflow="ellipsis")
        self._all_metrics = all_metrics
        self._live = Live(Group(self._progress, self._line), console=console, auto_refresh=False)
        self._metrics: dict[str, float] = {}
        self._last = 0.0

    def on_rollout(self, counters: Counters) -> None:
        """Advance the bar, at most once every `REFRESH_SECONDS`."""
        if not self._live.is_started:
            self._live.start()
            self._live.console.show_cursor(True)
        if time.monotonic() - self._last >= REFRESH_SECONDS:
            self._last = time.monotonic()
            self._progress.update(self._task, completed=counters.env_steps)
            self._live.refresh()

    def on_interval(self, interval: MetricsInterval) -> None:
        """Update the line of metrics; those missing in this interval keep their last value, so the layout is stable."""
        self._metrics |= interval.metrics
        parts = [f"{format_count(interval.env_steps)} steps", rate_text(interval.metrics["steps_per_second"])]
        values = {name: self._metrics[name] for name in LINE_METRICS if name in self._metrics}
        parts += [f"{name.removeprefix('episode_')} {value:.3g}" for name, value in values.items()]
        lines = ["  " + " · ".join(parts)]
        if self._all_metrics:
            columns = max(1, self._live.console.width // METRIC_WIDTH)
            rows = metric_columns(self._metrics, columns)
            lines += ["  " + "".join(f"{cell:{METRIC_WIDTH}}" for cell in row).rstrip() for row in rows]
        self._line.plain = "\n".join(lines)

    def message(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Draw the final state and stop the live display."""
        if self._live.is_started:
            self._live.refresh()
            self._live.stop()


def console_sink(console: Console, recipe: Recipe, all_metrics: bool = False) -> Sink:
    """A progress bar in a terminal or in Jupyter; plain lines elsewhere, including dumb terminals."""
    if console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal):
        return ProgressBar(console, recipe.title, recipe.budget.env_steps, all_metrics)
    return PlainConsole(console.file, all_metrics=all_metrics)
