"""What networks read of an observation: 28 numbers of the whole, or some numbers for each action."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from townlet.decide.domain import GateResult, ObservationBatch
from townlet.decide.domains.hive.chunks import (
    ACTIONS,
    CHUNKS,
    COMBAT,
    COSTS,
    COUNTS,
    ENERGY,
    SIDE,
    TYPES,
)
from townlet.decide.domains.hive.gate import COMPONENTS
from townlet.decide.domains.hive.sums import describe
from townlet.jit import jit_if_available

CROWDS: Final = 5  # chunks that are described: those with most workers
OF_CROWD: Final = 5
FEATURES: Final = CROWDS * OF_CROWD + 3
PURSE: Final = ("queen_energy", "player_energy_start", "player_energy_end")
MOST: Final = (6.0, 4.0)  # so many parasites of a type that can be paid for count as plenty

AROUND: Final = ("workers", "mining", "protectors", "parasites")
STEPS: Final = 2  # so far to each side is around: all that is nearer than 3 chunks, which a parasite scares
MANY: Final = 8.0  # so many around a chunk, or in all, count as plenty
OF_ACTION: Final = len(COMPONENTS) + 2 + len(AROUND) + 1 + 4

Numbers = NDArray[np.float64]
Inputs = NDArray[np.float32]


def rate(start: ArrayLike, end: ArrayLike) -> Numbers:
    """How much something grew, in [−1, 1]: (end − start) / max(start, end), 0 where both are 0."""
    before, after = np.asarray(start, np.float64), np.asarray(end, np.float64)
    top = np.maximum(before, after)
    return np.clip(np.divide(after - before, top, out=np.zeros(top.shape), where=top > 0), -1.0, 1.0)


def summary(scene: ObservationBatch) -> Inputs:
    """The 28 numbers of each observation [B, 28]: five for each of the five largest crowds, then three of the purse."""
    columns = [np.ascontiguousarray(scene[name]) for name in (*COUNTS, *PURSE)]
    features = np.zeros((len(columns[0]), FEATURES), np.float32)
    jit_if_available(describe)(*columns, CROWDS, COSTS, MOST, features)
    return features


def candidates(verdicts: GateResult) -> NDArray[np.bool_]:
    """The actions that are worth a thought [B, 800]: those that the gate sends, else what can be paid for, else all."""
    affordable = np.where(verdicts.rated.any(1, keepdims=True), verdicts.rated, True)
    return np.where(verdicts.send.any(1, keepdims=True), verdicts.send, affordable)


def by_action(scene: ObservationBatch, verdicts: GateResult) -> Inputs:
    """What is known of each action [B, 800, 15]: the gate's estimate, who is around, and the state of the whole."""
    many = len(verdicts.send)
    out = np.empty((many, len(TYPES), CHUNKS, OF_ACTION), np.float32)
    flat = out.reshape(many, ACTIONS, OF_ACTION)
    last = len(COMPONENTS)
    flat[..., :last] = verdicts.components
    flat[..., last] = verdicts.expected
    out[:, ENERGY, :, last + 1], out[:, COMBAT, :, last + 1] = 0.0, 1.0
    out[..., last + 2 : last + 6] = _around(scene)[:, None]
    energy = scene["queen_energy"]
    for kind, cost in enumerate(COSTS):
        out[:, kind, :, last + 6] = np.minimum(1.0, cost / np.maximum(energy, 1.0))[:, None]
    whole = (
        np.minimum(1.0, energy / np.maximum(scene["queen_energy_max"], 1.0)),
        rate(scene["player_energy_start"], scene["player_energy_end"]),
        np.minimum(1.0, _workers(scene).sum(1) / MANY),
        np.minimum(1.0, scene["protectors"].sum(1) / MANY),
    )
    out[..., last + 7 :] = np.stack(whole, 1)[:, None, None]
    return flat


def _workers(scene: ObservationBatch) -> NDArray[np.uint16]:
    """How many workers are in each chunk [B, 400]: whoever mines is not among those present."""
    return np.add(scene["present"], scene["mining"], dtype=np.uint16)


def _around(scene: ObservationBatch) -> Inputs:
    """How many of each kind are around each chunk [B, 400, 4], as a share of plenty."""
    parasites = np.add(scene["energy_end"], scene["combat_end"], dtype=np.uint16)
    kinds = (_workers(scene), scene["mining"], scene["protectors"], parasites)
    wide = np.zeros((len(parasites), SIDE + 2 * STEPS, SIDE + 2 * STEPS, len(kinds)), np.float32)
    for place, counts in enumerate(kinds):
        wide[:, STEPS:-STEPS, STEPS:-STEPS, place] = counts.reshape(-1, SIDE, SIDE)
    windows = [slice(step, step + SIDE) for step in range(2 * STEPS + 1)]
    beside = sum((wide[:, window] for window in windows[1:]), wide[:, windows[0]])
    around = sum((beside[:, :, window] for window in windows[1:]), beside[:, :, windows[0]])
    share: Inputs = np.minimum(1.0, around / np.float32(MANY))
    return share.reshape(-1, CHUNKS, len(kinds))
