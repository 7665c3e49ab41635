"""What metrics and checkpoints cost: `python benchmarks/overhead.py`. The same training with each switched off and on.

Every round trains the recipe three times from the same seed: with neither, with metrics (store, log, TensorBoard),
with checkpoints. What counts is the median over the rounds of the ratio to the bare one, since a noisy machine
changes its pace. The marks (3 % each) are for whole recipes; with few steps both come more often than they do there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended
from townlet.curriculum.curriculum import StageChange
from townlet.runs.folder import Run
from townlet.runs.store import Store
from townlet.train.build import build
from townlet.train.evaluate import Evaluated, evaluate
from townlet.train.journal import Journal
from townlet.train.launch import Saver
from townlet.train.load import Loaded, load
from townlet.train.loop import Limits, loop
from townlet.train.sinks import LogFile, TensorBoard, closing

WAYS: Final = ("neither", "metrics", "checkpoints")


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


def seconds(loaded: Loaded, way: str, folder: Path) -> tuple[float, float]:
    """Train from nothing in this way: (wall, CPU) seconds of the loop."""
    recipe, there = loaded.recipe, loaded.worlds.evaluation
    t, run, silence = build(loaded), Run.create(folder, recipe.env, way, "", "", {}), Silence()
    limits = Limits(recipe, recipe.in_steps(recipe.evaluation.every))
    with Store(run.metrics_file) as store, closing([LogFile(run.log_file), TensorBoard(run.tensorboard)]) as sinks:
        every, whole = recipe.in_steps(recipe.metrics.every), recipe.metrics.whole_episodes
        log = Journal(t, every, whole, store, sinks) if way == "metrics" else silence
        keeper = Saver(run, t, silence, store, limits, {}) if way == "checkpoints" else silence
        began = time.perf_counter(), time.process_time()
        loop(t, limits, log, keeper, lambda: evaluate(t.agent.policy(), there, recipe.evaluation.episodes, 0))
        store.flush()
        taken = time.perf_counter() - began[0], time.process_time() - began[1]
    t.env.close()
    return taken


def measure(loaded: Loaded, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(wall, CPU) seconds of every round by way; who begins a round changes from round to round."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for place in range(len(WAYS)):
            way = WAYS[(number + place) % len(WAYS)]
            with tempfile.TemporaryDirectory() as folder:
                found[way].append(seconds(loaded, way, Path(folder)))
    return found


def report(found: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """By way: median seconds, and the share of time beyond the bare training, by wall and by CPU time."""
    told: dict[str, Any] = {}
    for way, times in found.items():
        told[way] = {"wall_s": statistics.median(wall for wall, _ in times)}
        if way == WAYS[0]:
            continue
        for place, clock in enumerate(("wall", "cpu")):
            ratios = [one[place] / bare[place] for one, bare in zip(times, found[WAYS[0]], strict=True)]
            told[way][f"{clock}_overhead"] = statistics.median(ratios) - 1
    return told


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("recipe", nargs="?", default="town:ppo")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="changes to the recipe, as budget.env_steps=2e6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    o = parse()
    told = report(measure(load(o.recipe, o.words), o.rounds))
    if o.json:
        o.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(f"{o.recipe} {' '.join(o.words)}: {told[WAYS[0]]['wall_s']:.1f} s without metrics and checkpoints")
    for way in WAYS[1:]:
        figures = told[way]
        print(f"{way}: {figures['wall_overhead']:+.1%} wall, {figures['cpu_overhead']:+.1%} CPU ({o.rounds} rounds)")


if __name__ == "__main__":
    main()
