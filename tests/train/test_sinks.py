"""Sinks: progress bar, plain console, log file and TensorBoard."""

from __future__ import annotations

import io
import math
import re
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from townlet.interfaces.counters import Counters, MetricsInterval
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.experiment import load_experiment
from townlet.train.sinks import (
    CsvFile,
    LogFile,
    PlainConsole,
    ProgressBar,
    TensorBoard,
    closing_sinks,
    console_sink,
    evaluation_text,
    rate_text,
)
from train.tiny import RecordingSink

FIGURES = {"steps_per_second": 12_345.0, "episode_length": 99.25, "loss": 0.5, "epsilon": 0.1, "meter_energy": 0.75}
EVALUATION = {
    "policy": "greedy", "length": 480.4, "limit": 500, "survived": 0.5, "earns_money": 0.25, "return": 3.0,
    "meters": {"energy": 0.5},
}  # fmt: skip
LINE = "2,000 steps     12 k/s  length 99.25  loss 0.5  epsilon 0.1"
SENTENCE = "evaluation: 480 of 500 steps, 50% survive, 25% earn money"

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def interval(env_steps: int = 2000) -> MetricsInterval:
    return MetricsInterval(env_steps, 10, 3, FIGURES, {"body.weight": torch.arange(6.0).reshape(2, 3)})


def test_work_is_not_mentioned_in_a_world_without_pay() -> None:
    assert evaluation_text(EVALUATION | {"earns_money": None}) == SENTENCE.removesuffix(", 25% earn money")


def test_plain_console_prints_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    stream = io.StringIO()
    lines = PlainConsole(stream, seconds=5.0)
    for moment in range(200):  # an interval every tenth of a second
        clock = 100.0 + moment / 10
        lines.on_rollout(Counters())
        lines.on_interval(interval())
    assert stream.getvalue().splitlines() == [f"     {LINE}"] * 3
    lines.on_evaluation(Counters(env_steps=1_234_567), EVALUATION)
    lines.message("a word")
    assert stream.getvalue().splitlines()[3:] == [f" 1,234,567 steps  {SENTENCE}", "a word"]


def test_log_file_has_timestamps_and_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        log = LogFile(tmp_path / "log.txt")
        log.on_interval(interval())
        log.on_evaluation(Counters(env_steps=7), {**EVALUATION, "policy": "random"})
        assert "random agent: 480" in (tmp_path / "log.txt").read_text()  # written immediately
        log.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert len(lines) == 4
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    assert lines[2].endswith(LINE)


def test_tensorboard_gets_scalars_meters_and_histograms(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for env_steps in (1000, 2000):
        board.on_interval(interval(env_steps))
    board.on_evaluation(Counters(env_steps=2000), EVALUATION)
    board.on_evaluation(Counters(env_steps=0), {**EVALUATION, "policy": "random"})
    board.close()
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("meters/meter_energy")] == [(1000, 0.75), (2000, 0.75)]
    assert [e.value for e in found.Scalars("episodes/episode_length")] == [99.25] * 2
    assert [e.step for e in found.Scalars("updates/loss")] == [1000, 2000]
    assert [(e.step, round(e.value, 1)) for e in found.Scalars("evaluation/length")] == [(2000, 480.4)]
    (weights,) = found.Histograms("weights/body.weight")
    assert (weights.step, weights.histogram_value.num, weights.histogram_value.max) == (2000, 6, 5.0)


def test_tensorboard_drops_events_after_a_checkpoint(tmp_path: Path) -> None:
    """A run that was killed at 3000 and resumes from 1000 shows each step once."""
    first = TensorBoard(tmp_path)
    for env_steps in (1000, 2000, 3000):
        first.on_interval(interval(env_steps))
    first.close()
    second = TensorBoard(tmp_path, purge_step=1001)
    second.on_interval(interval(2000))
    second.close()
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [e.step for e in found.Scalars("updates/loss")] == [1000, 2000]


