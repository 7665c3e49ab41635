"""The decision path: observations → gate estimates → network → sampled actions → decisions. It never blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.models import StrictModel
from townlet.decide.domain import Decision, Domain, GateResult, Observation, ObservationBatch, ObservationRow
from townlet.decide.storage.versions import NetworkVersion
from townlet.jit import jit_if_available

NO_VERSION: Final = 0  # version number of decisions that the gate made alone
SMALL_BATCH: Final = 16  # largest batch for which a policy's `small_batch` function is faster than torch


class LazyBatch(dict[str, NDArray[Any]]):
    """A batch of observations whose columns are stacked on first access; most callers read few."""

    def __init__(self, rows: Sequence[ObservationRow]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, name: str) -> NDArray[Any]:
        # For a single observation, the common case, a view takes a fifth of the time of a copy; for several, np.array
        # takes a fraction of the time of np.stack.
        rows = self._rows
        column = np.asarray(rows[0][name])[None] if len(rows) == 1 else np.array([row[name] for row in rows])
        self[name] = column
        return column


class Decider:
    """Samples actions from a policy and applies the gate."""

    def __init__(self, domain: Domain, policy: str, explore: bool, generator: np.random.Generator) -> None:
        self._domain, self._policy, self._explore, self._generator = domain, policy, explore, generator

    def decide(
        self, observations: Sequence[Observation], gate: StrictModel, version: NetworkVersion | None
    ) -> list[Decision]:
        """One decision per observation; without a version, the action with the gate's highest estimate is taken."""
        domain, rows = self._domain, np.arange(len(observations))
        batch = LazyBatch([observation.row for observation in observations])
        time = np.array([observation.time for observation in observations])
        result = domain.gate(batch, time, gate)
        if version is None:
            probabilities = np.zeros(result.expected.shape)
            probabilities[rows, domain.baselines["gate_greedy"](batch, result, self._generator)] = 1.0
        else:
            probabilities = self._probabilities(version, batch, time, result)
        action, entropy = sample_actions(probabilities, self._generator)
        if not self._explore:
            action = probabilities.argmax(1)
        propensity = probabilities[rows, action] if self._explore else np.ones(len(observations))
        number, chosen = NO_VERSION if version is None else version.version, result.select(action)
        estimates = zip(chosen.expected.tolist(), chosen.rated, strict=True)
        expected = [estimate if rated else None for estimate, rated in estimates]
        columns = zip(
            action.tolist(), propensity.tolist(), domain.confidence(probabilities).tolist(), chosen.send.tolist(),
            [domain.reasons[reason] for reason in chosen.reason], expected, chosen.components,
            probabilities.astype(np.float32), entropy.tolist(), strict=True,
        )  # fmt: skip
        return [Decision(number, *values) for values in columns]

    def _probabilities(
        self, version: NetworkVersion, batch: ObservationBatch, time: NDArray[np.float64], gate_result: GateResult
    ) -> NDArray[np.float64]:
        """Action probabilities [B, K] of one version."""
        policy = self._domain.policies[self._policy]
        inputs = policy.inputs(batch, time, gate_result)
        if policy.small_batch and len(time) <= SMALL_BATCH:
            return policy.small_batch(version.network, *inputs)
        with torch.inference_mode():
            result: NDArray[np.float64] = version.network(*map(torch.from_numpy, inputs)).double().exp().numpy()
        result /= result.sum(1, keepdims=True)
        return result


def sample_actions(
    probabilities: NDArray[np.float64], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample one action per row [B] from probabilities [B, K]; also returns the normalized entropies [B]."""
    actions, entropies = np.empty(len(probabilities), np.int64), np.empty(len(probabilities))
    points = generator.random(len(probabilities))
    jit_if_available(_sample_rows)(np.ascontiguousarray(probabilities), points, actions, entropies)
    return actions, entropies


def _sample_rows(probabilities, points, actions, entropies):  # type: ignore[no-untyped-def]
    """Inverse transform sampling: write actions [B] for uniform points [B] in [0, 1), and entropies [B].

    No action of probability 0 is chosen. An entropy is divided by that of a uniform choice among the possible actions.
    Compiled by Numba if it is installed.
    """
    n_rows, n_actions = probabilities.shape
    for row in range(n_rows):
        total, entropy, possible = 0.0, 0.0, 0
        for action in range(n_actions):
            p = probabilities[row, action]
            total += p
            if p > 0.0:
                entropy -= p * log(p)
                possible += 1
        point, cumulative, chosen = points[row] * total, 0.0, 0
        for action in range(n_actions):
            cumulative += probabilities[row, action]
            if probabilities[row, action] > 0.0:
                chosen = action  # the last possible one if rounding leaves the sum below the total
                if cumulative > point:
                    break
        actions[row] = chosen
        entropies[row] = max(entropy / log(max(possible, 2)), 0.0)


def sample_observation(domain: Domain) -> Observation:
    """An example of an observation, in a new territory."""
    observation = domain.parse_observation(domain.example())
    return observation._replace(row=observation.row | domain.initial_territory_state())
