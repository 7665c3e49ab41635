"""Ranking beside Vowpal Wabbit, on the events of `benchmarks/peers/rank_vw.py`.

    python benchmarks/rank.py play rank.npz townlet.npz    # the service on all data sets and seeds
    python benchmarks/rank.py table rank.npz townlet.npz   # mean rewards of all learners

Every event goes through the service, as in production: it is logged, ranked by the version that serves, and rewarded at
once. A training round (`learning.interval`) follows every `--round` events; it publishes a version, which serves only
if the offline evaluation promotes it. Vowpal Wabbit learns after every event.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from townlet.decide.clock import ManualClock
from townlet.decide.domains import DOMAINS
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.file import FileStorage
from townlet.decide.training_thread import TrainingThread

EARLY: Final = 1000  # events of the first column
EVENTS_PER_STEP: Final = 4  # a batch of 32 for every 4 events: 8 samples per event, as by default


def play(folder: Path, features: Any, classes: Any, overrides: Sequence[str], every: int) -> tuple[Any, str]:
    """Rewards [N] of the service, and its verdicts and latency."""
    steps = f"learning.gradient_steps={max(1, every // EVENTS_PER_STEP)}"
    settings = load_settings("rank", ["learning.interval=0", steps, *overrides], DOMAINS)
    clock = ManualClock(0.0)
    storage = FileStorage(folder, DOMAINS["rank"], settings, clock)
    service, training = Service(storage), TrainingThread(storage)
    training.publish()
    actions = [{"id": f"class {k}"} for k in range(int(classes.max()) + 1)]
    rewards, seconds = np.zeros(len(classes)), np.zeros(len(classes))
    for event, values in enumerate(features):
        context = {f"f{k}": float(value) for k, value in enumerate(values)}
        message = {"type": "rank_request", "eventId": str(event), "contextFeatures": [context], "actions": actions}
        started = time.process_time()
        reply = service.answer([message])[0].reply
        seconds[event] = time.process_time() - started
        rewards[event] = reply["rewardActionId"] == f"class {classes[event]}"
        service.report({"type": "reward", "eventId": str(event), "value": float(rewards[event])})
        clock.now += 1.0
        if event % every == every - 1:
            training.train_round()
    service.close()
    return rewards, f"{training.progress.verdicts}, {1000 * np.median(seconds):.2f} ms of CPU per decision"


def play_all(data: Mapping[str, Any], out: str, overrides: Sequence[str], every: int) -> None:
    results: dict[str, Any] = {}
    for key in (key for key in data if key.endswith(".features")):
        run = key.removesuffix(".features")
        with tempfile.TemporaryDirectory() as folder:
            rewards, notes = play(Path(folder) / "service", data[key], data[f"{run}.classes"], overrides, every)
        results[f"{run}.townlet"] = rewards
        np.savez_compressed(out, **results)
        print(f"{run}: {rewards[:EARLY].mean():.3f} {rewards.mean():.3f} {notes}", flush=True)


def print_table(data: Mapping[str, Any]) -> None:
    rewards: dict[tuple[str, str], list[Any]] = {}  # by data set and learner
    for key in data:
        name, _, learner = key.split(".")
        if learner not in ("features", "classes"):
            rewards.setdefault((name, learner), []).append(data[key])
    print("| data set | learner | seeds | first 1,000 events | all events |\n|---|---|---:|---:|---:|")
    for (name, learner), runs in sorted(rewards.items()):
        columns = ([float(run[:count].mean()) for run in runs] for count in (EARLY, None))
        shown = " | ".join(
            f"{np.mean(means):.3f} ± {np.std(means, ddof=min(1, len(means) - 1)):.3f}" for means in columns
        )
        print(f"| {name} | {learner} | {len(runs)} | {shown} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["play", "table"])
    parser.add_argument("files", nargs="+", help="events and rewards; the last one is written by `play`")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], help="such as options.update=doubly_robust")
    parser.add_argument("--round", type=int, default=25, help="events between two training rounds")
    arguments = parser.parse_args()
    files = arguments.files if arguments.action == "table" else arguments.files[:-1]
    data = {key: values for file in files for key, values in np.load(file).items()}
    if arguments.action == "table":
        print_table(data)
    else:
        play_all(data, arguments.files[-1], arguments.overrides, arguments.round)


if __name__ == "__main__":
    main()