def plain(screen: io.StringIO) -> list[str]:
    """Everything drawn on the screen, line by line, without escape sequences."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()))


def test_all_metrics_fit_the_terminal_below_the_bar() -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80), "town:dqn", 24_000_000, all_metrics=True)
    bar.on_interval(MetricsInterval(12_000_000, 10, 3, FIGURES, {}))
    bar.on_rollout(Counters(env_steps=12_000_000))
    bar.close()
    lines = plain(screen)
    assert max(map(len, lines)) <= 80
    assert all(any(f"{name} {value:.4g}" in line for line in lines) for name, value in FIGURES.items())


def test_csv_file_has_one_row_for_each_step_and_is_restored_from_the_store(tmp_path: Path) -> None:
    """Columns that appear later, and an evaluation at the step of an interval, are added to the rows before."""

    def log(store: MetricsStore, file: CsvFile, env_steps: int, **metrics: float) -> None:
        names = {"name": list(metrics), "value": list(metrics.values())}
        store.add("updates", {"env_steps": env_steps, "updates": 1, **names})
        file.on_interval(MetricsInterval(env_steps, 1, 0, metrics, {}))

    path = tmp_path / "metrics.csv"
    with MetricsStore(tmp_path / "metrics.db") as store:
        file = CsvFile(path, store)
        log(store, file, 10, loss=0.5)
        log(store, file, 20, loss=0.25, epsilon=0.1)
        row = {"policy": "greedy", "length": 480.5, "return": 9.0, "survived": 1.0, "earns_money": None, "score": 9.0}
        store.add("evaluations", [{"env_steps": 20, "updates": 1, **row}])
        file.on_evaluation(Counters(env_steps=20, updates=1), row)
        log(store, file, 30, loss=math.nan, epsilon=0.05)
        file.close()
        lines = [
            "env_steps,updates,evaluation_length,evaluation_return,survived,epsilon,loss",
            "10,1,,,,,0.5",
            "20,1,480.5,9.0,1.0,0.1,0.25",
        ]
        assert path.read_text().splitlines() == [*lines, "30,1,,,,0.05,"]
        store.rewind(20)
        CsvFile(path, store).close()
        assert path.read_text().splitlines() == lines


def test_progress_bar_fits_80_columns() -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80), "town:dqn-curriculum", 24_000_000)
    bar.on_interval(MetricsInterval(12_000_000, 10, 3, {**FIGURES, "stage": 3.25, "entropy": 1.25}, {}))
    bar.on_rollout(Counters(env_steps=12_000_000))
    bar.on_evaluation(Counters(env_steps=12_000_000), {**EVALUATION, "length": 1999, "limit": 2000, "survived": 1.0})
    bar.close()
    lines = plain(screen)
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"town:dqn-curriculum ━+╺?━+  50% 0:00:00 elapsed · \S+ left", line) for line in lines)
    figures = "  12M steps · 12 k/s · length 99.2 · stage 3.25 · loss 0.5 · epsilon 0.1"
    assert any(line.startswith(figures) and line.endswith("…") for line in lines)  # the rest does not fit
    assert "12,000,000 steps  evaluation: 1999 of 2000 steps, 100% survive, 25% earn money" in lines


def test_unused_bar_draws_nothing_and_the_cursor_is_always_restored() -> None:
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=80), "town:dqn", 4000)
    bar.close()
    assert screen.getvalue() == ""
    bar.on_rollout(Counters(env_steps=1))  # here the program is killed
    assert screen.getvalue().rfind(SHOW) > screen.getvalue().rfind(HIDE)


def test_only_a_capable_terminal_gets_a_progress_bar() -> None:
    recipe = load_experiment("town:dqn").recipe
    kinds = [
        type(console_sink(Console(file=io.StringIO(), force_terminal=terminal, _environ={"TERM": term}), recipe))
        for terminal, term in ((True, "xterm"), (True, "dumb"), (False, "xterm"))
    ]
    assert kinds == [ProgressBar, PlainConsole, PlainConsole]


def test_all_sinks_are_closed_and_the_first_error_is_raised() -> None:
    class Broken(RecordingSink):
        def close(self) -> None:
            raise OSError(28, "no space")

    one, two, last = RecordingSink(), Broken(), RecordingSink()
    with pytest.raises(ValueError, match="the first"), closing_sinks([one, two, last]):
        raise ValueError("the first")
    assert one.closed
    assert last.closed
    last = RecordingSink()
    with pytest.raises(OSError, match="no space"), closing_sinks([Broken(), last]):
        pass
    assert last.closed


def test_rates_have_units() -> None:
    assert [rate_text(rate) for rate in (12.3, 999.0, 45_678.0, 1_234_567.0)] == [
        "12/s",
        "999/s",
        "46 k/s",
        "1.23 M/s",
    ]
