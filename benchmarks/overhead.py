"""What metrics and checkpoints cost: `python benchmarks/overhead.py`. The same training with each switched off and on.

Three trainings from the same seed take turns in slices of the same work: with neither, with metrics (store, log,
TensorBoard) and with a checkpoint at the end of every slice. A noisy machine changes its pace, so that only what is
measured at once is compared. Metrics are a share of the bare time; a checkpoint's seconds are a share of the
recipe's time from one to the next. Evaluations are left out of all three.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from sim import machine
from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended
from townlet.curriculum.curriculum import StageChange
from townlet.runs.folder import Run
from townlet.runs.store import Store
from townlet.train.build import build
from townlet.train.evaluate import Evaluated
from townlet.train.journal import Journal
from townlet.train.launch import Saver
from townlet.train.load import Loaded, load
from townlet.train.loop import Limits, loop
from townlet.train.sinks import LogFile, TensorBoard, closing

WAYS: Final = ("neither", "metrics", "checkpoints")
NEVER: Final = 10**15  # env_steps


class Silence:
    """A log and a keeper that keep nothing."""

    def stepped(self) -> None:
        """Nothing is counted."""

    def episodes(self, over: Episodes, ended: Ended) -> None:
        """Nothing is counted."""

    def stages(self, changes: list[StageChange]) -> None:
        """Nothing is written."""

    def update(self, figures: Mapping[str, float]) -> None:
        """Nothing is summed."""

    def tick(self) -> None:
        """Nothing is shown."""

    def evaluated(self, found: Evaluated) -> None:
        """Nothing is written."""

    def finish(self) -> None:
        """Nothing is left."""

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        """Nothing is saved."""

    def state(self) -> State:
        """Nothing is kept."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing was kept."""


class Turns:
    """One training that goes on in slices."""

    def __init__(self, loaded: Loaded, way: str, folder: Path, stack: ExitStack) -> None:
        recipe, silence = loaded.recipe, Silence()
        self.t, self.limits, self.times = build(loaded), Limits(recipe, NEVER, pause_at=0), list[tuple[float, float]]()
        run = Run.create(folder, recipe.env, way, "", "", {})
        store = stack.enter_context(Store(run.metrics_file))
        self.log: Journal | Silence = silence
        if way == "metrics":
            sinks = stack.enter_context(closing([LogFile(run.log_file), TensorBoard(run.tensorboard)]))
            every, whole = recipe.in_steps(recipe.metrics.every), recipe.metrics.whole_episodes
            self.log = Journal(self.t, every, whole, store, sinks)
        self.keeper = Saver(run, self.t, silence, store, self.limits, {}) if way == "checkpoints" else silence
        stack.callback(self.t.env.close)

    def go_on(self, steps: int) -> None:
        """A slice, timed: (wall, CPU) seconds. It ends with a pause, at which the keeper saves."""
        began = time.perf_counter(), time.process_time()
        self.limits.pause_at = self.t.counters.env_steps + steps
        loop(self.t, self.limits, self.log, self.keeper, _nobody)
        self.times.append((time.perf_counter() - began[0], time.process_time() - began[1]))


def _nobody() -> Evaluated:
    raise AssertionError("nothing is evaluated here")


def measure(loaded: Loaded, seconds: float, slices: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds of every slice by way; who begins a turn changes from turn to turn."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        turns = [Turns(loaded, way, Path(folder), stack) for way in WAYS]
        first = loaded.recipe.row_count * turns[0].t.agent.round
        steps = max(first, getattr(loaded.recipe.agent, "warmup", 0))
        for one in turns:  # the first slice warms up
            one.go_on(steps)
            one.go_on(8 * first)
        steps = max(1, round(8 * seconds / slices / len(WAYS) / turns[0].times[-1][0])) * first
        for number in range(slices):
            for place in range(len(WAYS)):
                turns[(number + place) % len(WAYS)].go_on(steps)
        return {way: one.times[2:] for way, one in zip(WAYS, turns, strict=True)}


def report(loaded: Loaded, found: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """What each costs as a share of training time, by the clock on the wall and by CPU time."""
    between, bare = 60 * loaded.recipe.checkpoints.minutes, found["neither"]
    told: dict[str, Any] = {"slice_s": statistics.median(wall for wall, _ in bare), "slices": len(bare)}
    for place, clock in enumerate(("wall", "cpu")):
        pairs = {way: [(a[place], b[place]) for a, b in zip(found[way], bare, strict=True)] for way in WAYS[1:]}
        saving = statistics.median(one - other for one, other in pairs["checkpoints"])
        told[f"metrics_{clock}"] = statistics.median(one / other for one, other in pairs["metrics"]) - 1
        told[f"checkpoint_{clock}_s"] = saving
        told[f"checkpoints_{clock}"] = saving / between
    return told


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("recipe", nargs="?", default="town:ppo")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="changes to the recipe, as threads=1")
    parser.add_argument("--seconds", type=float, default=60.0, help="over all slices")
    parser.add_argument("--slices", type=int, default=60)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_intermixed_args(arguments)


def main() -> None:
    o = parse()
    loaded = load(o.recipe, o.words)
    told = report(loaded, measure(loaded, o.seconds, o.slices))
    if o.json:
        o.json.write_text(json.dumps({"machine": machine(), **told}, indent=2) + "\n", encoding="utf-8")
    print(f"{o.recipe} {' '.join(o.words)}: {told['slices']} slices of {told['slice_s']:.2f} s")
    print(f"metrics: {told['metrics_wall']:+.2%} wall, {told['metrics_cpu']:+.2%} CPU")
    each = f"{told['checkpoint_wall_s']:.3f} s each"
    print(f"checkpoints: {told['checkpoints_wall']:+.2%} wall, {told['checkpoints_cpu']:+.2%} CPU ({each})")


if __name__ == "__main__":
    main()
