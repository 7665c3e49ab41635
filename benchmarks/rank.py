"""Ranking beside Vowpal Wabbit: `python benchmarks/rank.py rank.npz`, with the file of `benchmarks/peers/rank_vw.py`.

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

from townlet.decide.domains import DOMAINS
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.training_thread import TrainingThread

EARLY: Final = 1000  # events of the first column


def play(folder: Path, features: Any, classes: Any, overrides: Sequence[str], every: int) -> Any:
    """Rewards [N] of the service."""
    settings = load_settings(
        "rank", ["learning.interval=0", f"learning.gradient_steps={max(1, every // 4)}", *overrides], DOMAINS
    )
    now = [0.0]
    service = Service(folder, DOMAINS["rank"], settings, lambda: now[0])
    training = TrainingThread(service)
    training.publish()
    actions = [{"id": f"class {k}"} for k in range(int(classes.max()) + 1)]
    rewards = np.zeros(len(classes))
    for event, values in enumerate(features):
        context = {f"f{k}": float(value) for k, value in enumerate(values) if value}
        message = {"type": "rank_request", "eventId": str(event), "contextFeatures": [context], "actions": actions}
        reply = service.answer([message])[0].reply
        rewards[event] = reply["rewardActionId"] == f"class {classes[event]}"
        service.report({"type": "reward", "eventId": str(event), "value": float(rewards[event])})
        now[0] += 1.0
        if event % every == every - 1:
            training.train_round()
    service.close()
    return rewards


def rewards_of(data: Mapping[str, Any], name: str, seed: int, overrides: Sequence[str], every: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        features, classes = data[f"{name}.{seed}.features"], data[f"{name}.{seed}.classes"]
        return play(Path(folder) / "service", features, classes, overrides, every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("overrides", nargs="*", help="settings, such as options.update=doubly_robust")
    parser.add_argument("--sets", nargs="+", default=["digits", "wine", "cancer", "drift"])
    parser.add_argument("--round", type=int, default=20, help="events between two training rounds")
    arguments = parser.parse_args()
    data = np.load(arguments.data)
    learners = sorted({key.split(".")[2] for key in data} - {"features", "classes"})
    print("| data set | learner | first 1,000 events | all 10,000 events |\n|---|---|---:|---:|")
    for name in arguments.sets:
        seeds = sorted({int(key.split(".")[1]) for key in data if key.startswith(f"{name}.")})
        started = time.monotonic()
        rewards = {
            "townlet": [rewards_of(data, name, seed, arguments.overrides, arguments.round) for seed in seeds],
            **{learner: [data[f"{name}.{seed}.{learner}"] for seed in seeds] for learner in learners},
        }
        for learner, runs in rewards.items():
            early, all_events = ([float(run[:count].mean()) for run in runs] for count in (EARLY, None))
            shown = [
                f"{np.mean(column):.3f} ± {np.std(column, ddof=1) if len(column) > 1 else 0:.3f}"
                for column in (early, all_events)
            ]
            print(f"| {name} | {learner} | {' | '.join(shown)} |", flush=True)
        print(f"<!-- {name}: {time.monotonic() - started:.0f} s -->", flush=True)


if __name__ == "__main__":
    main()
