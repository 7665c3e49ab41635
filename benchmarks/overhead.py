"""Cost of metrics and checkpoints: `python benchmarks/overhead.py town:ppo town:dqn town-l0:dqn town:life`.

One training runs in short slices of equal work, in alternating modes: bare, with metrics (store, log, TensorBoard,
highlights), and with a checkpoint at the end. It is a single training, because the memory layout of two equal ones
can differ by more than metrics cost. The speed of the machine varies, so only slices of one turn are compared, each
with the bare slice next to it; the report shows median and quartiles over turns. Noise only makes slices slower, so "at
best" compares the fastest tenth of the slices of each mode.

The cost of metrics is a fraction of the bare time, and a slice holds whole intervals of metrics. The cost of a
checkpoint is a fraction of the recipe's time between checkpoints. Evaluations are excluded.

Everything runs on one thread, so that CPU time measures work and not waiting. CPU time is robust against other load on
the machine; wall time also counts waiting for the disk.
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
from townlet.train.sinks import LogFile, TensorBoard, closing_sinks
from townlet.train.stop_conditions import StopConditions
from townlet.train.training import build_training
from townlet.train.tuning import SettingChange

RECIPES: Final = ("town:ppo", "town:dqn", "town-l0:dqn", "town:life")
MODES: Final = ("bare", "metrics", "checkpoints")
CLOCKS: Final = {"CPU": time.process_time, "wall": time.perf_counter}
COLUMNS: Final = [f"{what} {clock}{how}" for what in MODES[1:] for clock in CLOCKS for how in ("", " at best")]
SAVE_EVERY: Final = 8  # turns between checkpoints, which are expensive and vary little
MIN_TURNS: Final = 3 * SAVE_EVERY
NEVER: Final = 10**15  # env_steps

Times = dict[str, float]  # seconds of a slice by clock


class NullLogger(NullListener):
    """A logger and checkpointer that store nothing."""

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

    def on_video(self, path: Path) -> None:
        """Ignored."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Ignored."""

    def save_snapshot(self, score: float | None = None) -> None:
        """Ignored."""

    def state(self) -> State:
        """Nothing to save."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""


class Turns:
    """One training, continued in slices, each with the logger and checkpointer of its mode."""

    def __init__(self, loaded: LoadedExperiment, folder: Path, stack: ExitStack) -> None:
        recipe = loaded.recipe
        null: Any = NullLogger()
        endless = recipe.model_copy(update={"budget": Budget(env_steps=NEVER)})  # schedules follow the real budget
        self.t, self.limits = build_training(loaded), StopConditions(endless, NEVER, pause_at=0)
        run = Run.create(folder, recipe.env, "overhead", "", "", {})
        lock = stack.enter_context(Lock(run.path))
        store = stack.enter_context(MetricsStore(run.metrics_file, lock.check))
        sinks = stack.enter_context(closing_sinks([LogFile(run.log_file), TensorBoard(run.tensorboard)]))
        every, whole = recipe.to_env_steps(recipe.metrics.every), recipe.metrics.whole_episodes
        self.logger = MetricsLogger(self.t, every, whole, store, sinks)
        checkpointer = Checkpointer(run, lock, self.t, null, store, self.limits, {})
        self.modes: dict[str, tuple[Any, Any]] = {  # logger and checkpointer
            "bare": (null, null),
            "metrics": (self.logger, null),
            "checkpoints": (null, checkpointer),
        }
        assert isinstance(self.t.env, Town)
        self.engine = self.t.env.engine
        self.used = self.engine.used
        stack.callback(self.t.env.close)

    def run_slice(self, mode: str, steps: int) -> Times:
        """Time one slice. It ends with a pause, at which the checkpointer saves."""
        now = self.t.counters.env_steps
        self.engine.used = self.used if mode == "metrics" else self.used[:0]  # usage is only counted for metrics
        self.logger.restore({**self.logger.state(), "since": now})  # it did not see the slices in between
        start = {name: clock() for name, clock in CLOCKS.items()}
        self.limits.pause_at = now + steps
        train_loop(self.t, self.limits, *self.modes[mode], _no_evaluation)
        return {name: clock() - start[name] for name, clock in CLOCKS.items()}


def _no_evaluation() -> EvaluationResult:
    raise AssertionError("nothing is evaluated here")


def measure(loaded: LoadedExperiment, seconds: float) -> dict[str, list[Times]]:
    """Times of every slice by mode; the order of modes alternates."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        training, recipe = Turns(loaded, Path(folder), stack), loaded.recipe
        once = recipe.row_count * training.t.agent.update_interval
        for mode in MODES:
            training.run_slice(mode, max(once, getattr(recipe.agent, "warmup", 0)))
        every = recipe.to_env_steps(recipe.metrics.every)
        steps = every * math.ceil(once / every)
        times: dict[str, list[Times]] = {mode: [] for mode in MODES}
        end, turn = time.perf_counter() + seconds, 0
        while turn < MIN_TURNS or time.perf_counter() < end:
            for mode in MODES if turn % 2 else MODES[::-1]:
                if mode != "checkpoints" or turn % SAVE_EVERY == 0:
                    times[mode].append(training.run_slice(mode, steps))
            turn += 1
        return times


