"""What is known of a version: it and the one before it, on decisions that nobody learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.decide.buffer import Sample
from townlet.decide.domain import Verdicts
from townlet.decide.estimate import fit_rewards, predict_rewards
from townlet.decide.judge import Ages, Evidence, evidence
from townlet.decide.service import Service
from townlet.decide.versions import Snapshot

FITTED: Final = 500  # of the newest experiences, for the model of rewards
NOBODY: Final = -1  # the number of a decision that never was
NEVER: Final = -1e30  # the logarithm of a probability of 0, as a number that 0 times is 0


class Kept:
    """Arrays with a line for each held-out experience, at its place: worked out once, until another one lies there."""

    def __init__(self, capacity: int) -> None:
        self.number = np.full(capacity, NOBODY)  # whose lines these are
        self._arrays: list[NDArray[Any]] = []

    def write(self, places: NDArray[np.int64], number: NDArray[np.int64], lines: Sequence[NDArray[Any]]) -> None:
        """New lines [P, ...] of each array."""
        if not self._arrays:
            self._arrays = [np.empty((len(self.number), *found.shape[1:]), found.dtype) for found in lines]
        self.number[places] = number
        for array, found in zip(self._arrays, lines, strict=True):
            array[places] = found

    def first(self, count: int) -> list[NDArray[Any]]:
        """The lines of the first places [count, ...] of each array; they are not copied."""
        return [array[:count] for array in self._arrays]


class Hearing:
    """Hears of versions again and again; what was worked out of an observation or a version serves the next time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        capacity = service.ledger.held_out.capacity
        self._verdicts, self._inputs = Kept(capacity), Kept(capacity)  # of the gate, which is the same for life
        self._chances: dict[int, Kept] = {}  # of the versions that were heard last

    def hear(self, candidate: Snapshot, before: Snapshot, rng: np.random.Generator) -> Evidence:
        """All that speaks for or against a version.

        What is estimated is the reward of a decision: what the gate would not send earns nothing, for both.
        """
        service = self._service
        with service.lock:
            held, new = service.ledger.held_out.news(self._verdicts.number)
            learned = service.ledger.buffer.newest(FITTED)
        self._meet(new)
        verdicts = Verdicts(*self._verdicts.first(len(held)))
        both, entropies = zip(*(self._decided(version, held.number) for version in (candidate, before)), strict=True)
        self._chances = {version.version: self._chances[version.version] for version in (candidate, before)}
        allowed = (both[0] > 0) | (both[1] > 0)
        if not service.settings.explore:
            both, entropies = tuple(_likeliest(chances) for chances in both), tuple(map(np.zeros_like, entropies))
        sent = verdicts.of(held.action).send  # by the gate of today, as all of it
        weights = self._model(learned)
        model = None if weights is None else np.where(verdicts.send, predict_rewards(verdicts.components, weights), 0.0)
        return evidence(
            both[0], both[1], held.action, np.where(sent & held.send, held.outcome, 0.0), held.propensity,
            verdicts.send, Ages(candidate.step, service.versions.step_of(candidate.parent), before.step),
            service.settings.judge, rng, model=model, known=held.send | ~sent, allowed=allowed,
            entropies=entropies, weights_finite=candidate.finite, at=service.clock(),
        )  # fmt: skip

    def _meet(self, new: Sample) -> None:
        """What the gate says of observations, and what networks are told of them."""
        domain, settings = self._service.domain, self._service.settings
        verdicts = domain.gate(new.rows, new.time, self._service.gate)
        self._verdicts.write(new.places, new.number, verdicts)
        self._inputs.write(
            new.places, new.number, domain.policies[settings.policy].inputs(new.rows, new.time, verdicts)
        )

    def _decided(self, version: Snapshot, number: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """Probabilities [N, K] and entropies [N] of one version, for the experiences of these numbers [N]."""
        kept = self._chances.setdefault(version.version, Kept(len(self._verdicts.number)))
        count = len(number)
        places = np.flatnonzero(kept.number[:count] != number)
        with torch.inference_mode():
            logs: Tensor = version.network(*(torch.from_numpy(lines[places]) for lines in self._inputs.first(count)))
            chances = logs.exp()
            entropy = -chances.mul(logs.clamp_min(NEVER)).sum(1)  # a logarithm is the slower of the two
        kept.write(places, number[places], [chances.numpy(), entropy.numpy()])
        return kept.first(count)

    def _model(self, learned: Sample) -> NDArray[np.float64] | None:
        """Weights of a model of rewards, from what is learned from: what judges must not be fitted to itself."""
        lines = np.flatnonzero(learned.has_outcome)
        if not len(lines):
            return None
        rows = {name: column[lines] for name, column in learned.rows.items()}
        now = self._service.domain.gate(rows, learned.time[lines], self._service.gate, learned.action[lines])
        return fit_rewards(now.components, learned.outcome[lines])


def _likeliest(chances: NDArray[np.float32]) -> NDArray[np.float32]:
    """The policy that always takes the likeliest action; what is not finite stays so."""
    found = np.zeros_like(chances)
    found[np.arange(len(chances)), chances.argmax(1)] = 1.0
    return np.where(np.isfinite(chances).all(1, keepdims=True), found, chances)
