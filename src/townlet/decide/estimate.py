"""Off-policy evaluation: the reward that a policy would have earned on the logged decisions of another.

A log has N decisions, each with its reward and its propensity. The evaluated policy enters as `chosen`, the probability
that it gives to the logged action. With a reward model the estimate is doubly robust: consistent if the propensities or
the model are right (Dudík, Langford and Li 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from townlet.agents.agent import no_interrupt
from townlet.errors import TownletError

Values = NDArray[np.float64]
Floats = NDArray[np.floating]  # [N], or [N, K] for probabilities
Both = tuple[Floats, Floats]  # of the candidate and of the previous version
RESAMPLES: Final = 500
LEVEL: Final = 0.95  # confidence level of intervals
# Resamples of few decisions vary too little: by 1/2n in their spread, and by (z² + 1)/4n as Student's t is wider than
# a normal distribution. Both are about 1.7/n; skewed weights need a little more.
SMALL_SAMPLE: Final = 2.5
CHUNK: Final = 1 << 17  # products per matmul: from about twice as many, BLAS uses threads that decisions need
ROUNDING: Final = 1e-4  # a probability that was stored as a float32 may exceed 1 slightly


@dataclass(frozen=True)
class Estimate:
    """A mean reward with its interval, from `count` decisions with an effective sample size. None: unknown."""

    value: float | None
    low: float | None
    high: float | None
    effective: float  # (Σw)² / Σw²
    count: int
    clipped: float = 0.0  # share of decisions whose weight was clipped

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown from {self.count} experiences"
        interval = f" ({self.low:+.4f} to {self.high:+.4f})" if self.low is not None and self.high is not None else ""
        return f"{self.value:+.4f}{interval} from {self.count} experiences, worth {self.effective:.0f}"


@dataclass(frozen=True)
class PolicyComparison:
    """Two policies on one log, by the same resamples. `difference` is new − serving, doubly robust with a model."""

    snips: Estimate
    snips_serving: Estimate
    doubly_robust: Estimate | None  # None without a model
    doubly_robust_serving: Estimate | None
    difference: Estimate


class _Ratio(NamedTuple):
    """An estimate as Σ top / Σ bottom over the decisions [N], which can be resampled by weights."""

    top: Values
    bottom: Values
    effective: float
    clipped: float


def compare(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, serving: ArrayLike, rng: np.random.Generator,
    *, model: ArrayLike | None = None, expected_model: ArrayLike | None = None,
    expected_serving: ArrayLike | None = None, clip: float | None = None, resamples: int = RESAMPLES,
    level: float = LEVEL, yield_cpu: Callable[[], object] = no_interrupt,
) -> PolicyComparison:  # fmt: skip
    """Compare a new policy with the serving one, by their probabilities of the logged actions [N].

    SNIPS is Σ w r / Σ w with w = chosen / propensity (Swaminathan and Joachims 2015). `model` is the predicted reward
    of the logged action; with it, the doubly robust estimate is the mean of `expected_model` + w (reward − `model`).
    Common variance cancels in the difference, so its interval is the one to decide by. `clip` limits the weights: less
    variance, more bias. `yield_cpu` is called repeatedly.
    """
    given_model = [part for part in (model, expected_model, expected_serving) if part is not None]
    if len(given_model) not in (0, 3):
        fix = "give model, expected_model and expected_serving, or none of them"
        raise TownletError("a reward model needs predictions for both policies", fix)
    rewards, propensities, (new, old, *predictions) = _validate(reward, propensity, chosen, serving, *given_model)
    weights = [_weights(probability, propensities, clip) for probability in (new, old)]
    ratios = [_snips(rewards, *pair) for pair in weights]
    if predictions:
        predicted, both = predictions[0], predictions[1:]
        ratios += [_robust(rewards, *pair, predicted, expected) for pair, expected in zip(weights, both, strict=True)]
    resampled = _resample(ratios, resamples, rng, yield_cpu)
    results = _estimates(ratios, resampled, level)
    difference = _difference(results[-2], results[-1], resampled[:, -2] - resampled[:, -1], level)
    robust, robust_serving = (results[2], results[3]) if predictions else (None, None)
    return PolicyComparison(results[0], results[1], robust, robust_serving, difference)


def effective_size(weights: ArrayLike) -> float:
    """Effective sample size of weights [N]: (Σw)² / Σw², 0 if all are 0."""
    given = np.asarray(weights, np.float64)
    largest = float(given.max(initial=0.0))
    if not 0 < largest < np.inf:
        return 0.0
    scaled = given / largest  # squares of tiny or huge weights would leave the range of a float
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def fit_rewards(features: ArrayLike, reward: ArrayLike, ridge: float = 1.0) -> Values:
    """Weights [C + 1] of a ridge regression of rewards [N] on features [N, C]; the last is the intercept.

    The intercept is not regularized, so useless features give the mean.
    """
    inputs, targets = np.asarray(features, np.float64), np.asarray(reward, np.float64)
    if inputs.ndim != 2 or inputs.shape[:1] != targets.shape:
        what = f"features of shape {inputs.shape} do not fit rewards of shape {targets.shape}"
        raise TownletError(what, "give one row of features for each reward")
    if not targets.size:
        return np.zeros(inputs.shape[1] + 1)
    centre, mean = inputs.mean(0), float(targets.mean())
    centred = inputs - centre
    square = centred.T @ centred + max(ridge, 1e-9) * np.eye(inputs.shape[1])
    slope = np.linalg.solve(square, centred.T @ (targets - mean))
    return np.append(slope, mean - centre @ slope)


def predict_rewards(features: ArrayLike, weights: Values) -> Values:
    """Predicted rewards [...] of features [..., C], with weights from `fit_rewards`."""
    return np.asarray(np.asarray(features, np.float64) @ weights[:-1] + weights[-1])


def _validate(reward: ArrayLike, propensity: ArrayLike, *more: ArrayLike) -> tuple[Values, Values, list[Values]]:
    """The columns as arrays. An impossible log is refused; a broken policy is not, its estimate is unknown."""
    rewards, propensities, *others = (np.asarray(column, np.float64) for column in (reward, propensity, *more))
    if rewards.ndim != 1 or any(column.shape != rewards.shape for column in (propensities, *others)):
        raise TownletError("the columns of the log have different lengths", "give one value for each decision")
    if wrong := np.flatnonzero(~((propensities > 0) & (propensities <= 1 + ROUNDING))).tolist():
        what = f"decision {wrong[0]} of the log has the propensity {propensities[wrong[0]]}"
        raise TownletError(what, "a propensity is above 0 and at most 1")
    if wrong := np.flatnonzero(~np.isfinite(rewards)).tolist():
        raise TownletError(f"decision {wrong[0]} of the log has the reward {rewards[wrong[0]]}", "leave it out")
    return rewards, propensities, others


def _weights(chosen: Values, propensity: Values, clip: float | None) -> tuple[Values, float]:
    """Importance weights [N], and the share of them that was clipped."""
    with np.errstate(all="ignore"):
        weights = chosen / propensity
    if clip is None or not weights.size:
        return weights, 0.0
    return np.minimum(weights, clip), float((weights > clip).mean())


def _snips(reward: Values, weights: Values, clipped: float) -> _Ratio:
    with np.errstate(all="ignore"):
        rows = weights * reward
    return _Ratio(rows, weights, effective_size(weights), clipped)


def _robust(reward: Values, weights: Values, clipped: float, model: Values, expected: Values) -> _Ratio:
    with np.errstate(all="ignore"):
        rows = expected + weights * (reward - model)
    return _Ratio(rows, np.ones_like(rows), effective_size(weights), clipped)


def _resample(
    ratios: Sequence[_Ratio], resamples: int, rng: np.random.Generator, yield_cpu: Callable[[], object] = no_interrupt
) -> Values:
    """Each ratio under the Bayesian bootstrap (Rubin 1981) [resamples, J]; not finite without weight.

    Every decision has an exponential weight instead of a count. No resample is without weight, and few calls draw many
    of them and release the GIL for decisions.
    """
    columns = np.stack([column for ratio in ratios for column in (ratio.top, ratio.bottom)], axis=1)
    count, width = columns.shape
    sums = np.zeros((resamples, width))
    part = max(1, min(resamples, CHUNK // max(count * width, 1)))
    buffer = np.empty((part, count))
    with np.errstate(all="ignore"):
        for start in range(0, resamples if count else 0, part):
            rows = buffer[: min(part, resamples - start)]
            rng.standard_exponential(out=rows)
            np.matmul(rows, columns, out=sums[start : start + len(rows)])
            yield_cpu()
        return np.asarray(sums[:, 0::2] / sums[:, 1::2])


def _estimates(ratios: Sequence[_Ratio], resampled: Values, level: float) -> list[Estimate]:
    results = []
    for ratio, values in zip(ratios, resampled.T, strict=True):
        top, bottom = float(ratio.top.sum()), float(ratio.bottom.sum())
        value = top / bottom if 0 < bottom < np.inf else np.nan
        results.append(_estimate(value, values, level, ratio.effective, ratio.top.size, ratio.clipped))
    return results


def _estimate(value: float, resampled: Values, level: float, effective: float, count: int, clipped: float) -> Estimate:
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


def _difference(new: Estimate, old: Estimate, resampled: Values, level: float) -> Estimate:
    """The difference of two estimates with its own resamples, and the smaller effective size of both."""
    value = np.nan if new.value is None or old.value is None else new.value - old.value
    effective, clipped = min(new.effective, old.effective), max(new.clipped, old.clipped)
    return _estimate(value, resampled, level, effective, new.count, clipped)


class PolicyDiff(NamedTuple):
    """Two policies on N observations. `expected` and `predicted` are None without a reward model."""

    chosen: Both  # probability of the logged action
    entropy: Both
    passes: Both  # probability that the gate approves
    expected: Both | None  # predicted reward of the policy
    predicted: Floats | None  # predicted reward of the logged action
    change: Floats  # total variation between both
    choices: NDArray[np.integer]  # number of possible actions
    finite: tuple[bool, bool]

    def __len__(self) -> int:  # a NamedTuple would count its fields
        return len(self.change)


def compare_policies(
    candidate: Floats, before: Floats, action: NDArray[np.integer], approved: NDArray[np.bool_],
    *, model: Floats | None = None, allowed: NDArray[np.bool_] | None = None, entropies: Both | None = None,
) -> PolicyDiff:  # fmt: skip
    """Compare action probabilities of two versions, with the gate's approval and a reward model, all [N, K].

    `action` [N] is the logged action, `allowed` [N, K] marks possible actions (default: all), `entropies` are those of
    both versions if already known.
    """
    versions, rows = (candidate, before), np.arange(len(action))
    with np.errstate(all="ignore"):  # a version may be broken
        return PolicyDiff(
            (candidate[rows, action], before[rows, action]),
            entropies or (_entropy(candidate), _entropy(before)),
            _expectations(versions, approved),
            None if model is None else _expectations(versions, model),
            None if model is None else model[rows, action],
            np.abs(candidate - before).sum(1) / 2,
            np.full(len(action), candidate.shape[1]) if allowed is None else allowed.sum(1),
            (bool(np.isfinite(candidate).all()), bool(np.isfinite(before).all())),
        )


def concatenate(parts: Sequence[PolicyDiff]) -> PolicyDiff:
    """Concatenate at least one part."""
    *columns, finite = zip(*parts, strict=True)
    new, old = zip(*finite, strict=True)
    return PolicyDiff(*[*map(_concatenate, columns), (all(new), all(old))])


def _concatenate(parts: Sequence[Any]) -> Any:
    """Arrays, pairs of arrays, or nothing."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], tuple):
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
    return np.concatenate(parts)


def _expectations(versions: Sequence[Floats], values: NDArray[Any]) -> Both:
    """Expectations under both policies of the values of all actions [N, K]."""
    new, old = (np.asarray(np.einsum("nk,nk->n", probabilities, values)) for probabilities in versions)
    return new, old


def _entropy(probabilities: Floats) -> Floats:
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(1))