class Quartiles(NamedTuple):
    """Quartiles over all turns."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.2%} ({self.low:+.2%} … {self.high:+.2%})"


def quartiles(values: Sequence[float]) -> Quartiles:
    return Quartiles(*statistics.quantiles(values, n=4))


def report(loaded: LoadedExperiment, times: dict[str, list[Times]]) -> dict[str, Any]:
    """The cost of each mode as a fraction of training time, by each clock."""
    between, bare = 60 * loaded.recipe.checkpoints.minutes, times["bare"]
    summary: dict[str, Any] = {"slices": len(bare), "slice_s": statistics.median(one["wall"] for one in bare)}
    for clock in CLOCKS:
        metrics = zip((one[clock] for one in times["metrics"]), (one[clock] for one in bare), strict=True)
        paired = bare[::SAVE_EVERY]
        saving = zip((one[clock] for one in times["checkpoints"]), (one[clock] for one in paired), strict=True)
        summary[f"metrics {clock}"] = quartiles([one / other - 1 for one, other in metrics])
        summary[f"checkpoints {clock}"] = quartiles([(one - other) / between for one, other in saving])
        best = {mode: fastest([one[clock] for one in times[mode]]) for mode in MODES}
        summary[f"metrics {clock} at best"] = best["metrics"] / best["bare"] - 1
        summary[f"checkpoints {clock} at best"] = (best["checkpoints"] - best["bare"]) / between
    return summary


def fastest(seconds: Sequence[float]) -> float:
    """The first decile: slices that the machine disturbed least."""
    return statistics.quantiles(seconds, n=10)[0]


def as_markdown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A table to paste into RESULTS.md."""
    head = [f"| recipe | slices | {' | '.join(COLUMNS)} |", "|---|---:" + "|---:" * len(COLUMNS) + "|"]
    return "\n".join([*head, *(as_line(name, summary) for name, summary in results.items())])


def as_line(name: str, summary: Mapping[str, Any]) -> str:
    """The results of one recipe as a line of the table."""
    shares = (one if isinstance(one, Quartiles) else f"{one:+.2%}" for one in (summary[column] for column in COLUMNS))
    return f"| {name} | {summary['slices']} × {summary['slice_s']:.2f} s | {' | '.join(map(str, shares))} |"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", metavar="RECIPE|KEY=VALUE", help="recipes, and overrides for all of them")
    parser.add_argument("--seconds", type=float, default=240.0, help="per recipe")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_intermixed_args(arguments)


def main() -> None:
    o = parse()
    changes = ["threads=1", *(word for word in o.words if "=" in word)]
    results = {}
    for name in [word for word in o.words if "=" not in word] or RECIPES:
        loaded = load_experiment(name, changes)
        results[name] = report(loaded, measure(loaded, o.seconds))
        print(as_line(name, results[name]), file=sys.stderr, flush=True)  # an interrupted run shows the first results
    about = machine()
    if o.json:
        o.json.write_text(json.dumps({"machine": about, "recipes": results}, indent=2) + "\n", encoding="utf-8")
    print(f"{' '.join(changes)}; {', '.join(f'{name} {value}' for name, value in about.items())}\n")
    print(as_markdown(results))


if __name__ == "__main__":
    main()
