"""What metrics and checkpoints cost: `python benchmarks/overhead.py town:ppo town:dqn town-l0:dqn town:life`.

One training continues in short slices of the same work, in turns: with neither, with metrics (store, log, TensorBoard,
kept lives) and with a checkpoint at the end. It is one and the same, because two equal ones may lie so differently in
memory that they differ by more than metrics cost. A noisy machine changes its pace, so only slices of one turn are
compared, each with the bare one beside it; median and quartiles of all turns are reported. Noise only ever makes
a slice slower: so "at best" compares the fastest tenth of the slices of each kind instead.
Metrics are a share of the bare time, and a slice holds whole intervals of them. The seconds of a checkpoint are a
share of the recipe's time from one to the next. Evaluations are left out of all three.

Everything runs on one thread, so that CPU time is work and not waiting. CPU time bears other loads on the machine;
the clock on the wall also counts the waiting for the disk.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from sim import machine
from townlet.interfaces.state import State
from townlet.recipes.schema import Budget
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import EvaluationResult
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.town.env import Town
from townlet.train.checkpointer import Checkpointer
from townlet.train.episodes import NullListener
from townlet.train.logger import MetricsLogger
from townlet.train.loop import train_loop
from townlet.train.sinks import LogFile, TensorBoard, closing
from townlet.train.stop_conditions import StopConditions
from townlet.train.training import build_training
from townlet.train.tuning import SettingChange

RECIPES: Final = ("town:ppo", "town:dqn", "town-l0:dqn", "town:life")
WAYS: Final = ("neither", "metrics", "checkpoints")
CLOCKS: Final = {"CPU": time.process_time, "wall": time.perf_counter}
COLUMNS: Final = [f"{what} {clock}{how}" for what in WAYS[1:] for clock in CLOCKS for how in ("", " at best")]
SAVED: Final = 8  # turns to one with a checkpoint, which is dear and varies little
LEAST: Final = 3 * SAVED  # turns
NEVER: Final = 10**15  # env_steps

Times = dict[str, float]  # seconds of a slice by clock


class Silence(NullListener):
    """A logger and a checkpointer that store nothing."""

    def on_update(self, metrics: Mapping[str, float]) -> None:
        """Ignored."""

    def on_setting_change(self, change: SettingChange) -> None:
        """Ignored."""

    def message(self, text: str) -> None:
        """Ignored."""

    def on_rollout_end(self) -> None:
        """Ignored."""

    def on_evaluation(self, result: EvaluationResult) -> None:
        """Ignored."""

    def finish(self) -> None:
        """Ignored."""

    def roll_back(self, state: State) -> None:
        """Ignored."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Ignored."""

    def state(self) -> State:
        """Nothing to save."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""


class Turns:
    """One training continued in slices, each with a separate log and checkpointer."""

    def __init__(self, loaded: LoadedExperiment, folder: Path, stack: ExitStack) -> None:
        recipe, silence = loaded.recipe, Silence()
        endless = recipe.model_copy(update={"budget": Budget(env_steps=NEVER)})  # schedules keep to the real one
        self.t, self.limits = build_training(loaded), StopConditions(endless, NEVER, pause_at=0)
        run = Run.create(folder, recipe.env, "overhead", "", "", {})
        lock = stack.enter_context(Lock(run.path))
        store = stack.enter_context(MetricsStore(run.metrics_file, lock.check))
        sinks = stack.enter_context(closing([LogFile(run.log_file), TensorBoard(run.tensorboard)]))
        every, whole = recipe.to_env_steps(recipe.metrics.every), recipe.metrics.whole_episodes
        self.journal = MetricsLogger(self.t, every, whole, store, sinks)
        saver = Checkpointer(run, lock, self.t, silence, store, self.limits, {})
        self.ways: dict[str, tuple[MetricsLogger | Silence, Checkpointer | Silence]] = {
            "neither": (silence, silence),
            "metrics": (self.journal, silence),
            "checkpoints": (silence, saver),
        }
        assert isinstance(self.t.env, Town)
        self.engine = self.t.env.engine
        self.used = self.engine.used
        stack.callback(self.t.env.close)

    def go_on(self, way: str, steps: int) -> Times:
        """A slice, timed. It ends with a pause, at which the keeper saves."""
        now = self.t.counters.env_steps
        self.engine.used = self.used if way == "metrics" else self.used[:0]  # who does not ask does not pay
        self.journal.restore({**self.journal.state(), "since": now})  # it was not asked for the slices between
        began = {name: clock() for name, clock in CLOCKS.items()}
        self.limits.pause_at = now + steps
        train_loop(self.t, self.limits, *self.ways[way], _nobody)
        return {name: clock() - began[name] for name, clock in CLOCKS.items()}


def _nobody() -> EvaluationResult:
    raise AssertionError("nothing is evaluated here")


def measure(loaded: LoadedExperiment, seconds: float) -> dict[str, list[Times]]:
    """The times of every slice by way; the order changes from turn to turn."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        training, recipe = Turns(loaded, Path(folder), stack), loaded.recipe
        once = recipe.row_count * training.t.agent.update_interval
        for way in WAYS:
            training.go_on(way, max(once, getattr(recipe.agent, "warmup", 0)))
        every = recipe.to_env_steps(recipe.metrics.every)
        steps = every * math.ceil(once / every)
        times: dict[str, list[Times]] = {way: [] for way in WAYS}
        end, turn = time.perf_counter() + seconds, 0
        while turn < LEAST or time.perf_counter() < end:
            for way in WAYS if turn % 2 else WAYS[::-1]:
                if way != "checkpoints" or turn % SAVED == 0:
                    times[way].append(training.go_on(way, steps))
            turn += 1
        return times


