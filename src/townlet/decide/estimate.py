"""Off-policy evaluation: the mean reward that a policy would have earned on logged decisions of other policies.

A log has N decisions, each with its reward and its propensity. The evaluated policy enters as `chosen`, the probability
that it gives to the logged action. The estimator SNIPS needs nothing else (Swaminathan and Joachims 2015). The doubly
robust one needs a reward model; it is consistent if the propensities or the model are right (Dudík et al. 2011).
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
PolicyPair = NDArray[np.floating]  # [2, N]: of the candidate, and of the version before it
RESAMPLES: Final = 500
LEVEL: Final = 0.95  # confidence level of intervals
# Intervals are widened by the fraction SMALL_SAMPLE / n (n: effective sample size): resamples vary too little, by 1/2n,
# and Student's t is wider than a normal distribution, by (z² + 1)/4n: 1.7/n in all; skewed weights need more.
SMALL_SAMPLE: Final = 2.5
CHUNK_PRODUCTS: Final = 1 << 17  # multiplications per matmul; with twice as many, BLAS takes cores from decisions
ROUNDING: Final = 1e-4  # a probability stored as float32 may exceed 1 slightly


@dataclass(frozen=True)
class Estimate:
    """Estimated mean reward with its confidence interval; None if unknown."""

    value: float | None
    low: float | None
    high: float | None
    effective: float  # effective sample size, (Σw)² / Σw²
    count: int  # number of decisions
    clipped: float = 0.0  # share of decisions whose weight was clipped
    snips: Estimate | None = None  # the SNIPS estimate of the same quantity, if this one is doubly robust

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown from {self.count} experiences"
        interval = f" ({self.low:+.4f} to {self.high:+.4f})" if self.low is not None and self.high is not None else ""
        snips = f"; SNIPS {self.snips.value:+.4f}" if self.snips and self.snips.value is not None else ""
        return f"{self.value:+.4f}{interval} from {self.count} experiences, effective size {self.effective:.0f}{snips}"


def compare(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, serving: ArrayLike, rng: np.random.Generator,
    *, model: Sequence[ArrayLike] = (), clip: float | None = None, resamples: int = RESAMPLES, level: float = LEVEL,
    yield_cpu: Callable[[], object] = no_interrupt,
) -> tuple[Estimate, Estimate, Estimate]:  # fmt: skip
    """Mean rewards of a new policy and of the serving one, and their difference, from the same resamples.

    `chosen` and `serving` are their probabilities of the logged actions [N]. SNIPS is Σ w r / Σ w with
    w = chosen / propensity. `model` holds the predicted rewards of the logged actions and the expected rewards of both
    policies, [N] each; with it, the estimates are doubly robust, means of expected reward + w (reward − prediction),
    and their `snips` are those without it. Common variance cancels in the difference, so its interval is the one to
    decide by. `clip` limits the weights: less variance, more bias. `yield_cpu` is called repeatedly.
    """
    rewards, propensities, (new, old, *model_columns) = _validate(reward, propensity, chosen, serving, *model)
    predicted, *expected = model_columns or (None, None, None)
    snips, robust = list[Values](), list[Values]()  # an estimate is the sum of one column over the sum of the next
    sizes: list[tuple[float, float]] = []  # effective sample size, and share of clipped weights
    for probability, policy_reward in zip((new, old), expected, strict=True):
        with np.errstate(all="ignore"):  # probabilities of a broken version may not be finite
            weights = probability / propensities
            clipped = 0.0 if clip is None or not weights.size else float((weights > clip).mean())
            weights = weights if clip is None else np.minimum(weights, clip)
            snips += (weights * rewards, weights)
            if predicted is not None and policy_reward is not None:
                robust += (policy_reward + weights * (rewards - predicted), np.ones_like(rewards))
        sizes.append((effective_size(weights), clipped))
    resampled = _resample(np.stack([*robust, *snips], 1), resamples, rng, yield_cpu)
    by_snips = _estimate_both(snips, resampled[:, -2:], level, sizes)
    if not robust:
        return by_snips
    doubly_robust = _estimate_both(robust, resampled[:, :2], level, sizes)
    first, second, difference = (replace(one, snips=plain) for one, plain in zip(doubly_robust, by_snips, strict=True))
    return first, second, difference


def _estimate_both(
    columns: Sequence[Values], resampled: Values, level: float, sizes: Sequence[tuple[float, float]]
) -> tuple[Estimate, Estimate, Estimate]:
    """Estimates of both policies and of their difference, from pairs of columns and their resampled ratios."""
    estimates, count = [], len(columns[0])
    for index, size in enumerate(sizes):
        total, weight = (float(column.sum()) for column in columns[2 * index : 2 * index + 2])
        value = total / weight if 0 < weight < np.inf else np.nan
        estimates.append(_estimate(value, resampled[:, index], level, *size, count))
    first, second = estimates
    value = np.nan if first.value is None or second.value is None else first.value - second.value
    effective, clipped = min(first.effective, second.effective), max(first.clipped, second.clipped)
    return first, second, _estimate(value, resampled[:, 0] - resampled[:, 1], level, effective, clipped, count)


def effective_size(weights: ArrayLike) -> float:
    """Effective sample size of weights [N]: (Σw)² / Σw², 0 if all are 0."""
    array = np.asarray(weights, np.float64)
    largest = float(array.max(initial=0.0))
    if not 0 < largest < np.inf:
        return 0.0
    scaled = array / largest  # squares of tiny or huge weights would underflow or overflow
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def fit_rewards(features: ArrayLike, reward: ArrayLike, ridge: float = 1.0) -> Values:
    """Weights [C + 1] of a ridge regression of rewards [N] on features [N, C]; the last is the intercept.

    The intercept is not regularized, so with useless features the prediction is the mean.
    """
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


def _validate(reward: ArrayLike, propensity: ArrayLike, *more: ArrayLike) -> tuple[Values, Values, list[Values]]:
    """The columns as arrays. An invalid log is refused; an invalid policy is not, but its estimate is unknown."""
    rewards, propensities, *others = (np.asarray(column, np.float64) for column in (reward, propensity, *more))
    if rewards.ndim != 1 or any(column.shape != rewards.shape for column in (propensities, *others)):
        raise TownletError("the columns of the log have different lengths", "give one value for each decision")
    if wrong := np.flatnonzero(~((propensities > 0) & (propensities <= 1 + ROUNDING))).tolist():
        what = f"decision {wrong[0]} of the log has the propensity {propensities[wrong[0]]}"
        raise TownletError(what, "a propensity is above 0 and at most 1")
    if wrong := np.flatnonzero(~np.isfinite(rewards)).tolist():
        raise TownletError(f"decision {wrong[0]} of the log has the reward {rewards[wrong[0]]}", "leave it out")
    return rewards, propensities, others


def _resample(columns: Values, resamples: int, rng: np.random.Generator, yield_cpu: Callable[[], object]) -> Values:
    """Bayesian bootstrap (Rubin 1981) of the ratios of sums of columns [N, 2 J]: 0 over 1, 2 over 3, …

    Returns ratios [resamples, J]. Every decision has an exponential weight instead of a count, so no resample has a
    total weight of 0; a few calls draw many resamples, and release the GIL for decisions.
    """
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
        return np.asarray(sums[:, 0::2] / sums[:, 1::2])


def _estimate(value: float, resampled: Values, level: float, effective: float, clipped: float, count: int) -> Estimate:
    """The estimate with the percentiles of its resamples, widened for small samples; unknown without a value."""
    if not np.isfinite(value) or effective == 0:
        return Estimate(None, None, None, 0.0, count, clipped)
    finite = resampled[np.isfinite(resampled)]
    if not finite.size:
        return Estimate(float(value), None, None, effective, count, clipped)
    low, high = np.quantile(finite, ((1 - level) / 2, (1 + level) / 2)).tolist()
    factor = 1 + SMALL_SAMPLE / effective
    low, high = value - factor * max(value - low, 0.0), value + factor * max(high - value, 0.0)
    return Estimate(float(value), float(low), float(high), effective, count, clipped)


class PolicyDiff(NamedTuple):
    """Two policies on N observations. `expected` and `predicted` are None without a reward model."""

    chosen: PolicyPair  # probability of the logged action
    entropy: PolicyPair
    passes: PolicyPair  # probability that the gate approves the action
    expected: PolicyPair | None  # expected reward of the policy, according to the model
    predicted: Floats | None  # reward of the logged action, according to the model
    change: Floats  # total variation distance between the two policies
    choices: NDArray[np.integer]  # number of possible actions
    finite: tuple[bool, bool]  # whether all probabilities of each policy are finite

    def __len__(self) -> int:  # a NamedTuple would count its fields
        return len(self.change)


def compare_policies(
    candidate: Floats, before: Floats, action: NDArray[np.integer], approved: NDArray[np.bool_],
    *, predictions: Floats | None = None, allowed: NDArray[np.bool_] | None = None,
    entropies: tuple[Floats, Floats] | None = None,
) -> PolicyDiff:  # fmt: skip
    """Compare the action probabilities of two versions on N observations.

    `approved` marks actions that the gate approves, `predictions` are a model's predicted rewards, and `allowed` marks
    possible actions (default: all), [N, K] each. `action` [N] is the logged action; `entropies` [N] are those of both
    versions if already known.
    """
    versions, rows = (candidate, before), np.arange(len(action))

    def expectations(values: NDArray[Any]) -> PolicyPair:
        return np.stack([np.einsum("nk,nk->n", probabilities, values) for probabilities in versions])

    with np.errstate(all="ignore"):  # probabilities of a broken version may not be finite
        return PolicyDiff(
            np.stack([probabilities[rows, action] for probabilities in versions]),
            np.stack(entropies or [_entropy(probabilities) for probabilities in versions]),
            expectations(approved),
            None if predictions is None else expectations(predictions),
            None if predictions is None else predictions[rows, action],
            np.abs(candidate - before).sum(1) / 2,
            np.full(len(action), candidate.shape[1]) if allowed is None else allowed.sum(1),
            (bool(np.isfinite(candidate).all()), bool(np.isfinite(before).all())),
        )


def concatenate(parts: Sequence[PolicyDiff]) -> PolicyDiff:
    """Concatenate comparisons of the same two policies; there must be at least one."""
    *columns, finite = zip(*parts, strict=True)
    new, old = zip(*finite, strict=True)
    whole: list[Any] = [None if column[0] is None else np.concatenate(column, axis=-1) for column in columns]
    return PolicyDiff(*[*whole, (all(new), all(old))])


def _entropy(probabilities: Floats) -> Floats:
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(1))
