"""Off-policy evaluation: the mean reward that a policy would have earned on logged decisions of other policies.

A log has N decisions, each with its reward and its propensity. All that SNIPS needs from a policy is the probability it
gives to each logged action (Swaminathan and Joachims 2015). The doubly robust estimator also needs a reward model; it
is consistent if the propensities or the model are right (Dudík et al. 2011).
A *candidate* is compared with a *baseline*: a new version with the serving one, or the serving one with the previous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from townlet.agents.agent import no_interrupt
from townlet.errors import TownletError

Values = NDArray[np.float64]
Floats = NDArray[np.floating]  # [N], or [N, K] for probabilities
PerPolicy = NDArray[np.floating]  # [2, N]: values of the candidate, then of the baseline
Fraction = tuple[Values, Values]  # numerators and denominators [N] of an estimate, which is the ratio of their sums
Callback = Callable[[], object]
RESAMPLES: Final = 500
LEVEL: Final = 0.95  # confidence level of intervals
# Intervals are widened by SMALL_SAMPLE_WIDENING / n of their width, where n is the effective sample size. The bootstrap
# underestimates the standard error by about 1/n of it, and the quantile of Student's t exceeds the normal one by
# (z² + 1)/(4n). Together that is 2.2/n; 2.5 allows for skewed weights.
SMALL_SAMPLE_WIDENING: Final = 2.5
CHUNK_PRODUCTS: Final = 1 << 17  # multiplications per matmul; a larger one starts BLAS threads, which delay decisions
ROUNDING: Final = 1e-4  # a probability stored as float32 may exceed 1 slightly


@dataclass(frozen=True)
class Estimate:
    """Estimated mean reward with its confidence interval; None if unknown."""

    value: float | None
    low: float | None
    high: float | None
    effective: float  # effective sample size, (Σw)² / Σw²
    count: int  # number of decisions
    clipped: float = 0.0  # fraction of decisions whose weight was clipped
    snips: Estimate | None = None  # the SNIPS estimate of the same quantity, if this one is doubly robust

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown ({self.count} decisions)"
        interval = f" ({self.low:+.4f} to {self.high:+.4f})" if self.low is not None and self.high is not None else ""
        snips = f"; SNIPS {self.snips.value:+.4f}" if self.snips and self.snips.value is not None else ""
        return f"{self.value:+.4f}{interval} from {self.count} decisions, effective size {self.effective:.0f}{snips}"


class ModelRewards(NamedTuple):
    """Rewards according to a reward model, [N] each."""

    predicted: ArrayLike  # of the logged actions
    candidate: ArrayLike  # expected if the candidate acts
    baseline: ArrayLike  # expected if the baseline acts


def compare_rewards(
    reward: ArrayLike, propensity: ArrayLike, candidate: ArrayLike, baseline: ArrayLike, rng: np.random.Generator,
    *, model: ModelRewards | None = None, clip: float | None = None, resamples: int = RESAMPLES, level: float = LEVEL,
    yield_cpu: Callback = no_interrupt,
) -> tuple[Estimate, Estimate, Estimate]:  # fmt: skip
    """Mean rewards of a candidate and of a baseline, and their difference, from the same resamples.

    `candidate` and `baseline` are the probabilities [N] that the policies give to the logged actions. SNIPS is
    Σ w r / Σ w with w = probability / propensity. With a model, the estimates are doubly robust, means of
    expected reward + w (reward − predicted reward), and the field `snips` of each holds the SNIPS estimate. Common
    variance cancels in the difference, so its interval is the one to decide by. `clip` limits the weights: less
    variance, more bias. `yield_cpu` is called repeatedly.
    """
    rewards, propensities, *probabilities = _validate(reward, propensity, candidate, baseline)
    snips, robust = list[Fraction](), list[Fraction]()  # of the candidate, then of the baseline
    sizes: list[tuple[float, float]] = []  # effective sample size, and fraction of clipped weights
    with np.errstate(all="ignore"):  # probabilities of a broken version may not be finite
        for probability in probabilities:
            weights, clipped = probability / propensities, 0.0
            if clip is not None and weights.size:
                clipped = float((weights > clip).mean())
                weights = np.minimum(weights, clip)
            snips.append((weights * rewards, weights))
            sizes.append((effective_size(weights), clipped))
        if model is not None:
            predicted, *expected = _validate(rewards, propensities, *model)[2:]
            for policy_reward, (_, weights) in zip(expected, snips, strict=True):
                robust.append((policy_reward + weights * (rewards - predicted), np.ones_like(rewards)))
    resampled = _resample([*robust, *snips], resamples, rng, yield_cpu)
    by_snips = _estimate_both(snips, resampled[:, len(robust) :], level, sizes)
    if model is None:
        return by_snips
    doubly_robust = _estimate_both(robust, resampled[:, : len(robust)], level, sizes)
    estimates = [replace(estimate, snips=plain) for estimate, plain in zip(doubly_robust, by_snips, strict=True)]
    return estimates[0], estimates[1], estimates[2]


def _estimate_both(
    fractions: Sequence[Fraction], resampled: Values, level: float, sizes: Sequence[tuple[float, float]]
) -> tuple[Estimate, Estimate, Estimate]:
    """Estimates of both policies and of their difference, from their fractions and resampled ratios [resamples, 2]."""
    estimates, count = [], len(fractions[0][0])
    for (numerators, denominators), ratios, size in zip(fractions, resampled.T, sizes, strict=True):
        total = float(denominators.sum())
        value = float(numerators.sum()) / total if 0 < total < np.inf else np.nan
        estimates.append(_estimate(value, ratios, level, *size, count))
    candidate, baseline = estimates
    value = np.nan if candidate.value is None or baseline.value is None else candidate.value - baseline.value
    effective, clipped = min(candidate.effective, baseline.effective), max(candidate.clipped, baseline.clipped)
    difference = _estimate(value, resampled[:, 0] - resampled[:, 1], level, effective, clipped, count)
    return candidate, baseline, difference


def effective_size(weights: ArrayLike) -> float:
    """Effective sample size of weights [N]: (Σw)² / Σw², 0 if all are 0."""
    array = np.asarray(weights, np.float64)
    largest = float(array.max(initial=0.0))
    if not 0 < largest < np.inf:
        return 0.0
    scaled = array / largest  # squares of tiny or huge weights would underflow or overflow
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def fit_rewards(features: ArrayLike, reward: ArrayLike, ridge: float = 1.0) -> Values:
    """Ridge regression of rewards [N] on features [N, C]; returns C slopes, then the unpenalized intercept."""
    inputs, targets = np.asarray(features, np.float64), np.asarray(reward, np.float64)
    if not targets.size:
        return np.zeros(inputs.shape[1] + 1)
    center, mean = inputs.mean(0), float(targets.mean())
    centered = inputs - center
    square = centered.T @ centered + max(ridge, 1e-9) * np.eye(inputs.shape[1])
    slope = np.linalg.solve(square, centered.T @ (targets - mean))
    return np.append(slope, mean - center @ slope)


def predict_rewards(features: ArrayLike, weights: Values) -> Values:
    """Predicted rewards [...] of features [..., C], with weights from `fit_rewards`."""
    return np.asarray(np.asarray(features, np.float64) @ weights[:-1] + weights[-1])


def _validate(*columns: ArrayLike) -> list[Values]:
    """The columns as arrays. Rewards and propensities, the first two, must be valid; the others need not be."""
    arrays = [np.asarray(column, np.float64) for column in columns]
    rewards, propensities = arrays[:2]
    if rewards.ndim != 1 or any(array.shape != rewards.shape for array in arrays):
        raise TownletError("the columns of the log have different lengths", "give one value for each decision")
    if wrong := np.flatnonzero(~((propensities > 0) & (propensities <= 1 + ROUNDING))).tolist():
        what = f"decision {wrong[0]} of the log has the propensity {propensities[wrong[0]]}"
        raise TownletError(what, "a propensity is above 0 and at most 1")
    if wrong := np.flatnonzero(~np.isfinite(rewards)).tolist():
        raise TownletError(f"decision {wrong[0]} of the log has the reward {rewards[wrong[0]]}", "leave it out")
    return arrays


def _resample(fractions: list[Fraction], resamples: int, rng: np.random.Generator, yield_cpu: Callback) -> Values:
    """Bayesian bootstrap (Rubin 1981): ratios [resamples, J] of the sums of each of J fractions.

    Every decision gets an exponential bootstrap weight instead of a count. With counts, a resample could omit all
    terms of a denominator. A few calls draw many resamples and release the GIL, so the service can decide meanwhile.
    """
    columns = np.stack([column for fraction in fractions for column in fraction], 1)  # [N, 2 J]
    count, width = columns.shape
    sums = np.zeros((resamples, width))
    chunk = max(1, min(resamples, CHUNK_PRODUCTS // max(count * width, 1)))
    buffer = np.empty((chunk, count))
    with np.errstate(all="ignore"):
        for start in range(0, resamples if count else 0, chunk):
            weights = buffer[: min(chunk, resamples - start)]
            rng.standard_exponential(out=weights)
            np.matmul(weights, columns, out=sums[start : start + len(weights)])
            yield_cpu()
        return np.asarray(sums[:, 0::2] / sums[:, 1::2])  # numerators / denominators


def _estimate(value: float, resampled: Values, level: float, effective: float, clipped: float, count: int) -> Estimate:
    """The estimate with the percentiles of its resamples, widened for small samples; unknown without a value."""
    if not np.isfinite(value) or effective == 0:
        return Estimate(None, None, None, 0.0, count, clipped)
    finite = resampled[np.isfinite(resampled)]
    if not finite.size:
        return Estimate(float(value), None, None, effective, count, clipped)
    low, high = np.quantile(finite, ((1 - level) / 2, (1 + level) / 2)).tolist()
    factor = 1 + SMALL_SAMPLE_WIDENING / effective
    low, high = value - factor * max(value - low, 0.0), value + factor * max(high - value, 0.0)
    return Estimate(float(value), float(low), float(high), effective, count, clipped)


class PolicyDiff(NamedTuple):
    """Comparison of two policies on N observations. `expected` and `predicted` are None without a reward model."""

    action_probability: PerPolicy  # of the logged action
    entropy: PerPolicy
    approval: PerPolicy  # probability of an action that the gate approves
    expected: PerPolicy | None  # expected reward of the policy, according to the model
    predicted: Floats | None  # reward of the logged action, according to the model
    change: Floats  # total variation distance between the two policies
    valid_actions: NDArray[np.integer]  # number of valid actions
    finite: tuple[bool, bool]  # whether all probabilities of each policy are finite

    def __len__(self) -> int:  # a NamedTuple would count its fields
        return len(self.change)


def diff_policies(
    candidate: Floats, baseline: Floats, action: NDArray[np.integer], approved: NDArray[np.bool_],
    *, predictions: Floats | None = None, valid: NDArray[np.bool_] | None = None,
    entropies: tuple[Floats, Floats] | None = None,
) -> PolicyDiff:  # fmt: skip
    """Compare the action probabilities [N, K] of two policies on N observations.

    `approved` marks actions that the gate approves, `predictions` are a model's predicted rewards, and `valid` marks
    valid actions (default: all), [N, K] each. `action` [N] is the logged action; `entropies` [N] are those of both
    policies if already known.
    """
    policies, rows = (candidate, baseline), np.arange(len(action))

    def expectations(values: NDArray[Any]) -> PerPolicy:
        return np.stack([np.einsum("nk,nk->n", probabilities, values) for probabilities in policies])

    with np.errstate(all="ignore"):  # probabilities of a broken version may not be finite
        return PolicyDiff(
            action_probability=np.stack([probabilities[rows, action] for probabilities in policies]),
            entropy=np.stack(entropies or [_entropy(probabilities) for probabilities in policies]),
            approval=expectations(approved),
            expected=None if predictions is None else expectations(predictions),
            predicted=None if predictions is None else predictions[rows, action],
            change=np.abs(candidate - baseline).sum(1) / 2,
            valid_actions=np.full(len(action), candidate.shape[1]) if valid is None else valid.sum(1),
            finite=(bool(np.isfinite(candidate).all()), bool(np.isfinite(baseline).all())),
        )


def concatenate(parts: Sequence[PolicyDiff]) -> PolicyDiff:
    """Concatenate comparisons of the same two policies; there must be at least one."""
    columns: dict[str, Any] = {}
    for name in set(PolicyDiff._fields) - {"finite"}:
        values = [getattr(part, name) for part in parts]
        columns[name] = None if values[0] is None else np.concatenate(values, axis=-1)
    finite = all(part.finite[0] for part in parts), all(part.finite[1] for part in parts)
    return PolicyDiff(**columns, finite=finite)


def _entropy(probabilities: Floats) -> Floats:
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(1))
