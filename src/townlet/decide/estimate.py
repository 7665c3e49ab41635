"""Off-policy evaluation: what a policy would have earned on decisions that another one took.

A log has N decisions, each with its reward and the probability with which it was drawn. A policy that is judged
appears as the probability that it gives to what was decided, `chosen`. With a model of rewards the estimate is doubly
robust: right when the probabilities are right or the model is (Dudík, Langford and Li 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from townlet.agents.agent import no_interrupt
from townlet.errors import TownletError

Values = NDArray[np.float64]
DRAWS: Final = 500  # resamples of an interval
LEVEL: Final = 0.95  # how often an interval should hold the truth
# Resamples of few decisions vary too little: by 1/2n in their spread, and by (z² + 1)/4n as Student's t is wider than
# a normal distribution. Both are about 1.7/n; skewed weights want a little more.
FEW: Final = 2.5
AT_ONCE: Final = 1 << 17  # products of one call: beyond about twice as many BLAS wakes threads that others need
ROUNDING: Final = 1e-4  # a probability that was kept as a float may be above 1 by a hair


@dataclass(frozen=True)
class Estimate:
    """A mean reward with its interval, from `count` decisions that are worth `effective` ones. None: not known."""

    value: float | None
    low: float | None
    high: float | None
    effective: float  # (Σw)² / Σw²
    count: int
    clipped: float = 0.0  # the share of decisions whose weight was cut

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown from {self.count} experiences"
        around = f" ({self.low:+.4f} to {self.high:+.4f})" if self.low is not None and self.high is not None else ""
        return f"{self.value:+.4f}{around} from {self.count} experiences, worth {self.effective:.0f}"


@dataclass(frozen=True)
class PolicyComparison:
    """Two policies on one log, by the same resamples. `difference` is new − serving, doubly robust with a model."""

    snips: Estimate
    snips_serving: Estimate
    doubly_robust: Estimate | None  # None: no model was given
    doubly_robust_serving: Estimate | None
    difference: Estimate


class _Ratio(NamedTuple):
    """An estimate as Σ top / Σ bottom over the decisions [N]: so any of them can be resampled by weights."""

    top: Values
    bottom: Values
    effective: float
    clipped: float


def snips(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, rng: np.random.Generator,
    *, clip: float | None = None, draws: int = DRAWS, level: float = LEVEL,
) -> Estimate:  # fmt: skip
    """The self-normalised estimate Σ w r / Σ w with w = chosen / propensity, all [N] (Swaminathan and Joachims 2015).

    `clip` cuts larger weights: less spread, more bias.
    """
    earned, drawn, (given,) = _checked(reward, propensity, chosen)
    ratios = [_snips(earned, *_weights(given, drawn, clip))]
    return _estimates(ratios, _resampled(ratios, draws, rng), level)[0]


def doubly_robust(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, model: ArrayLike, expected_model: ArrayLike,
    rng: np.random.Generator, *, clip: float | None = None, draws: int = DRAWS, level: float = LEVEL,
) -> Estimate:  # fmt: skip
    """The mean of `expected_model` + w (reward − `model`), all [N].

    `model` is the predicted reward of what was decided, `expected_model` that of what the policy would decide.
    """
    earned, drawn, (given, said, hoped) = _checked(reward, propensity, chosen, model, expected_model)
    ratios = [_robust(earned, *_weights(given, drawn, clip), said, hoped)]
    return _estimates(ratios, _resampled(ratios, draws, rng), level)[0]


def compare(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, serving: ArrayLike, rng: np.random.Generator,
    *, model: ArrayLike | None = None, expected_model: ArrayLike | None = None,
    expected_serving: ArrayLike | None = None, clip: float | None = None, draws: int = DRAWS, level: float = LEVEL,
    rest: Callable[[], object] = no_interrupt,
) -> PolicyComparison:  # fmt: skip
    """A new policy and the one that serves, by what each gives to what was decided: `chosen` and `serving`, both [N].

    What both have in common falls out of the difference, so its interval is the one to decide by. `rest` is called
    again and again on the way.
    """
    given_model = [part for part in (model, expected_model, expected_serving) if part is not None]
    if len(given_model) not in (0, 3):
        fix = "give model, expected_model and expected_serving, or none of them"
        raise TownletError("a model of rewards needs a prediction for both policies", fix)
    earned, drawn, (new, old, *modelled) = _checked(reward, propensity, chosen, serving, *given_model)
    weights = [_weights(given, drawn, clip) for given in (new, old)]
    ratios = [_snips(earned, *one) for one in weights]
    if modelled:
        said, hopes = modelled[0], modelled[1:]
        ratios += [_robust(earned, *one, said, hoped) for one, hoped in zip(weights, hopes, strict=True)]
    found = _resampled(ratios, draws, rng, rest)
    each = _estimates(ratios, found, level)
    between = _between(each[-2], each[-1], found[:, -2] - found[:, -1], level)
    return PolicyComparison(each[0], each[1], each[2] if modelled else None, each[3] if modelled else None, between)


def difference(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, serving: ArrayLike, rng: np.random.Generator,
    *, model: ArrayLike | None = None, expected_model: ArrayLike | None = None,
    expected_serving: ArrayLike | None = None, clip: float | None = None, draws: int = DRAWS, level: float = LEVEL,
) -> Estimate:  # fmt: skip
    """The value of a new policy less that of the one that serves, see `compare`."""
    return compare(
        reward, propensity, chosen, serving, rng, model=model, expected_model=expected_model,
        expected_serving=expected_serving, clip=clip, draws=draws, level=level,
    ).difference  # fmt: skip


def effective_size(weights: ArrayLike) -> float:
    """How many equal weights say as much as these [N]: (Σw)² / Σw², 0 where nothing has weight."""
    given = np.asarray(weights, np.float64)
    largest = float(given.max(initial=0.0))
    if not 0 < largest < np.inf:
        return 0.0
    scaled = given / largest  # squares of tiny or huge weights would leave the range of a float
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def fit_rewards(features: ArrayLike, reward: ArrayLike, ridge: float = 1.0) -> Values:
    """Weights [C + 1] of a ridge regression of the rewards [N] on features [N, C]; the last is the constant.

    The constant is not drawn towards 0, so without any use of the features the mean is predicted.
    """
    inputs, wanted = np.asarray(features, np.float64), np.asarray(reward, np.float64)
    if inputs.ndim != 2 or inputs.shape[:1] != wanted.shape:
        what = f"features of the shape {inputs.shape} do not fit rewards of the shape {wanted.shape}"
        raise TownletError(what, "give one row of features for each reward")
    if not wanted.size:
        return np.zeros(inputs.shape[1] + 1)
    centre, mean = inputs.mean(0), float(wanted.mean())
    around = inputs - centre
    square = around.T @ around + max(ridge, 1e-9) * np.eye(inputs.shape[1])
    slope = np.linalg.solve(square, around.T @ (wanted - mean))
    return np.append(slope, mean - centre @ slope)


def predict_rewards(features: ArrayLike, weights: Values) -> Values:
    """Predicted rewards [...] of features [..., C], with weights from `fit_rewards`."""
    return np.asarray(np.asarray(features, np.float64) @ weights[:-1] + weights[-1])


def _checked(reward: ArrayLike, propensity: ArrayLike, *more: ArrayLike) -> tuple[Values, Values, list[Values]]:
    """The columns as arrays. A log that cannot be true is refused; a policy may be broken, its estimate is unknown."""
    earned, drawn, *others = (np.asarray(column, np.float64) for column in (reward, propensity, *more))
    if earned.ndim != 1 or any(column.shape != earned.shape for column in (drawn, *others)):
        raise TownletError("the columns of the log have different lengths", "give one value for each decision")
    if wrong := np.flatnonzero(~((drawn > 0) & (drawn <= 1 + ROUNDING))).tolist():
        what = f"decision {wrong[0]} of the log was drawn with probability {drawn[wrong[0]]}"
        raise TownletError(what, "what was drawn has a probability above 0 and at most 1")
    if wrong := np.flatnonzero(~np.isfinite(earned)).tolist():
        raise TownletError(f"decision {wrong[0]} of the log has the reward {earned[wrong[0]]}", "leave it out")
    return earned, drawn, others


def _weights(chosen: Values, propensity: Values, clip: float | None) -> tuple[Values, float]:
    """Importance weights [N], and the share of them that was cut."""
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


def _resampled(
    ratios: Sequence[_Ratio], draws: int, rng: np.random.Generator, rest: Callable[[], object] = no_interrupt
) -> Values:
    """Each ratio under `draws` resamples [draws, J]; not finite where one has no weight.

    The Bayesian bootstrap (Rubin 1981): every decision weighs an exponential number instead of a whole one. No resample
    is without weight, and many are drawn at once by few calls that leave the interpreter to those who decide.
    """
    columns = np.stack([column for one in ratios for column in (one.top, one.bottom)], axis=1)
    count, width = columns.shape
    sums = np.zeros((draws, width))
    part = max(1, min(draws, AT_ONCE // max(count * width, 1)))
    buffer = np.empty((part, count))
    with np.errstate(all="ignore"):
        for start in range(0, draws if count else 0, part):
            rows = buffer[: min(part, draws - start)]
            rng.standard_exponential(out=rows)
            np.matmul(rows, columns, out=sums[start : start + len(rows)])
            rest()
        return np.asarray(sums[:, 0::2] / sums[:, 1::2])


def _estimates(ratios: Sequence[_Ratio], found: Values, level: float) -> list[Estimate]:
    results = []
    for one, resamples in zip(ratios, found.T, strict=True):
        top, bottom = float(one.top.sum()), float(one.bottom.sum())
        value = top / bottom if 0 < bottom < np.inf else np.nan
        results.append(_estimate(value, resamples, level, one.effective, one.top.size, one.clipped))
    return results


def _estimate(value: float, found: Values, level: float, effective: float, count: int, clipped: float) -> Estimate:
    """The estimate with the percentiles of its resamples [draws]; without a value nothing else is known of it."""
    if not np.isfinite(value) or effective == 0:
        return Estimate(None, None, None, 0.0, count, clipped)
    sound = found[np.isfinite(found)]
    if not sound.size:
        return Estimate(float(value), None, None, effective, count, clipped)
    low, high = np.quantile(sound, ((1 - level) / 2, (1 + level) / 2)).tolist()
    wider = 1 + FEW / effective
    low, high = value - wider * max(value - low, 0.0), value + wider * max(high - value, 0.0)
    return Estimate(float(value), float(low), float(high), effective, count, clipped)


def _between(new: Estimate, old: Estimate, found: Values, level: float) -> Estimate:
    """The difference of two estimates, with its own resamples [draws]; it is worth what the weaker one is."""
    value = np.nan if new.value is None or old.value is None else new.value - old.value
    effective, clipped = min(new.effective, old.effective), max(new.clipped, old.clipped)
    return _estimate(value, found, level, effective, new.count, clipped)
