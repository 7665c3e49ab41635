"""The decision path: observations → network → gate → decisions. It reads one whole version and waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.model import Model
from townlet.decide.domain import Domain, Row, Scene, Sight, Verdicts
from townlet.decide.versions import Snapshot

NO_VERSION: Final = 0  # decided by the gate alone


class Draft(NamedTuple):
    """A decision that nobody knows of yet."""

    action: int
    propensity: float
    confidence: float
    send: bool
    reason: str
    expected: float | None
    components: NDArray[np.float64]  # [C]
    version: int
    probabilities: NDArray[np.float32]  # [K]


def stack(rows: Sequence[Row]) -> Scene:
    """Observations one above the other."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}  # np.stack takes several times as long


@torch.inference_mode()
def probabilities(domain: Domain, kind: str, snapshot: Snapshot, scene: Scene, time: NDArray[np.float64],
                  verdicts: Verdicts) -> NDArray[np.float64]:  # fmt: skip
    """Of all actions [B, K], by one version."""
    inputs = domain.policies[kind].inputs(scene, time, verdicts)
    found: NDArray[np.float64] = snapshot.network(*map(torch.from_numpy, inputs)).double().exp().numpy()
    found /= found.sum(1, keepdims=True)
    return found


class Decider:
    """Draws actions and lets the gate judge them."""

    def __init__(self, domain: Domain, policy: str, explore: bool, generator: np.random.Generator) -> None:
        self._domain, self._policy, self._explore, self._generator = domain, policy, explore, generator

    def decide(self, sights: Sequence[Sight], gate: Model, snapshot: Snapshot | None) -> list[Draft]:
        """One decision for each observation; without a version the gate's favourite is taken."""
        domain, lines = self._domain, np.arange(len(sights))
        scene, time = stack([sight.row for sight in sights]), np.array([sight.time for sight in sights])
        verdicts = domain.gate(scene, time, gate)
        if snapshot is None:
            action = domain.baselines["gate_greedy"](scene, verdicts, self._generator)
            chances = np.zeros(verdicts.expected.shape)
            chances[lines, action] = 1.0
        else:
            chances = probabilities(domain, self._policy, snapshot, scene, time, verdicts)
            action = drawn(chances, self._generator) if self._explore else chances.argmax(1)
        sure = domain.confidence(chances)
        likely = chances[lines, action] if self._explore else np.ones(len(sights))
        version = NO_VERSION if snapshot is None else snapshot.version
        return [
            Draft(
                int(a),
                float(likely[b]),
                float(sure[b]),
                bool(verdicts.send[b, a]),
                domain.reasons[verdicts.reason[b, a]],
                float(verdicts.expected[b, a]) if verdicts.rated[b, a] else None,
                verdicts.components[b, a],
                version,
                chances[b].astype(np.float32),
            )
            for b, a in enumerate(action)
        ]


def drawn(chances: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.int64]:
    """One action of each line [B], by its probability [B, K]; never one of probability 0."""
    upto = chances.cumsum(1)
    spots = generator.random((len(chances), 1)) * upto[:, -1:]
    below: NDArray[np.int64] = np.count_nonzero(upto <= spots, axis=1)
    return below.clip(max=chances.shape[1] - 1)
