"""Verdicts on versions: bad ones are refused, good ones promoted, each with a reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decide.candidates import ACTIONS, BAD, GOOD, World
from townlet.decide.estimate import Estimate, concatenate, diff_policies
from townlet.decide.offline_eval import Evidence, VersionSteps, collect_evidence, judge_candidate, judge_serving
from townlet.decide.settings import PromotionSettings

SETTINGS = PromotionSettings()
NEWER = VersionSteps(step=11, parent_step=10, serving_step=10)


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """On ARM small networks are slower with oneDNN."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


def verdicts(worlds: int, first: int) -> dict[str, Counter[str]]:
    """Counts of verdicts on one version of each kind per world."""
    found = {kind: Counter[str]() for kind in (*BAD, *GOOD)}
    for seed in range(first, first + worlds):
        world = World(seed)
        for kind, said in found.items():
            said[judge_candidate(world.evidence(world.make(kind), SETTINGS), SETTINGS).action] += 1
    return found


def assert_good_and_bad_are_distinguished(found: dict[str, Counter[str]]) -> None:
    bad, good = (sum((found[kind] for kind in kinds), Counter[str]()) for kinds in (BAD, GOOD))
    assert bad["promote"] <= 0.01 * bad.total(), found
    assert good["refuse"] <= 0.05 * good.total(), found
    assert good["promote"] >= 0.9 * good.total(), found  # otherwise holding everything would pass


def test_bad_versions_are_refused_and_good_ones_promoted() -> None:
    found = verdicts(12, first=0)
    assert sum(found[kind].total() for kind in BAD) == 48
    assert sum(found[kind].total() for kind in GOOD) == 24
    assert_good_and_bad_are_distinguished(found)


@pytest.mark.long
def test_hundreds_of_bad_versions_are_refused_and_good_ones_promoted() -> None:
    found = verdicts(120, first=1000)
    print({kind: dict(said) for kind, said in found.items()})
    assert_good_and_bad_are_distinguished(found)


@pytest.mark.long
def test_old_weights_with_a_new_step_are_not_promoted() -> None:
    said = Counter[str]()
    for seed in range(2000, 2040):
        world = World(seed)
        assert world.value(world.older) < world.value(world.network) - 0.05
        said[judge_candidate(world.evidence(world.make("old weights"), SETTINGS), SETTINGS).action] += 1
    print(dict(said))
    assert said["promote"] == 0, said


def test_serving_version_is_rolled_back_if_the_previous_was_better() -> None:
    """The log is of the bad version; the reward of the previous one is estimated."""
    rolled = Counter[str]()
    for seed in range(4):
        world = World(seed)
        good, world.network = world.network, world.older
        world.act(1500)
        world.gated = False
        worse, same = (replace_before(world, network) for network in (good, world.older))
        rolled[judge_serving(worse, SETTINGS).action] += 1
        assert judge_serving(same, SETTINGS).action == "keep"
    assert rolled["roll_back"] >= 2, rolled  # the others are held by too little evidence


def replace_before(world: World, before: torch.nn.Module) -> Evidence:
    """Evidence about the serving network compared with a previous one."""
    found = diff_policies(
        world.chances(world.network), world.chances(before), world.action, np.ones(world.estimate.shape, bool)
    )
    return collect_evidence(found, world.reward, world.propensity, NEWER, SETTINGS, world.rng, weights_finite=True)


def estimate(value: float | None, width: float = 0.01, effective: float = 400.0, count: int = 500) -> Estimate:
    if value is None:
        return Estimate(None, None, None, 0.0, count)
    return Estimate(value, value - width, value + width, effective, count)


def known(gain: Estimate | None = None, **others: Any) -> Evidence:
    """Evidence about a valid candidate with small changes, modified as given."""
    usual = Evidence(True, NEWER, 500, 0.5, 0.5, 0.6, 0.6, 0.03, gain or estimate(0.0))
    return replace(usual, **others)


