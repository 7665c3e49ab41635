"""Off-policy evaluation, on logs with known true values."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from townlet.decide.estimate import (
    Estimate,
    ModelRewards,
    compare_rewards,
    effective_size,
    fit_rewards,
    predict_rewards,
)
from townlet.errors import TownletError

Floats = NDArray[np.float64]


def snips(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, rng: np.random.Generator, **options: Any
) -> Estimate:
    return compare_rewards(reward, propensity, chosen, chosen, rng, **options)[0]


def doubly_robust(
    reward: ArrayLike, propensity: ArrayLike, chosen: ArrayLike, model: ArrayLike, expected: ArrayLike,
    rng: np.random.Generator, **options: Any,
) -> Estimate:  # fmt: skip
    return compare_rewards(
        reward, propensity, chosen, chosen, rng, model=ModelRewards(model, expected, expected), **options
    )[0]


class Bandit:
    """A contextual bandit: X contexts, K actions, mean rewards known."""

    def __init__(self, rng: np.random.Generator, contexts: int = 20, actions: int = 6) -> None:
        self.rng = rng
        self.means = rng.uniform(-0.5, 0.5, (contexts, actions))
        self.logging = softmax(rng.normal(size=(contexts, actions)))
        self.policy = softmax(rng.normal(size=(contexts, actions)) + 1.5 * self.means)

    def value(self, policy: Floats) -> float:
        return float((policy * self.means).sum(1).mean())

    def log(self, count: int) -> Logged:
        context = self.rng.integers(len(self.means), size=count)
        upto = self.logging[context].cumsum(1)
        action = (upto <= self.rng.random((count, 1))).sum(1).clip(max=self.means.shape[1] - 1)
        reward = self.means[context, action] + self.rng.normal(scale=0.3, size=count)
        return Logged(context, action, reward, self.logging[context, action])


class Logged(NamedTuple):
    context: NDArray[np.int64]
    action: NDArray[np.int64]
    reward: Floats
    propensity: Floats

    def action_probability(self, policy: Floats) -> Floats:
        return policy[self.context, self.action]

    def modeled(self, policy: Floats, model: Floats) -> tuple[Floats, Floats]:
        """Predicted rewards of the logged actions, and of the policy."""
        return model[self.context, self.action], (policy * model).sum(1)[self.context]


def softmax(logits: Floats) -> Floats:
    grown = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(grown / grown.sum(1, keepdims=True))


def by_snips(bandit: Bandit, log: Logged, resamples: int = 200) -> Estimate:
    return snips(log.reward, log.propensity, log.action_probability(bandit.policy), bandit.rng, resamples=resamples)


def by_robust(bandit: Bandit, log: Logged, model: Floats, resamples: int = 200) -> Estimate:
    parts = log.modeled(bandit.policy, model)
    return doubly_robust(
        log.reward, log.propensity, log.action_probability(bandit.policy), *parts, bandit.rng, resamples=resamples
    )


def assert_right_in_the_mean(values: list[float], truth: float) -> None:
    """Check the mean within four standard errors, which chance exceeds once in 16 000 times."""
    assert abs(np.mean(values) - truth) < 4 * np.std(values) / np.sqrt(len(values))


def values_of(found: list[Estimate]) -> list[float]:
    return [one.value for one in found if one.value is not None]


def test_doubly_robust_is_unbiased_on_short_logs() -> None:
    bandit = Bandit(np.random.default_rng(1))
    model = bandit.means + bandit.rng.normal(scale=0.1, size=bandit.means.shape)
    found = [by_robust(bandit, bandit.log(60), model, resamples=20) for _ in range(600)]
    assert_right_in_the_mean(values_of(found), bandit.value(bandit.policy))


def test_doubly_robust_is_unbiased_with_a_wrong_model() -> None:
    bandit = Bandit(np.random.default_rng(2))
    wrong = 0.7 - 2 * bandit.means
    found = [by_robust(bandit, bandit.log(200), wrong, resamples=20) for _ in range(600)]
    assert_right_in_the_mean(values_of(found), bandit.value(bandit.policy))
    misled = (bandit.policy * wrong).sum(1).mean()
    assert abs(misled - bandit.value(bandit.policy)) > 0.3  # the model alone would be far off


def test_doubly_robust_is_unbiased_with_wrong_propensities() -> None:
    bandit = Bandit(np.random.default_rng(3))
    found = []
    for _ in range(300):
        log = bandit.log(200)
        wrong = np.full_like(log.propensity, 1 / 6)
        parts = log.modeled(bandit.policy, bandit.means)
        found.append(
            doubly_robust(log.reward, wrong, log.action_probability(bandit.policy), *parts, bandit.rng, resamples=20)
        )
    assert_right_in_the_mean(values_of(found), bandit.value(bandit.policy))


def test_snips_converges() -> None:
    bandit = Bandit(np.random.default_rng(4))
    truth = bandit.value(bandit.policy)
    (long,) = values_of([by_snips(bandit, bandit.log(200_000), 20)])
    assert abs(long - truth) < 0.01
    spread = [np.std(values_of([by_snips(bandit, bandit.log(n), 20) for _ in range(200)])) for n in (100, 1600)]
    assert 3 < spread[0] / spread[1] < 5.5  # a quarter of the error for sixteen times as much


def test_good_model_reduces_variance() -> None:
    bandit = Bandit(np.random.default_rng(5))
    logs = [bandit.log(200) for _ in range(200)]
    plain = np.var(values_of([by_snips(bandit, log, 20) for log in logs]))
    robust = np.var(values_of([by_robust(bandit, log, bandit.means, 20) for log in logs]))
    assert robust < 0.8 * plain


def coverage(repeats: int, seed: int) -> dict[str, float]:
    """Share of 95 % intervals that contain the truth, over new bandits and logs."""
    held: dict[str, list[bool]] = {"snips": [], "doubly robust": [], "difference": []}
    for number in range(repeats):
        bandit = Bandit(np.random.default_rng([seed, number]))
        log, truth, before = bandit.log(400), bandit.value(bandit.policy), bandit.value(bandit.logging)
        model = bandit.means + bandit.rng.normal(scale=0.2, size=bandit.means.shape)
        said, hoped = log.modeled(bandit.policy, model)
        given = log.reward, log.propensity, log.action_probability(bandit.policy), log.propensity, bandit.rng
        plain, *_ = compare_rewards(*given)
        robust, _, difference = compare_rewards(
            *given, model=ModelRewards(said, hoped, log.modeled(bandit.logging, model)[1])
        )
        cases = ((plain, truth), (robust, truth), (difference, truth - before))
        for name, (one, right) in zip(held, cases, strict=True):
            assert one.low is not None
            assert one.high is not None
            held[name].append(one.low <= right <= one.high)
    return {name: float(np.mean(hits)) for name, hits in held.items()}


def test_interval_coverage() -> None:
    found = coverage(200, seed=6)
    assert all(0.90 <= share <= 0.985 for share in found.values()), found


@pytest.mark.long
def test_interval_coverage_on_a_thousand_logs() -> None:
    found = coverage(1000, seed=7)
    print(found)
    assert all(0.90 <= share <= 0.98 for share in found.values()), found


def test_both_estimators_are_reported() -> None:
    bandit = Bandit(np.random.default_rng(11))
    log = bandit.log(300)
    predicted, expected = log.modeled(bandit.policy, bandit.means)
    given = log.reward, log.propensity, log.action_probability(bandit.policy), log.propensity
    robust = compare_rewards(*given, keyed(), model=ModelRewards(predicted, expected, predicted))
    plain = compare_rewards(*given, keyed())
    for one, other in zip(robust, plain, strict=True):
        assert one.snips is not None
        assert other.snips is None
        found, right = one.snips, other
        assert (found.value, found.low, found.high) == pytest.approx((right.value, right.low, right.high))
        assert (found.effective, found.count) == (right.effective, right.count)
    assert robust[0].value != plain[0].value
    assert str(robust[2]).endswith(f"; SNIPS {plain[2].value:+.4f}")
    assert "SNIPS" not in str(plain[2])


def test_difference_has_a_narrower_interval() -> None:
    bandit = Bandit(np.random.default_rng(8))
    log = bandit.log(500)
    near = softmax(np.log(bandit.logging) + 0.1 * bandit.means)
    new, old, difference = compare_rewards(
        log.reward, log.propensity, log.action_probability(near), log.propensity, bandit.rng
    )
    assert difference.effective == new.effective < old.effective
    assert difference.low is not None
    assert difference.high is not None
    assert new.low is not None
    assert new.high is not None
    assert difference.high - difference.low < 0.3 * (new.high - new.low)


@pytest.mark.parametrize(
    ("weights", "worth"),
    [([1, 1, 1, 1], 4.0), ([1, 0, 0, 0], 1.0), ([3, 1], 1.6), ([], 0.0), ([0, 0], 0.0), ([1e-200, 1e-200], 2.0)],
)
def test_effective_size_of_known_weights(weights: list[float], worth: float) -> None:
    assert effective_size(weights) == pytest.approx(worth)


@pytest.mark.parametrize("chosen", [[], [0.0, 0.0, 0.0], [np.nan, 0.5, 0.5], [np.inf, 0.5, 0.5]])
def test_unknown_estimate_is_none_not_nan(chosen: list[float]) -> None:
    count, rng = len(chosen), np.random.default_rng(0)
    nothing = Estimate(None, None, None, 0.0, count)
    reward, drawn = [0.1, 0.0, 0.3][:count], [0.5] * count
    assert snips(reward, drawn, chosen, rng) == nothing
    assert compare_rewards(reward, drawn, chosen, drawn, rng)[2] == nothing
    assert "unknown" in str(nothing)


def test_clipped_share_is_reported() -> None:
    found = snips([1, 0, 0, 0], [0.1, 0.5, 0.5, 0.5], [0.5] * 4, np.random.default_rng(0), clip=2.0)
    assert found.clipped == 0.25
    assert found.value == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("reward", "propensity", "message"),
    [
        ([1.0, 1.0], [0.5, 0.0], "decision 1 of the log has the propensity 0.0"),
        ([1.0, 1.0], [0.5, 1.5], "decision 1"),
        ([1.0, np.nan], [0.5, 0.5], "decision 1 of the log has the reward nan"),
        ([1.0], [0.5, 0.5], "different lengths"),
    ],
)
def test_impossible_log_is_refused(reward: list[float], propensity: list[float], message: str) -> None:
    with pytest.raises(TownletError, match=message):
        snips(reward, propensity, [0.5, 0.5], np.random.default_rng(0))


probability = st.floats(0.01, 1.0)
rows = st.lists(st.tuples(st.floats(-1, 1), probability, probability, st.floats(-1, 1)), min_size=2, max_size=40)


def columns(log: list[tuple[float, float, float, float]]) -> tuple[Floats, ...]:
    return tuple(np.array(column) for column in zip(*log, strict=True))


@settings(max_examples=60, deadline=None)
@given(rows, st.floats(0.1, 10))
def test_estimates_scale_with_rewards(log: list[tuple[float, float, float, float]], scale: float) -> None:
    reward, drawn, chosen, model = columns(log)
    for one, scaled in (
        (snips(reward, drawn, chosen, keyed()), snips(scale * reward, drawn, chosen, keyed())),
        (
            doubly_robust(reward, drawn, chosen, model, model, keyed()),
            doubly_robust(scale * reward, drawn, chosen, scale * model, scale * model, keyed()),
        ),
    ):
        assert (scaled.value, scaled.low, scaled.high) == pytest.approx(
            tuple(scale * figure for figure in (one.value, one.low, one.high) if figure is not None), abs=1e-9
        )
        assert scaled.effective == one.effective


@settings(max_examples=60, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_estimates_do_not_depend_on_order(log: list[tuple[float, float, float, float]], chance: Random) -> None:
    shuffled = list(log)
    chance.shuffle(shuffled)
    found = []
    for order in (log, shuffled):
        reward, drawn, chosen, model = columns(order)
        one = doubly_robust(reward, drawn, chosen, model, 2 * model, keyed())
        plain = snips(reward, drawn, chosen, keyed())
        found.append((one.value, one.effective, plain.value, plain.effective))
    assert found[0] == pytest.approx(found[1])


@settings(max_examples=60, deadline=None)
@given(rows)
def test_logging_policy_is_worth_its_mean_reward(log: list[tuple[float, float, float, float]]) -> None:
    reward, drawn, _, model = columns(log)
    for rewards in (None, ModelRewards(model, model, model)):
        one, _, gain = compare_rewards(reward, drawn, drawn, drawn, keyed(), model=rewards, resamples=50)
        assert one.value == pytest.approx(reward.mean(), abs=1e-12)
        assert one.effective == pytest.approx(len(reward))
        assert (gain.value, gain.low, gain.high) == (0.0, 0.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(rows)
def test_estimate_lies_within_rewards_and_interval(log: list[tuple[float, float, float, float]]) -> None:
    reward, drawn, chosen, _ = columns(log)
    found = snips(reward, drawn, chosen, keyed())
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert reward.min() - 1e-9 <= found.value <= reward.max() + 1e-9
    assert found.low <= found.value <= found.high
    assert 1 - 1e-9 <= found.effective <= len(reward) + 1e-9


def test_interval_is_deterministic() -> None:
    log = Bandit(np.random.default_rng(9)).log(100)
    first, second = (snips(log.reward, log.propensity, log.propensity, keyed()) for _ in range(2))
    assert first == second


def test_fit_rewards_recovers_weights_and_intercept() -> None:
    rng = np.random.default_rng(10)
    features = rng.normal(size=(4000, 3))
    reward = features @ [0.5, -0.2, 0.0] + 0.7 + rng.normal(scale=0.1, size=4000)
    weights = fit_rewards(features, reward, ridge=1.0)
    assert weights == pytest.approx([0.5, -0.2, 0.0, 0.7], abs=0.01)
    assert predict_rewards(features.reshape(40, 100, 3), weights).shape == (40, 100)


def test_strong_ridge_predicts_the_mean() -> None:
    rng = np.random.default_rng(11)
    features, reward = rng.normal(size=(50, 2)), rng.normal(size=50)
    assert predict_rewards(features, fit_rewards(features, reward, ridge=1e12)) == pytest.approx(reward.mean())
    constant = np.ones((50, 2))  # singular without a ridge
    assert predict_rewards(constant, fit_rewards(constant, reward)) == pytest.approx(reward.mean())
    assert predict_rewards(features, fit_rewards(np.empty((0, 2)), [])).tolist() == [0.0] * 50


def keyed() -> np.random.Generator:
    return np.random.default_rng(0)
