"""Two policies: one names a chunk and a type at once, the other scores each action that the gate would send."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from townlet.decide.domain import GateResult, ObservationBatch, PolicySpec
from townlet.decide.domains.hive.chances import plain_chances
from townlet.decide.domains.hive.chunks import CHUNKS, TYPES
from townlet.decide.domains.hive.features import FEATURES, OF_ACTION, by_action, candidates, summary
from townlet.jit import jit_if_available
from townlet.nets.layers import MLP, initialize, make_head

NEARLY_ALIKE: Final = 0.01  # the gain of last layers, so that first policies choose nearly uniformly


class Plain(nn.Module):
    """28 → 32 → 16, then 16 → 32 → 400 for the chunk and 16 → 1 for the type: 15 217 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(FEATURES, (32, 16), "relu", layer_norm=False)
        self.chunk_body = MLP(16, (32,), "relu", layer_norm=False)
        self.chunk = make_head(32, CHUNKS, NEARLY_ALIKE)
        self.combat = make_head(16, 1, NEARLY_ALIKE)

    @cached_property
    def numbers(self) -> tuple[NDArray[np.float32], ...]:
        """All weights, layer by layer, as they are at any time: nothing is copied."""
        return tuple(weights.detach().numpy() for weights in self.parameters())

    def forward(self, features: Tensor) -> Tensor:
        """features [B, 28] → logarithms of probabilities [B, 800]: of the chunk, times of the type."""
        seen = self.body(features)
        chunk = log_softmax(self.chunk(self.chunk_body(seen)), -1)
        combat = self.combat(seen)
        return torch.cat((chunk + logsigmoid(-combat), chunk + logsigmoid(combat)), -1)


class Candidates(nn.Module):
    """15 → 32 → 16 → 1, the same for every action: a score of what is known of it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(OF_ACTION, (32, 16), "relu", layer_norm=False)
        self.score = make_head(16, 1, NEARLY_ALIKE)

    def forward(self, features: Tensor, candidates: Tensor) -> Tensor:
        """features [B, 800, 15], candidates [B, 800] → logarithms of probabilities [B, 800], −∞ for the others."""
        scores = self.score(self.body(features)).squeeze(-1)
        return log_softmax(scores.masked_fill(candidates == 0, -torch.inf), -1)


def _plain_inputs(
    scene: ObservationBatch, time: NDArray[np.float64], verdicts: GateResult
) -> tuple[NDArray[np.float32], ...]:
    return (summary(scene),)


def _candidate_inputs(
    scene: ObservationBatch, time: NDArray[np.float64], verdicts: GateResult
) -> tuple[NDArray[np.float32], ...]:
    return by_action(scene, verdicts), candidates(verdicts).astype(np.float32)


def _plain(generator: Generator) -> nn.Module:
    return _drawn(Plain(), generator)


def _candidates(generator: Generator) -> nn.Module:
    return _drawn(Candidates(), generator)


def _drawn(network: nn.Module, generator: Generator) -> nn.Module:
    initialize(network, generator)
    return network


def _few(network: nn.Module, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the plain network says, without torch."""
    assert isinstance(network, Plain)
    chances = np.empty((len(features), len(TYPES) * CHUNKS))
    jit_if_available(plain_chances)(features, *network.numbers, chances)
    return chances


POLICIES: Final[Mapping[str, PolicySpec]] = {
    "plain": PolicySpec("names a chunk and a type at once; small and quick", _plain_inputs, _plain, _few),
    "candidates": PolicySpec("scores the actions that the gate would send", _candidate_inputs, _candidates),
}
