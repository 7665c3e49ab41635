"""Two policies and their inputs: one factors an action into chunk and type, the other scores candidate actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from townlet.decide.domain import GateResult, ObservationBatch, PolicySpec
from townlet.decide.domains.hive.gate import COMPONENTS
from townlet.decide.domains.hive.grid import ACTIONS, CHUNKS, COMBAT, COSTS, COUNTS, ENERGY, SIDE, TYPES
from townlet.decide.domains.hive.kernels import factored_probabilities, summarize
from townlet.jit import jit_if_available
from townlet.nets.layers import MLP, make_head

CROWDS: Final = 5  # the chunks with the most workers, each described by five features
FEATURES: Final = 5 * CROWDS + 3
ENERGY_COLUMNS: Final = ("queen_energy", "player_energy_start", "player_energy_end")
AFFORDABLE_SATURATION: Final = (6.0, 4.0)  # number of affordable parasites of each type at which the feature is 1

NEARBY: Final = ("workers", "mining", "protectors", "parasites")
RADIUS: Final = 2  # chunks to each side that count as nearby: workers there flee from a parasite
COUNT_SATURATION: Final = 8.0  # number nearby, or in total, at which the feature is 1
ACTION_FEATURES: Final = len(COMPONENTS) + 2 + len(NEARBY) + 1 + 4  # in the order of `action_features`
OUTPUT_GAIN: Final = 0.01  # small initial weights of the last layers make initial policies nearly uniform

Inputs = NDArray[np.float32]


def growth_rate(start: ArrayLike, end: ArrayLike) -> NDArray[np.float64]:
    """Growth in [−1, 1]: (end − start) / max(start, end), 0 if both are 0."""
    before, after = np.asarray(start, np.float64), np.asarray(end, np.float64)
    top = np.maximum(before, after)
    return np.clip(np.divide(after - before, top, out=np.zeros(top.shape), where=top > 0), -1.0, 1.0)


def summary_features(batch: ObservationBatch) -> Inputs:
    """Features of each observation [B, 28]: five for each of the five largest crowds, then three about energy."""
    columns = [np.ascontiguousarray(batch[name]) for name in (*COUNTS, *ENERGY_COLUMNS)]
    features = np.zeros((len(columns[0]), FEATURES), np.float32)
    jit_if_available(summarize)(*columns, CROWDS, COSTS, AFFORDABLE_SATURATION, features)
    return features


def candidate_mask(gated: GateResult) -> NDArray[np.bool_]:
    """Actions to consider [B, 800]: those that the gate would send, else affordable ones, else all."""
    affordable = np.where(gated.rated.any(1, keepdims=True), gated.rated, True)
    return np.where(gated.send.any(1, keepdims=True), gated.send, affordable)


def action_features(batch: ObservationBatch, gated: GateResult) -> Inputs:
    """Features of each action [B, 800, 15]: the gate's components and estimate, type, counts nearby, price, globals."""
    rows = len(gated.send)
    out = np.empty((rows, len(TYPES), CHUNKS, ACTION_FEATURES), np.float32)
    flat = out.reshape(rows, ACTIONS, ACTION_FEATURES)
    k = len(COMPONENTS)
    flat[..., :k] = gated.components
    flat[..., k] = gated.expected
    out[:, ENERGY, :, k + 1], out[:, COMBAT, :, k + 1] = 0.0, 1.0
    out[..., k + 2 : k + 6] = _counts_nearby(batch)[:, None]
    energy = batch["queen_energy"]
    for type_index, cost in enumerate(COSTS):
        out[:, type_index, :, k + 6] = np.minimum(1.0, cost / np.maximum(energy, 1.0))[:, None]
    global_features = (
        np.minimum(1.0, energy / np.maximum(batch["queen_energy_max"], 1.0)),
        growth_rate(batch["player_energy_start"], batch["player_energy_end"]),
        np.minimum(1.0, _count_workers(batch).sum(1) / COUNT_SATURATION),
        np.minimum(1.0, batch["protectors"].sum(1) / COUNT_SATURATION),
    )
    out[..., k + 7 :] = np.stack(global_features, 1)[:, None, None]
    return flat


