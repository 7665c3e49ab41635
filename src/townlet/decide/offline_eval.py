"""Offline evaluation of a version: evidence from held-out decisions, and the verdict that follows.

A candidate is compared with the serving version on decisions that were held out of training. The serving
version is compared with the previous one in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.decide import estimate
from townlet.decide.buffer import ExperienceBatch
from townlet.decide.domain import GateResult
from townlet.decide.estimate import Estimate, Floats, PolicyDiff, Values
from townlet.decide.settings import PromotionSettings
from townlet.decide.storage.protocol import LearnerStorage
from townlet.decide.storage.versions import NetworkVersion

CHUNK: Final = 32  # observations evaluated at a time, in less than a millisecond
REWARD_MODEL_SIZE: Final = 500  # newest experiences that the reward model is fitted to
NO_DECISION: Final = -1
LOG_ZERO: Final = -1e30  # finite stand-in for log 0, so that its product with 0 is 0


@dataclass(frozen=True)
class VersionSteps:
    """Training steps of a version, of its parent, and of the version it is compared with."""

    step: int
    parent_step: int
    serving_step: int


@dataclass(frozen=True)
class Evidence:
    """Comparison of a version with the previous one (for a candidate, the serving one). None: unknown."""

    finite: bool  # whether all weights and probabilities of the version are finite
    steps: VersionSteps
    count: int  # held-out experiences with an outcome
    entropy: float | None  # mean normalized entropy
    entropy_before: float | None
    pass_rate: float | None  # mean probability that the gate approves
    pass_rate_before: float | None
    change: float | None  # mean total variation distance between the two
    difference: Estimate  # mean reward of the version minus that of the previous one


class Verdict(NamedTuple):
    """The verdict on a version, and the reason."""

    action: Literal["promote", "hold", "refuse", "keep", "roll_back"]
    reason: str


def collect_evidence(
    diff: PolicyDiff, reward: Floats, propensity: Floats, steps: VersionSteps, settings: PromotionSettings,
    rng: np.random.Generator, *, weights_finite: bool, known: NDArray[np.bool_] | None = None,
    yield_cpu: Callable[[], object] = no_interrupt,
) -> Evidence:  # fmt: skip
    """Evidence from N held-out observations, with rewards and propensities [N] of the decisions taken.

    `weights_finite` must come from the weights themselves: a tanh can hide an infinite one. `known` [N] marks decisions
    with a known reward, all by default. `yield_cpu` is called repeatedly.
    """
    rows = np.arange(len(diff)) if known is None else np.flatnonzero(known)
    finite, finite_before = weights_finite and diff.finite[0], diff.finite[1]
    entropy, pass_rate = _summarize(diff, 0) if finite else (None, None)
    entropy_before, pass_rate_before = _summarize(diff, 1) if finite_before else (None, None)
    change = float(diff.change.mean()) if finite and finite_before and len(diff) else None
    model = None
    if diff.predicted is not None and diff.expected is not None:
        model = estimate.ModelRewards(diff.predicted[rows], *diff.expected[:, rows])
    candidate, baseline = diff.action_probability[:, rows]
    *_, difference = estimate.compare_rewards(
        reward[rows], propensity[rows], candidate, baseline, rng, model=model, clip=settings.clip,
        resamples=settings.resamples, level=settings.confidence_level, yield_cpu=yield_cpu,
    )  # fmt: skip
    return Evidence(finite, steps, len(rows), entropy, entropy_before, pass_rate, pass_rate_before, change, difference)


def judge_candidate(evidence: Evidence, settings: PromotionSettings) -> Verdict:
    """Promote a candidate, hold it for lack of evidence, or refuse it."""
    steps, objection = evidence.steps, ""
    behind = steps.serving_step - steps.parent_step
    if evidence.finite and steps.step <= steps.serving_step:
        objection = f"it is stale: step {steps.step}, while the serving version is from step {steps.serving_step}"
    elif evidence.finite and behind > settings.stale_steps:
        objection = f"it is stale: trained from step {steps.parent_step}, {behind} steps before the serving version"
    objection = objection or _objection(evidence, settings)
    return Verdict("refuse", objection) if objection else _promote_or_hold(evidence, settings)


def judge_serving(evidence: Evidence, settings: PromotionSettings) -> Verdict:
    """Keep the serving version, or roll back to the previous one."""
    if objection := _objection(evidence, settings):
        return Verdict("roll_back", objection)
    return Verdict("keep", f"no evidence against it: the difference in reward is {evidence.difference}")


def _objection(evidence: Evidence, settings: PromotionSettings) -> str:
    """Why a version must not serve: broken, collapsed, refused by the gate, or worse; empty if there is no reason."""
    if not evidence.finite:
        return "its weights or probabilities are not finite"
    gain, sufficient = evidence.difference, _sufficient(evidence.difference, settings)
    now, before = evidence.entropy, evidence.entropy_before
    if now is not None:  # a rising entropy is never a collapse; a significantly better version may have a lower one
        entropy = f"its normalized entropy is {now:.3f}"
        if now < settings.entropy_floor and (before is None or now <= before):
            return f"it has collapsed: {entropy}, below the floor of {settings.entropy_floor:g}"
        better = sufficient and gain.low is not None and gain.low > 0
        if before is not None and now < settings.min_entropy_ratio * before and not better:
            return f"it has collapsed: {entropy}, after {before:.3f} in the previous version"
    now, before = evidence.pass_rate, evidence.pass_rate_before
    if now is not None and before is not None and now < settings.min_pass_ratio * before:
        return f"the gate sends {now:.3f} of its decisions, after {before:.3f} of the previous version's"
    far_worse = gain.value is not None and gain.value < -settings.max_reward_loss
    if sufficient and (far_worse or (gain.high is not None and gain.high < -settings.tolerance)):
        return f"it earns less than the previous version: {gain}"
    return ""


def _summarize(diff: PolicyDiff, which: int) -> tuple[float | None, float | None]:
    """Mean normalized entropy and mean pass rate of one of the two policies; None without observations."""
    if not len(diff):
        return None, None
    free = diff.valid_actions > 1  # with a single action the entropy is always 0
    normalized = diff.entropy[which][free] / np.log(diff.valid_actions[free])
    return float(normalized.mean()) if free.any() else None, float(diff.approval[which].mean())


def _promote_or_hold(evidence: Evidence, settings: PromotionSettings) -> Verdict:
    """Verdict without objections: a large change must be shown to be harmless; a small one need only appear so."""
    gain, tolerance = evidence.difference, settings.tolerance
    small = evidence.change is not None and evidence.change <= settings.small_change
    size = "an unknown fraction" if evidence.change is None else f"{evidence.change:.3f}"
    if not _sufficient(gain, settings):
        if small and (gain.high is None or gain.high >= -tolerance):
            return Verdict("promote", f"it changes only {size} of the decisions; the difference in reward is {gain}")
        return Verdict("hold", f"it changes {size} of the decisions, and there is too little evidence: {gain}")
    if gain.low is not None and gain.low >= -tolerance:
        return Verdict("promote", f"it earns no less than the previous version: {gain}")
    if small and gain.value is not None and gain.value >= -tolerance:
        return Verdict("promote", f"it changes only {size} of the decisions and appears to do no harm: {gain}")
    return Verdict("hold", f"it changes {size} of the decisions and may earn less: {gain}")


def _sufficient(gain: Estimate, settings: PromotionSettings) -> bool:
    return gain.count >= settings.min_count and gain.effective >= settings.min_effective_size


class RowCache:
    """Arrays with one row per slot of the held-out buffer, valid while the slot holds the same decision."""

    def __init__(self, capacity: int) -> None:
        self.number = np.full(capacity, NO_DECISION)  # decision of each row
        self._arrays: list[NDArray[Any]] = []  # allocated at the first write

    def write(self, slots: NDArray[np.int64], number: NDArray[np.int64], rows: Sequence[NDArray[Any]]) -> None:
        if not self._arrays:
            self._arrays = [np.empty((len(self.number), *new.shape[1:]), new.dtype) for new in rows]
        self.number[slots] = number
        for array, new in zip(self._arrays, rows, strict=True):
            array[slots] = new

    def rows(self, part: slice) -> list[NDArray[Any]]:
        """Some rows of each array, not copied."""
        return [array[part] for array in self._arrays]


class OfflineEvaluator:
    """Evaluates versions repeatedly; gate results, inputs and probabilities are cached between evaluations."""

    def __init__(self, storage: LearnerStorage, yield_cpu: Callable[[], object] = no_interrupt) -> None:
        """`yield_cpu` is called repeatedly, because decisions are more urgent than evaluations."""
        self._storage, self._yield_cpu = storage, yield_cpu
        self._policy = storage.domain.policies[storage.settings.policy]
        capacity = storage.state.held_out.capacity
        # These stay valid, since the gate changes only at a restart.
        self._gate_results, self._inputs = RowCache(capacity), RowCache(capacity)
        self._probabilities: dict[int, RowCache] = {}  # by version, of the last evaluation

    def evaluate(self, candidate: NetworkVersion, before: NetworkVersion, rng: np.random.Generator) -> Evidence:
        """Evidence about a version, compared with the one before it.

        Estimates are of the mean reward per decision; an action that the gate would not send earns 0.
        """
        storage = self._storage
        with storage.lock:
            held, new = storage.state.held_out.changes(self._gate_results.number)
        for first in range(0, max(len(new), 1), CHUNK):
            self._update_cache(new, slice(first, first + CHUNK))
        with storage.lock:
            trained = storage.state.buffer.newest(REWARD_MODEL_SIZE)
        reward_model = self._fit_reward_model(trained)
        self._yield_cpu()
        parts = [
            self._compare(candidate, before, held, slice(first, min(first + CHUNK, len(held))), reward_model)
            for first in range(0, max(len(held), 1), CHUNK)
        ]
        self._probabilities = {number: self._probabilities[number] for number in (candidate.version, before.version)}
        sent = np.concatenate([sent for _, sent in parts])  # whether the current gate would send the logged action
        return collect_evidence(
            estimate.concatenate([diff for diff, _ in parts]),
            np.where(sent & held.send, held.outcome, 0.0),
            held.propensity,
            VersionSteps(candidate.step, storage.versions.step_of(candidate.parent), before.step),
            storage.settings.promotion,
            rng,
            known=held.send | ~sent,
            weights_finite=candidate.finite,
            yield_cpu=self._yield_cpu,
        )

    def compare_with_reference(self, serving: NetworkVersion, rng: np.random.Generator) -> Estimate:
        """What recent decisions earned minus what the domain's reference policy would have earned.

        The reference does not learn, so experience that was trained on is used too. If the policy predicts rewards, the
        estimate is doubly robust: SNIPS alone would be wrong once the reference's action is hardly ever chosen where it
        is bad, since it would be judged by the contexts in which it is good. Otherwise it is SNIPS.
        """
        storage, domain = self._storage, self._storage.domain
        with storage.lock:
            experience = [buffer.newest(buffer.capacity) for buffer in (storage.state.buffer, storage.state.held_out)]
        columns: list[tuple[NDArray[Any], ...]] = []
        for batch in experience:
            for part in (slice(first, first + CHUNK) for first in range(0, len(batch), CHUNK)):
                rows = {name: column[part] for name, column in batch.rows.items()}
                gate = domain.gate(rows, batch.time[part], storage.settings.gate)
                reference = domain.baselines[domain.reference](rows, gate, rng)
                predicted, expected = self._predict_two(
                    serving, rows, batch.time[part], gate, batch.action[part], reference
                )
                known = batch.has_outcome[part]
                found = (
                    batch.outcome[part],
                    batch.propensity[part],
                    reference == batch.action[part],
                    predicted,
                    expected,
                )
                columns.append(tuple(column[known] for column in found))
                self._yield_cpu()
        joined = map(np.concatenate, zip(*columns, strict=True)) if columns else [np.zeros(0)] * 5
        reward, propensity, agrees, predicted, expected = joined
        model = estimate.ModelRewards(predicted, predicted, expected) if self._policy.predict is not None else None
        settings = storage.settings.promotion
        *_, difference = estimate.compare_rewards(
            reward, propensity, propensity, agrees, rng, model=model, resamples=settings.resamples,
            level=settings.confidence_level, yield_cpu=self._yield_cpu,
        )  # fmt: skip
        return difference

    def _predict_two(
        self, version: NetworkVersion, rows: Mapping[str, NDArray[Any]], time: Values, gate: GateResult,
        action: NDArray[np.int64], reference: NDArray[np.int64],
    ) -> tuple[Values, Values]:  # fmt: skip
        """Rewards [n] that a version predicts for logged and for reference actions; zeros if it predicts none."""
        if self._policy.predict is None:
            return np.zeros(len(action)), np.zeros(len(action))
        with torch.inference_mode():
            inputs = [torch.from_numpy(column) for column in self._policy.inputs(rows, time, gate)]
            predictions = self._policy.predict(version.network, *inputs).double().numpy()
        every = np.arange(len(action))
        return predictions[every, action], np.where(gate.send[every, reference], predictions[every, reference], 0.0)

    def _compare(
        self, candidate: NetworkVersion, before: NetworkVersion, held: ExperienceBatch, part: slice,
        reward_model: Values | None,
    ) -> tuple[PolicyDiff, NDArray[np.bool_]]:  # fmt: skip
        """Compare both policies on some observations; also returns whether the gate would now send each action."""
        gate, action = GateResult(*self._gate_results.rows(part)), held.action[part]
        new, entropy = self._run_policy(candidate, held.number, part)
        old, entropy_before = self._run_policy(before, held.number, part)
        valid = (new > 0) | (old > 0)
        if not self._storage.settings.explore:  # the entropies stay those of the networks, which show a collapse
            new, old = _greedy(new), _greedy(old)
        predictions = None
        if self._policy.predict is not None:
            with torch.inference_mode():
                inputs = [torch.from_numpy(rows) for rows in self._inputs.rows(part)]
                predictions = self._policy.predict(before.network, *inputs).double().numpy()
        elif reward_model is not None:
            predictions = np.where(gate.send, estimate.predict_rewards(gate.components, reward_model), 0.0)
        diff = estimate.diff_policies(
            new, old, action, gate.send, predictions=predictions, valid=valid, entropies=(entropy, entropy_before)
        )
        self._yield_cpu()
        return diff, gate.select(action).send

    def _update_cache(self, new: ExperienceBatch, part: slice) -> None:
        domain, settings = self._storage.domain, self._storage.settings
        rows, time = {name: column[part] for name, column in new.rows.items()}, new.time[part]
        gate = domain.gate(rows, time, settings.gate)
        inputs = self._policy.inputs(rows, time, gate)
        self._inputs.write(new.slots[part], new.number[part], inputs)
        self._gate_results.write(new.slots[part], new.number[part], gate)
        self._yield_cpu()

    def _run_policy(self, version: NetworkVersion, number: NDArray[np.int64], part: slice) -> list[NDArray[np.float32]]:
        """Probabilities [n, K] and entropies [n] of a version on n observations: a part of those with these numbers."""
        cache = self._probabilities.setdefault(version.version, RowCache(len(self._gate_results.number)))
        new = np.flatnonzero(cache.number[part] != number[part])
        if len(new) or not len(number):
            with torch.inference_mode():
                log_prob: Tensor = version.network(*(torch.from_numpy(rows[new]) for rows in self._inputs.rows(part)))
                probabilities = log_prob.exp()
                entropy = -probabilities.mul(log_prob.clamp_min(LOG_ZERO)).sum(1)
            slots = part.start + new
            cache.write(slots, number[slots], [probabilities.numpy(), entropy.numpy()])
        return cache.rows(part)

    def _fit_reward_model(self, trained: ExperienceBatch) -> Values | None:
        """Weights of a reward model, fitted to experience used in training, not to held-out experience."""
        if self._policy.predict is not None:
            return None
        rows = np.flatnonzero(trained.has_outcome)
        if not len(rows):
            return None
        batch = {name: column[rows] for name, column in trained.rows.items()}
        gate = self._storage.domain.gate(batch, trained.time[rows], self._storage.settings.gate, trained.action[rows])
        return estimate.fit_rewards(gate.components, trained.outcome[rows])


def _greedy(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of the greedy policy; rows with a value that is not finite stay as they are."""
    greedy = np.zeros_like(probabilities)
    greedy[np.arange(len(probabilities)), probabilities.argmax(1)] = 1.0
    return np.where(np.isfinite(probabilities).all(1, keepdims=True), greedy, probabilities)
