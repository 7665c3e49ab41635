"""Ways to choose without learning, to be measured against. Each takes verdicts of all actions and gives actions [B]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.domain import Baseline, GateResult, ObservationBatch
from townlet.decide.domains.hive.chunks import CHUNKS, COMBAT, DISTANCE, ENERGY

Actions = NDArray[np.int64]


def random(scene: ObservationBatch, verdicts: GateResult, rng: np.random.Generator) -> Actions:
    """Any action that can be paid for, all alike; any at all where none can."""
    possible = np.where(verdicts.rated.any(1, keepdims=True), verdicts.rated, True)
    chosen: Actions = np.where(possible, rng.random(possible.shape), -1.0).argmax(1)
    return chosen


def nearest_worker(scene: ObservationBatch, verdicts: GateResult, rng: np.random.Generator) -> Actions:
    """The cheapest parasite at the worker who is nearest to the hive; at the hive where there is none."""
    workers = (scene["present"] > 0) | (scene["mining"] > 0)
    nearest = np.where(workers, DISTANCE[scene["hive"]], np.inf).argmin(1)
    chunk = np.where(workers.any(1), nearest, scene["hive"])
    only_combat = verdicts.rated[:, COMBAT * CHUNKS] & ~verdicts.rated[:, ENERGY * CHUNKS]
    return (np.where(only_combat, COMBAT, ENERGY) * CHUNKS + chunk).astype(np.int64)


def gate_greedy(scene: ObservationBatch, verdicts: GateResult, rng: np.random.Generator) -> Actions:
    """The action that the gate thinks best."""
    best: Actions = np.where(verdicts.rated, verdicts.expected, -np.inf).argmax(1)
    return best


BASELINES: Final[Mapping[str, Baseline]] = {
    "random": random,
    "nearest_worker": nearest_worker,
    "gate_greedy": gate_greedy,
}