class Quartiles(NamedTuple):
    """The median of all turns between its quartiles."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.2%} ({self.low:+.2%} … {self.high:+.2%})"


def quartiles(values: Sequence[float]) -> Quartiles:
    return Quartiles(*statistics.quantiles(values, n=4))


def report(loaded: LoadedExperiment, times: dict[str, list[Times]]) -> dict[str, Any]:
    """What each costs as a share of training time, by each clock."""
    between, bare = 60 * loaded.recipe.checkpoints.minutes, times["neither"]
    summary: dict[str, Any] = {"slices": len(bare), "slice_s": statistics.median(one["wall"] for one in bare)}
    for clock in CLOCKS:
        metrics = zip((one[clock] for one in times["metrics"]), (one[clock] for one in bare), strict=True)
        saving = zip((one[clock] for one in times["checkpoints"]), (one[clock] for one in bare[::SAVED]), strict=True)
        summary[f"metrics {clock}"] = quartiles([one / other - 1 for one, other in metrics])
        summary[f"checkpoints {clock}"] = quartiles([(one - other) / between for one, other in saving])
        best = {way: fastest([one[clock] for one in times[way]]) for way in WAYS}
        summary[f"metrics {clock} at best"] = best["metrics"] / best["neither"] - 1
        summary[f"checkpoints {clock} at best"] = (best["checkpoints"] - best["neither"]) / between
    return summary


def fastest(seconds: Sequence[float]) -> float:
    """The tenth of all slices that the machine disturbed least: the time by which it was done."""
    return statistics.quantiles(seconds, n=10)[0]


def as_markdown(found: Mapping[str, Mapping[str, Any]]) -> str:
    """A table to paste into RESULTS.md."""
    head = [f"| recipe | slices | {' | '.join(COLUMNS)} |", "|---|---:" + "|---:" * len(COLUMNS) + "|"]
    return "\n".join([*head, *(as_line(name, summary) for name, summary in found.items())])


def as_line(name: str, summary: Mapping[str, Any]) -> str:
    """What was found of one recipe, as a line of the table."""
    shares = (one if isinstance(one, Quartiles) else f"{one:+.2%}" for one in (summary[column] for column in COLUMNS))
    return f"| {name} | {summary['slices']} × {summary['slice_s']:.2f} s | {' | '.join(map(str, shares))} |"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", metavar="RECIPE|KEY=VALUE", help="recipes, and changes to all of them")
    parser.add_argument("--seconds", type=float, default=240.0, help="for each recipe")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_intermixed_args(arguments)


def main() -> None:
    o = parse()
    changes = ["threads=1", *(word for word in o.words if "=" in word)]
    found = {}
    for name in [word for word in o.words if "=" not in word] or RECIPES:
        loaded = load_experiment(name, changes)
        found[name] = report(loaded, measure(loaded, o.seconds))
        print(as_line(name, found[name]), file=sys.stderr, flush=True)  # an early stop keeps the first ones
    about = machine()
    if o.json:
        o.json.write_text(json.dumps({"machine": about, "recipes": found}, indent=2) + "\n", encoding="utf-8")
    print(f"{' '.join(changes)}; {', '.join(f'{name} {value}' for name, value in about.items())}\n")
    print(as_markdown(found))


if __name__ == "__main__":
    main()