CASES = {
    "as good": (known(), "promote", "earns no less"),
    "better": (known(estimate(0.1), change=0.9), "promote", "earns no less"),
    "not finite": (known(finite=False), "refuse", "not finite"),
    "not trained": (
        known(steps=VersionSteps(10, 9, 10)),
        "refuse",
        "stale: step 10, while the serving version is from step 10",
    ),
    "older": (known(steps=VersionSteps(4, 3, 10)), "refuse", "stale: step 4"),
    "of an old parent": (
        known(steps=VersionSteps(5001, 3999, 5000)),
        "refuse",
        "stale: trained from step 3999, 1001 steps",
    ),
    "of a parent just young enough": (known(steps=VersionSteps(5001, 4000, 5000)), "promote", ""),
    "collapsed": (known(entropy=0.04, entropy_before=0.07), "refuse", "collapsed: its normalized entropy is 0.040"),
    "half as undecided": (known(entropy=0.2, entropy_before=0.5), "refuse", "after 0.500 in the previous version"),
    "on the way out of a collapse": (known(entropy=0.04, entropy_before=0.02), "promote", ""),
    "disliked by the gate": (known(pass_rate=0.4, pass_rate_before=0.6), "refuse", "sends 0.400"),
    "liked by the gate": (known(pass_rate=0.5, pass_rate_before=0.6), "promote", ""),
    "surely worse": (known(estimate(-0.04)), "refuse", r"earns less .* -0.0400 \(-0.0500 to -0.0300\)"),
    "far worse by a wide interval": (known(estimate(-0.2, width=0.4)), "refuse", "earns less"),
    "perhaps worse": (known(estimate(-0.03, width=0.05), change=0.5), "hold", "may earn less"),
    "uncertain and large": (known(estimate(0.0, width=0.05), change=0.5), "hold", "changes 0.500"),
    "uncertain and small": (known(estimate(0.0, width=0.05)), "promote", "changes only 0.030"),
    "little known, small": (known(estimate(-0.01, effective=20)), "promote", "effective size 20"),
    "few, small": (known(estimate(-0.01, count=20)), "promote", "from 20 decisions"),
    "little known, large": (known(estimate(0.3, effective=20), change=0.4), "hold", "there is too little evidence"),
    "little known speaks against it": (known(estimate(-0.1, effective=20)), "hold", "there is too little evidence"),
    "nothing known, small": (known(estimate(None)), "promote", "unknown"),
    "nothing seen": (
        known(estimate(None, count=0), entropy=None, entropy_before=None, pass_rate=None, change=None),
        "hold",
        "an unknown fraction",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    found, action, pattern = CASES[case]
    verdict = judge_candidate(found, SETTINGS)
    assert verdict.action == action, verdict
    assert re.search(pattern, verdict.reason), verdict


@pytest.mark.parametrize(
    ("case", "action"),
    [
        ("as good", "keep"), ("not finite", "roll_back"), ("older", "keep"), ("collapsed", "roll_back"),
        ("half as undecided", "roll_back"), ("disliked by the gate", "roll_back"), ("surely worse", "roll_back"),
        ("little known speaks against it", "keep"), ("nothing seen", "keep"),
    ],
)  # fmt: skip
def test_review_of_the_serving_version(case: str, action: str) -> None:
    assert judge_serving(CASES[case][0], SETTINGS).action == action


@pytest.mark.parametrize(
    ("case", "change", "action"),
    [
        ("collapsed", {"entropy_floor": 0.01}, "promote"),
        ("half as undecided", {"min_entropy_ratio": 0.3}, "promote"),
        ("disliked by the gate", {"min_pass_ratio": 0.5}, "promote"),
        ("surely worse", {"tolerance": 0.06}, "promote"),
        ("far worse by a wide interval", {"max_reward_loss": 0.3}, "hold"),
        ("uncertain and large", {"small_change": 0.6}, "promote"),
        ("little known, large", {"min_effective_size": 10.0}, "promote"),
        ("few, small", {"min_count": 10, "tolerance": 0.0, "small_change": 0.0}, "hold"),
        ("of an old parent", {"stale_steps": 2000}, "promote"),
    ],
)
def test_every_setting_changes_a_verdict(case: str, change: dict[str, Any], action: str) -> None:
    assert judge_candidate(CASES[case][0], SETTINGS).action != action
    assert judge_candidate(CASES[case][0], PromotionSettings(**change)).action == action


share = st.floats(0, 1)


@settings(max_examples=200, deadline=None)
@given(share, share, share, share, share, st.floats(-1, 1), st.floats(0, 1), st.floats(0, 600), st.integers(0, 600))
def test_better_candidate_never_gets_a_worse_verdict(
    entropy: float, before: float, passed: float, passed_before: float, change: float, value: float, width: float,
    effective: float, count: int,
) -> None:  # fmt: skip
    """More reward or a higher pass rate never worsens the verdict."""
    order = ["refuse", "hold", "promote"]
    gain = estimate(value, width, effective, count)
    one = known(
        gain, entropy=entropy, entropy_before=before, pass_rate=passed, pass_rate_before=passed_before, change=change
    )
    better = estimate(value + 0.05, width, effective, count)
    richer = replace(one, difference=better)
    ranks = [order.index(judge_candidate(each, SETTINGS).action) for each in (one, richer, replace(one, pass_rate=1.0))]
    assert ranks[0] <= min(ranks[1:])
    assert judge_candidate(replace(one, finite=False), SETTINGS).action == "refuse"


def test_evidence_of_known_policies() -> None:
    """Four actions, two observations: values that can be checked by hand."""
    candidate = np.array([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    before = np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    approved = np.array([[True, False, False, False], [True, True, False, False]])
    seen = diff_policies(candidate, before, np.array([0, 3]), approved)
    found = collect_evidence(
        seen, np.array([1.0, 0.0]), np.array([0.5, 0.25]), NEWER, SETTINGS, np.random.default_rng(0),
        weights_finite=True,
    )  # fmt: skip
    assert (found.finite, found.count) == (True, 2)
    assert (found.entropy, found.entropy_before) == pytest.approx((0.5, 0.75))
    assert (found.pass_rate, found.pass_rate_before) == pytest.approx((0.75, 0.5))
    assert found.change == pytest.approx(0.25)
    assert found.difference.value == pytest.approx(2 / 3 - 1 / 2)
    assert json.loads(json.dumps(asdict(found)))["steps"]["step"] == 11


def test_entropy_is_normalized_by_valid_actions() -> None:
    chances = np.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    valid = np.array([[True, True, False, False], [True, False, False, False]])
    seen = diff_policies(chances, chances, np.array([0, 0]), np.ones((2, 4), bool), valid=valid)
    given = (np.zeros(2), np.array([0.5, 1.0]), NEWER, SETTINGS)
    found = collect_evidence(seen, *given, np.random.default_rng(0), weights_finite=True)
    assert found.entropy == pytest.approx(1.0)  # the second had one valid action and does not count


def test_experiences_without_outcomes_count_for_the_policy_only() -> None:
    rng = np.random.default_rng(0)
    chances, reward = rng.dirichlet(np.ones(5), 50), rng.normal(size=50)
    reward[20:] = np.nan
    model = np.zeros((50, 5))
    seen = diff_policies(chances, chances, rng.integers(5, size=50), np.ones((50, 5), bool), predictions=model)
    given = (reward, np.full(50, 0.2), NEWER, SETTINGS, rng)
    found = collect_evidence(seen, *given, weights_finite=True, known=np.arange(50) < 20)
    assert found.count == found.difference.count == 20
    assert found.difference.value == 0.0


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_broken_probabilities_are_evidence_not_an_error(broken: float) -> None:
    chances = np.full((30, ACTIONS), 1 / ACTIONS)
    bad = chances.copy()
    bad[3] = broken
    done, given = (np.zeros(30, int), np.ones((30, ACTIONS), bool)), (np.zeros(30), np.full(30, 0.1), NEWER, SETTINGS)
    rng = np.random.default_rng(0)
    seen = diff_policies(bad, chances, *done, predictions=np.zeros((30, ACTIONS)))
    found = collect_evidence(seen, *given, rng, weights_finite=True)
    assert (found.finite, found.entropy, found.change) == (False, None, None)
    assert judge_candidate(found, SETTINGS).action == "refuse"
    beside = collect_evidence(diff_policies(chances, bad, *done), *given, rng, weights_finite=True)
    assert judge_candidate(beside, SETTINGS).action == "hold"  # `judge_serving` handles the broken version


def test_evidence_without_observations() -> None:
    nothing = np.empty((0, 4))
    seen = diff_policies(nothing, nothing, np.empty(0, int), np.empty((0, 4), bool))
    found = collect_evidence(
        seen, np.empty(0), np.empty(0), NEWER, SETTINGS, np.random.default_rng(0), weights_finite=True
    )
    assert judge_candidate(found, SETTINGS).action == "hold"


def test_policy_diff_can_be_computed_in_parts() -> None:
    rng = np.random.default_rng(0)
    new, old = rng.dirichlet(np.ones(6), (2, 40))
    given = rng.integers(6, size=40), rng.random((40, 6)) < 0.5, rng.normal(size=(40, 6))
    whole = diff_policies(new, old, given[0], given[1], predictions=given[2])
    parts = [slice(0, 1), slice(1, 30), slice(30, 40)]
    action, approved, model = given
    found = concatenate([diff_policies(new[p], old[p], action[p], approved[p], predictions=model[p]) for p in parts])
    for name, one, other in zip(whole._fields, whole, found, strict=True):
        assert np.allclose(np.asarray(one, float), np.asarray(other, float)), name
    assert len(found) == 40