def _count_workers(batch: ObservationBatch) -> NDArray[np.uint16]:
    """Workers in each chunk [B, 400]; `present` does not include those who mine."""
    return np.add(batch["present"], batch["mining"], dtype=np.uint16)


def _counts_nearby(batch: ObservationBatch) -> Inputs:
    """Counts near each chunk [B, 400, 4], in the order of `NEARBY`, relative to saturation."""
    parasites = np.add(batch["energy_end"], batch["combat_end"], dtype=np.uint16)
    kinds = (_count_workers(batch), batch["mining"], batch["protectors"], parasites)
    padded = np.zeros((len(parasites), SIDE + 2 * RADIUS, SIDE + 2 * RADIUS, len(kinds)), np.float32)
    for index, counts in enumerate(kinds):
        padded[:, RADIUS:-RADIUS, RADIUS:-RADIUS, index] = counts.reshape(-1, SIDE, SIDE)
    windows = [slice(step, step + SIDE) for step in range(2 * RADIUS + 1)]
    columns = sum((padded[:, window] for window in windows[1:]), padded[:, windows[0]])
    nearby = sum((columns[:, :, window] for window in windows[1:]), columns[:, :, windows[0]])
    share: Inputs = np.minimum(1.0, nearby / np.float32(COUNT_SATURATION))
    return share.reshape(-1, CHUNKS, len(kinds))


class FactoredPolicy(nn.Module):
    """MLP with separate heads for chunk and type: 28 → 32 → 16, then 16 → 32 → 400 and 16 → 1 (15,217 parameters)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(FEATURES, (32, 16), "relu", layer_norm=False)
        self.chunk_body = MLP(16, (32,), "relu", layer_norm=False)
        self.chunk = make_head(32, CHUNKS, OUTPUT_GAIN)
        self.combat = make_head(16, 1, OUTPUT_GAIN)

    @cached_property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """All weights, layer by layer, as arrays that share memory with the parameters."""
        return tuple(weights.detach().numpy() for weights in self.parameters())

    def forward(self, features: Tensor) -> Tensor:
        """features [B, 28] → log-probabilities [B, 800]: the sum of those of chunk and type."""
        hidden = self.body(features)
        chunk = log_softmax(self.chunk(self.chunk_body(hidden)), -1)
        combat = self.combat(hidden)
        return torch.cat((chunk + logsigmoid(-combat), chunk + logsigmoid(combat)), -1)


class CandidatePolicy(nn.Module):
    """MLP 15 → 32 → 16 → 1, shared by all actions, that scores each action by its features."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(ACTION_FEATURES, (32, 16), "relu", layer_norm=False)
        self.score = make_head(16, 1, OUTPUT_GAIN)

    def forward(self, features: Tensor, candidates: Tensor) -> Tensor:
        """features [B, 800, 15], candidates [B, 800] → log-probabilities [B, 800], −∞ for the others."""
        scores = self.score(self.body(features)).squeeze(-1)
        return log_softmax(scores.masked_fill(candidates == 0, -torch.inf), -1)


def _factored_small_batch(network: nn.Module, features: Inputs) -> NDArray[np.float64]:
    assert isinstance(network, FactoredPolicy)
    probabilities = np.empty((len(features), ACTIONS))
    jit_if_available(factored_probabilities)(features, *network.arrays, probabilities)
    return probabilities


POLICIES: Final[Mapping[str, PolicySpec]] = {
    "plain": PolicySpec(
        "chooses chunk and type independently; small and fast",
        lambda batch, *_: (summary_features(batch),),
        lambda _: FactoredPolicy(),
        _factored_small_batch,
    ),
    "candidates": PolicySpec(
        "scores the actions that the gate would send",
        lambda batch, _, gated: (action_features(batch, gated), candidate_mask(gated).astype(np.float32)),
        lambda _: CandidatePolicy(),
    ),
}
