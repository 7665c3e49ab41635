"""The decision path: observations → network → gate → decisions. It reads one whole version and waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.models import StrictModel
from townlet.decide.domain import Domain, GateResult, Observation, ObservationBatch, ObservationRow
from townlet.decide.sampling import draw_actions
from townlet.decide.storage.versions import NetworkVersion
from townlet.jit import jit_if_available

NO_VERSION: Final = 0  # decided by the gate alone
FEW: Final = 16  # observations, up to which a network need not be asked through torch


class DraftDecision(NamedTuple):
    """A decision that nobody knows of yet."""

    version: int
    action: int
    propensity: float
    confidence: float
    send: bool
    reason: str
    expected: float | None
    components: NDArray[np.float64]  # [C]
    probabilities: NDArray[np.float32]  # [K]
    entropy: float  # of these, as a share of the largest that they could have


class LazyBatch(dict[str, NDArray[Any]]):
    """Observations one above the other: a column is put together when somebody reads it, and most read few."""

    def __init__(self, rows: Sequence[ObservationRow]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, name: str) -> NDArray[Any]:
        # A service that keeps up decides one observation at a time: a view of it takes a fifth of the time of a copy.
        # Of several, np.array takes a fraction of the time of np.stack.
        rows = self._rows
        column = np.asarray(rows[0][name])[None] if len(rows) == 1 else np.array([row[name] for row in rows])
        self[name] = column
        return column


def policy_probabilities(
    domain: Domain,
    kind: str,
    snapshot: NetworkVersion,
    scene: ObservationBatch,
    time: NDArray[np.float64],
    verdicts: GateResult,
) -> NDArray[np.float64]:
    """Of all actions [B, K], by one version."""
    policy = domain.policies[kind]
    inputs = policy.inputs(scene, time, verdicts)
    if policy.small_batch and len(time) <= FEW:
        return policy.small_batch(snapshot.network, *inputs)
    with torch.inference_mode():
        found: NDArray[np.float64] = snapshot.network(*map(torch.from_numpy, inputs)).double().exp().numpy()
    found /= found.sum(1, keepdims=True)
    return found


class Decider:
    """Draws actions and lets the gate judge them."""

    def __init__(self, domain: Domain, policy: str, explore: bool, generator: np.random.Generator) -> None:
        self._domain, self._policy, self._explore, self._generator = domain, policy, explore, generator

    def decide(
        self, sights: Sequence[Observation], gate: StrictModel, snapshot: NetworkVersion | None
    ) -> list[DraftDecision]:
        """One decision for each observation; without a version the gate's favourite is taken."""
        domain, lines = self._domain, np.arange(len(sights))
        scene, time = LazyBatch([sight.row for sight in sights]), np.array([sight.time for sight in sights])
        verdicts = domain.gate(scene, time, gate)
        if snapshot is None:
            chances = np.zeros(verdicts.expected.shape)
            chances[lines, domain.baselines["gate_greedy"](scene, verdicts, self._generator)] = 1.0
        else:
            chances = policy_probabilities(domain, self._policy, snapshot, scene, time, verdicts)
        action, spread = sample_actions(chances, self._generator)
        if not self._explore:
            action = chances.argmax(1)
        likely = chances[lines, action] if self._explore else np.ones(len(sights))
        version = NO_VERSION if snapshot is None else snapshot.version
        chosen = verdicts.select(action)
        rated = zip(chosen.expected.tolist(), chosen.rated, strict=True)
        expected = [worth if known else None for worth, known in rated]
        parts = zip(
            action.tolist(), likely.tolist(), domain.confidence(chances).tolist(), chosen.send.tolist(),
            [domain.reasons[reason] for reason in chosen.reason], expected, chosen.components,
            chances.astype(np.float32), spread.tolist(), strict=True,
        )  # fmt: skip
        return [DraftDecision(version, *part) for part in parts]


def sample_actions(
    chances: NDArray[np.float64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """One action of each line [B], by its probability [B, K], never one of probability 0; and their entropies [B]."""
    actions, entropies = np.empty(len(chances), np.int64), np.empty(len(chances))
    jit_if_available(draw_actions)(np.ascontiguousarray(chances), generator.random(len(chances)), actions, entropies)
    return actions, entropies
