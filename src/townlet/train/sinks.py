"""Where a run shows itself: the console, its log file, TensorBoard. The metrics store is fed by the journal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from townlet.interfaces.counters import Counters, format_count

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from townlet.recipes.schema import Recipe

FRAME: Final = 0.1  # seconds between two drawings
WIDE: Final = 10  # columns for env_steps
EVALUATED: Final = ("length", "return", "survived", "works")  # figures of an evaluation
SPOKEN: Final = ("episode_length", "stage", "loss", "epsilon", "entropy")  # figures that fit into one line


@dataclass(frozen=True)
class Mark:
    """The figures of one interval."""

    env_steps: int
    updates: int
    episodes: int
    figures: dict[str, float]
    weights: Mapping[str, Tensor]


class Sink(Protocol):
    """Whoever is told how a run goes."""

    def tick(self, counters: Counters) -> None:
        """After every round."""

    def mark(self, mark: Mark) -> None:
        """The figures of one interval."""

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """An evaluation, as a row of the metrics store."""

    def note(self, text: str) -> None:
        """A sentence for people."""

    def close(self) -> None:
        """The run is over."""


@contextmanager
def closing(sinks: list[Sink]) -> Iterator[list[Sink]]:
    """Close all of them at the end, also who joins later. What goes wrong then is told only if nothing did before."""
    try:
        yield sinks
    except BaseException:
        for sink in sinks:
            with suppress(OSError):
                sink.close()
        raise
    for sink in sinks:
        sink.close()


def in_words(columns: Mapping[str, Any]) -> str:
    """An evaluation in one line."""
    who = "random agent" if columns["policy"] == "random" else "evaluation"
    if columns["meters"] is None:  # no town
        return f"{who}: return {columns['return']:.2f} in {columns['length']:.0f} steps"
    lived = f"{who}: lives {columns['length']:.0f} of {columns['limit']}, {columns['survived']:.0%} to the limit"
    return lived if columns["works"] is None else f"{lived}, {columns['works']:.0%} work"


def rate_in_words(rate: float) -> str:
    """Steps per second, short."""
    return f"{rate / 1e6:.2f} M/s" if rate >= 999_500 else f"{rate / 1e3:.0f} k/s" if rate >= 999.5 else f"{rate:.0f}/s"


def line(mark: Mark) -> str:
    """One interval in one line."""
    told = [f"{name.removeprefix('episode_')} {mark.figures[name]:.4g}" for name in SPOKEN if name in mark.figures]
    rate = rate_in_words(mark.figures["steps_per_second"])
    return f"{mark.env_steps:>{WIDE},} steps  {rate:>9}  " + "  ".join(told)


class LogFile:
    """log.txt: everything that was said, with the time of day."""

    def __init__(self, path: Path) -> None:
        self._file, self._flushed = path.open("a", encoding="utf-8"), time.monotonic()

    def tick(self, counters: Counters) -> None:
        """Progress alone is not worth a line."""

    def mark(self, mark: Mark) -> None:
        """A line for each interval; it may wait a second before it is written."""
        self._write(line(mark), patience=1.0)

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """A line for each evaluation."""
        self._write(f"{counters.env_steps:>{WIDE},} steps  {in_words(columns)}")

    def note(self, text: str) -> None:
        """A line of its own."""
        self._write(text)

    def _write(self, text: str, patience: float = 0.0) -> None:
        self._file.write(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}\n")
        if time.monotonic() - self._flushed >= patience:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Lines:
    """The console without a terminal: a line now and then, at most one in `seconds`."""

    def __init__(self, stream: IO[str], seconds: float = 5.0) -> None:
        self._stream, self._seconds, self._last = stream, seconds, time.monotonic()

    def tick(self, counters: Counters) -> None:
        """Nothing moves here."""

    def mark(self, mark: Mark) -> None:
        """A line, unless the last one is very young."""
        if time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self.note(line(mark))

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """A line for each evaluation."""
        self.note(f"{counters.env_steps:>{WIDE},} steps  {in_words(columns)}")

    def note(self, text: str) -> None:
        """A line of its own."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to give back."""


class TensorBoard:
    """Scalars at every mark, weights as histograms at every evaluation."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from torch.utils.tensorboard import SummaryWriter

        self._summary = Summary
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step, max_queue=1000, flush_secs=30)
        self._weights: Mapping[str, Tensor] = {}

    def tick(self, counters: Counters) -> None:
        """Only marks are written."""

    def mark(self, mark: Mark) -> None:
        """Each figure in the group of its kind, all as one event: one for each would wake the writer as often."""
        self._weights = mark.weights
        values = [self._summary.Value(tag=tag(name), simple_value=value) for name, value in mark.figures.items()]
        self._writer.file_writer.add_summary(self._summary(value=values), mark.env_steps)

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """The figures of an evaluation, and the weights as they are now."""
        if columns["policy"] != "random":
            for name in EVALUATED:
                if columns[name] is not None:
                    self._writer.add_scalar(f"evaluation/{name}", columns[name], counters.env_steps)
            for name, values in self._weights.items():
                self._writer.add_histogram(f"weights/{name}", values.detach().cpu().numpy(), counters.env_steps)

    def note(self, text: str) -> None:
        """Text stays with the log."""

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()


def tag(name: str) -> str:
    """A figure's name below the group of its kind."""
    group = "meters" if name.startswith("meter_") else "episodes" if name.startswith("episode_") else "updates"
    return f"{group}/{name}"


class Bar:
    """The console of a terminal: how far, and the figures that matter in a line below; evaluations above both.

    It fits into 80 columns. Nothing is drawn before the first round, so what goes wrong earlier is told on a clean
    screen, and the cursor stays visible: whatever ends the program need not bring it back.
    """

    def __init__(self, console: Console, title: str, budget: int) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(title, total=budget or None)
        self._told = Text(style="dim", no_wrap=True, overflow="ellipsis")
        self._live = Live(Group(self._progress, self._told), console=console, auto_refresh=False)
        self._figures: dict[str, float] = {}
        self._last = 0.0

    def tick(self, counters: Counters) -> None:
        """Move the bar, a few times a second."""
        if not self._live.is_started:
            self._live.start()
            self._live.console.show_cursor(True)
        if time.monotonic() - self._last >= FRAME:
            self._last = time.monotonic()
            self._progress.update(self._task, completed=counters.env_steps)
            self._live.refresh()

    def mark(self, mark: Mark) -> None:
        """New figures below the bar; what an interval has no news of stays, so that nothing jumps."""
        self._figures |= mark.figures
        told = [f"{format_count(mark.env_steps)} steps", rate_in_words(mark.figures["steps_per_second"])]
        told += [
            f"{name.removeprefix('episode_')} {self._figures[name]:.3g}" for name in SPOKEN if name in self._figures
        ]
        self._told.plain = "  " + " · ".join(told)

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """A line above the bar."""
        self.note(f"{counters.env_steps:>{WIDE},} steps  {in_words(columns)}")

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._live.is_started:
            self._live.refresh()
            self._live.stop()


def on_console(console: Console, recipe: Recipe) -> Sink:
    """A bar where one can be drawn, plain lines elsewhere."""
    if console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal):
        return Bar(console, recipe.title, recipe.budget.env_steps or 0)
    return Lines(console.file)
