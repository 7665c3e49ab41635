"""What is known of a version: it and the one before it, on decisions that nobody learned from."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.decide.buffer import Sample
from townlet.decide.decider import probabilities
from townlet.decide.estimate import fit_rewards, predict_rewards
from townlet.decide.judge import Ages, Evidence, evidence
from townlet.decide.service import Service
from townlet.decide.versions import Snapshot

FITTED: Final = 500  # of the newest experiences, for the model of rewards


def hear(service: Service, candidate: Snapshot, before: Snapshot, rng: np.random.Generator) -> Evidence:
    """All that speaks for or against a version.

    What is estimated is the reward of a decision: what the gate would not send earns nothing, for both.
    """
    domain, gate = service.domain, service.gate
    with service.lock:
        held = service.ledger.held_out.everything()
        learned = service.ledger.buffer.newest(FITTED)
    verdicts = domain.gate(held.rows, held.time, gate)
    kind = service.settings.policy
    both = [probabilities(domain, kind, version, held.rows, held.time, verdicts) for version in (candidate, before)]
    allowed = (both[0] > 0) | (both[1] > 0)
    if not service.settings.explore:
        both = [_likeliest(chances) for chances in both]
    sent = verdicts.of(held.action).send  # by the gate of today, as all of it
    weights = _model(service, learned)
    model = None if weights is None else np.where(verdicts.send, predict_rewards(verdicts.components, weights), 0.0)
    return evidence(
        both[0], both[1], held.action, np.where(sent & held.send, held.outcome, 0.0), held.propensity, verdicts.send,
        Ages(candidate.step, service.versions.step_of(candidate.parent), before.step), service.settings.judge, rng,
        model=model, known=held.send | ~sent, allowed=allowed, weights_finite=candidate.finite, at=service.clock(),
    )  # fmt: skip


def _likeliest(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """The policy that always takes the likeliest action; what is not finite stays so."""
    found = np.zeros_like(chances)
    found[np.arange(len(chances)), chances.argmax(1)] = 1.0
    return np.where(np.isfinite(chances).all(1, keepdims=True), found, chances)


def _model(service: Service, learned: Sample) -> NDArray[np.float64] | None:
    """Weights of a model of rewards, from what is learned from: what judges must not be fitted to itself."""
    lines = np.flatnonzero(learned.has_outcome)
    if not len(lines):
        return None
    rows = {name: column[lines] for name, column in learned.rows.items()}
    now = service.domain.gate(rows, learned.time[lines], service.gate, learned.action[lines])
    return fit_rewards(now.components, learned.outcome[lines])
