"""Data of the ranking benchmark, and Vowpal Wabbit on it: `python benchmarks/peers/rank_vw.py rank.npz`.

Runs in an environment of its own: `pip install vowpalwabbit scikit-learn`. Writes the events of all data sets and
seeds, and the rewards that Vowpal Wabbit earned, for `benchmarks/rank.py`.

A classification data set becomes a bandit: the features are the context, the classes the actions, and the reward is 1
if the chosen class is right. `drift` has five classes, each with a random direction in 20 dimensions; the right one has
the largest projection. In the middle, all directions are drawn again.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np
import vowpalwabbit
from sklearn import datasets

EVENTS: Final = 10_000
SETS: Final = {"digits": datasets.load_digits, "wine": datasets.load_wine, "cancer": datasets.load_breast_cancer}
LEARNERS: Final = {"vw": "", "vw_squarecb": "--squarecb"}  # options besides --cb_explore_adf -q CA


def make_events(name: str, seed: int) -> tuple[Any, Any]:
    """Features [EVENTS, D] and classes [EVENTS]."""
    rng = np.random.default_rng(seed)
    if name == "drift":
        features = rng.normal(size=(EVENTS, 20)).astype(np.float32)
        before, after = rng.normal(size=(2, 5, 20))
        early = np.arange(EVENTS) < EVENTS // 2
        return features, np.where(early, (features @ before.T).argmax(1), (features @ after.T).argmax(1))
    data = SETS[name]()
    order = np.concatenate([rng.permutation(len(data.target)) for _ in range(EVENTS // len(data.target) + 1)])[:EVENTS]
    return data.data[order].astype(np.float32), data.target[order]


def run_vw(features: Any, classes: Any, seed: int, options: str) -> Any:
    """Rewards [EVENTS] of Vowpal Wabbit, which learns after every event."""
    rng, count = np.random.default_rng(seed), int(classes.max()) + 1
    workspace = vowpalwabbit.Workspace(f"--cb_explore_adf -q CA --quiet --random_seed {seed} {options}")
    rewards = np.zeros(len(classes))
    for event, values in enumerate(features):
        shared = "shared |C " + " ".join(f"f{k}:{value:.6g}" for k, value in enumerate(values) if value)
        actions = [f"|A a{k}" for k in range(count)]
        probabilities = np.array(workspace.predict([shared, *actions]))
        probabilities /= probabilities.sum()
        chosen = int(rng.choice(count, p=probabilities))
        rewards[event] = chosen == classes[event]
        actions[chosen] = f"0:{-rewards[event]}:{probabilities[chosen]} {actions[chosen]}"
        workspace.learn([shared, *actions])
    workspace.finish()
    return rewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--sets", nargs="+", default=[*SETS, "drift"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for name in arguments.sets:
        for seed in arguments.seeds:
            features, classes = make_events(name, seed)
            results |= {f"{name}.{seed}.features": features, f"{name}.{seed}.classes": classes}
            for learner, options in LEARNERS.items():
                results[f"{name}.{seed}.{learner}"] = run_vw(features, classes, seed, options)
            np.savez_compressed(arguments.out, **results)
            print(name, seed, flush=True)


if __name__ == "__main__":
    main()
