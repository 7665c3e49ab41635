"""What is known of a version: it and the one before it, on decisions that nobody learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.decide.buffer import ExperienceBatch
from townlet.decide.domain import GateResult
from townlet.decide.estimate import fit_rewards, predict_rewards
from townlet.decide.judge import Evidence, VersionSteps, collect_evidence
from townlet.decide.policy_diff import PolicyDiff, compare_policies, concatenate
from townlet.decide.service import Service
from townlet.decide.storage.versions import NetworkVersion

AT_ONCE: Final = 32  # observations: less than a millisecond
FITTED: Final = 500  # of the newest experiences, for the model of rewards
NOBODY: Final = -1  # the number of a decision that never was
NEVER: Final = -1e30  # the logarithm of a probability of 0, as a number that 0 times is 0


class RowCache:
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

    def lines(self, some: slice) -> list[NDArray[Any]]:
        """Some lines of each array; they are not copied."""
        return [array[some] for array in self._arrays]


class OfflineEvaluator:
    """Hears of versions again and again; what was worked out of an observation or a version serves the next time."""

    def __init__(self, service: Service, rest: Callable[[], object] = no_interrupt) -> None:
        """`rest` is called again and again on the way: those who decide need the processor more urgently."""
        self._service, self._rest = service, rest
        capacity = service.state.held_out.capacity
        self._verdicts, self._inputs = RowCache(capacity), RowCache(capacity)  # of the gate, which is the same for life
        self._chances: dict[int, RowCache] = {}  # of the versions that were heard last

    def hear(self, candidate: NetworkVersion, before: NetworkVersion, rng: np.random.Generator) -> Evidence:
        """All that speaks for or against a version.

        What is estimated is the reward of a decision: what the gate would not send earns nothing, for both.
        """
        service, number = self._service, self._verdicts.number
        with service.lock:
            held, new = service.state.held_out.news(number)
        for first in range(0, max(len(new), 1), AT_ONCE):
            self._meet(new, slice(first, first + AT_ONCE))
        with service.lock:
            learned = service.state.buffer.newest(FITTED)
        weights = self._model(learned)
        self._rest()
        seen = [
            self._compared(candidate, before, held, slice(first, min(first + AT_ONCE, len(held))), weights)
            for first in range(0, max(len(held), 1), AT_ONCE)
        ]
        self._chances = {version.version: self._chances[version.version] for version in (candidate, before)}
        sent = np.concatenate([sent for _, sent in seen])  # by the gate of today, as all of it
        return collect_evidence(
            concatenate([diff for diff, _ in seen]),
            np.where(sent & held.send, held.outcome, 0.0),
            held.propensity,
            VersionSteps(candidate.step, service.versions.step_of(candidate.parent), before.step),
            service.settings.judge,
            rng,
            known=held.send | ~sent,
            weights_finite=candidate.finite,
            at=service.clock(),
            rest=self._rest,
        )

    def _compared(
        self,
        candidate: NetworkVersion,
        before: NetworkVersion,
        held: ExperienceBatch,
        lines: slice,
        weights: NDArray[np.float64] | None,
    ) -> tuple[PolicyDiff, NDArray[np.bool_]]:
        """What both versions would do in some of the observations, and whether what was done would be sent today."""
        verdicts, action = GateResult(*self._verdicts.lines(lines)), held.action[lines]
        (new, entropy), (old, entropy_before) = (self._decided(one, held.number, lines) for one in (candidate, before))
        allowed = (new > 0) | (old > 0)
        if not self._service.settings.explore:  # entropies stay the networks' own, in which a collapse shows
            new, old = _likeliest(new), _likeliest(old)
        model = None if weights is None else np.where(verdicts.send, predict_rewards(verdicts.components, weights), 0.0)
        both = (entropy, entropy_before)
        found = compare_policies(new, old, action, verdicts.send, model=model, allowed=allowed, entropies=both)
        sent = verdicts.select(action).send
        self._rest()
        return found, sent

    def _meet(self, new: ExperienceBatch, some: slice) -> None:
        """What the gate says of observations, and what networks are told of them."""
        domain, settings = self._service.domain, self._service.settings
        rows, time = {name: column[some] for name, column in new.rows.items()}, new.time[some]
        verdicts = domain.gate(rows, time, self._service.gate)
        inputs = domain.policies[settings.policy].inputs(rows, time, verdicts)
        self._inputs.write(new.places[some], new.number[some], inputs)
        self._verdicts.write(new.places[some], new.number[some], verdicts)
        self._rest()

    def _decided(self, version: NetworkVersion, number: NDArray[np.int64], lines: slice) -> list[NDArray[np.float32]]:
        """Probabilities [N, K] and entropies [N] of one version in some of the observations that have these numbers."""
        kept = self._chances.setdefault(version.version, RowCache(len(self._verdicts.number)))
        new = np.flatnonzero(kept.number[lines] != number[lines])
        if len(new) or not len(number):
            with torch.inference_mode():
                inputs = (torch.from_numpy(told[new]) for told in self._inputs.lines(lines))
                logs: Tensor = version.network(*inputs)
                chances = logs.exp()
                entropy = -chances.mul(logs.clamp_min(NEVER)).sum(1)  # a logarithm is the slower of the two
            places = lines.start + new
            kept.write(places, number[places], [chances.numpy(), entropy.numpy()])
        return kept.lines(lines)

    def _model(self, learned: ExperienceBatch) -> NDArray[np.float64] | None:
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
