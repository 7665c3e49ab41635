"""Which version may serve: what is known of a candidate, and what follows from it, with the reason in words.

A candidate is compared with the version that serves on decisions that nobody learned from. `watch` asks the same of
the version that serves, beside the one that served before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from townlet.config.model import Model
from townlet.decide.estimate import Comparison, Estimate, compare

Chances = NDArray[np.floating]  # [N, K], each line sums to 1


class JudgeSettings(Model):
    """Which versions may serve."""

    least_count: int = Field(
        100,
        ge=1,
        description="Held-out experiences that a verdict by reward needs. Raised, large changes wait longer; lowered, "
        "chance decides more often.",
    )
    least_effective: float = Field(
        50.0,
        ge=1,
        description="What they must be worth after weighting. Raised, versions far from what served wait longer; "
        "lowered, a few heavy experiences decide.",
    )
    entropy_floor: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Entropy as a share of the largest below which a version has collapsed. Raised, more exploration "
        "is kept; lowered, surer policies may serve.",
    )
    entropy_fall: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the entropy before that must be left. Raised, policies must become sure more slowly; "
        "at 0 they may at once.",
    )
    pass_floor: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of the pass rate before that must be left. Raised, versions that the gate likes less are "
        "refused sooner; at 0 the gate's opinion does not count.",
    )
    tolerance: float = Field(
        0.02,
        ge=0,
        description="Loss of reward that is borne. Raised, worse versions may serve; lowered, more good ones wait for "
        "evidence.",
    )
    far_loss: float = Field(
        0.1,
        ge=0,
        description="Estimated loss that is refused however wide its interval is. Raised, unlucky versions are held "
        "instead; lowered, more of them are refused.",
    )
    small_change: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of decisions that may change (total variation) without evidence. Raised, learning is "
        "followed sooner; at 0 everything waits for evidence.",
    )
    stale_steps: int = Field(
        1000,
        ge=0,
        description="Steps by which what a version was trained from may be older than what serves. Raised, older "
        "branches may serve.",
    )
    patience: int = Field(
        50,
        ge=1,
        description="Versions held in a row until learning goes back to what serves. Raised, it may stray further.",
    )
    level: float = Field(
        0.95, gt=0, lt=1, description="Certainty of intervals. Raised, less is refused and more is held."
    )
    draws: int = Field(500, ge=20, le=100_000, description="Resamples of an interval. Raised, steadier and slower.")
    clip: float | None = Field(
        None, gt=0, description="Cuts larger weights. Lowered, estimates are steadier and further from the truth."
    )


@dataclass(frozen=True)
class Ages:
    """The steps of a candidate, of what it was trained from, and of what serves."""

    step: int
    parent_step: int
    serving_step: int


@dataclass(frozen=True)
class Evidence:
    """What is known of a version beside the one before it, which is the serving one for a candidate."""

    finite: bool
    ages: Ages
    count: int  # held-out experiences with an outcome
    entropy: float | None  # mean, as a share of the largest; None as all: not known
    entropy_before: float | None
    pass_rate: float | None  # the probability that the gate approves, in the mean
    pass_rate_before: float | None
    change: float | None  # total variation between both, in the mean
    comparison: Comparison
    at: float = 0.0  # seconds since 1970

    @property
    def difference(self) -> Estimate:
        """Estimated reward less that of the one before, on the same experiences."""
        return self.comparison.difference


class Verdict(NamedTuple):
    """What is done with a version, and why."""

    action: Literal["promote", "hold", "refuse", "keep", "roll_back"]
    reason: str


def evidence(
    candidate: Chances, before: Chances, action: NDArray[np.integer], reward: NDArray[np.floating],
    propensity: NDArray[np.floating], approved: NDArray[np.bool_], ages: Ages, settings: JudgeSettings,
    rng: np.random.Generator, *, weights_finite: bool, model: NDArray[np.floating] | None = None,
    known: NDArray[np.bool_] | None = None, allowed: NDArray[np.bool_] | None = None,
    entropies: Sequence[NDArray[np.floating]] | None = None, at: float = 0.0,
) -> Evidence:  # fmt: skip
    """All of it from N held-out observations: probabilities of both versions, the gate's approval and a model of
    rewards are [N, K], what was decided and came of it [N].

    `weights_finite` must be asked of the weights: an infinite one may hide behind a tanh. `known` [N] are those with an
    outcome, else all; `allowed` [N, K] the actions that a policy can choose at all; `entropies` [N] those of both
    versions, where they are at hand.
    """
    rows = np.flatnonzero(known) if known is not None else np.arange(len(action))
    sound = weights_finite and bool(np.isfinite(candidate).all())
    trusted = bool(np.isfinite(before).all())
    undecided, undecided_before = entropies or (_entropy(candidate), _entropy(before))
    measured = _measured(candidate, undecided, approved, allowed) if sound else (None, None)
    measured_before = _measured(before, undecided_before, approved, allowed) if trusted else (None, None)
    change = float(np.abs(candidate - before).sum(1).mean() / 2) if sound and trusted and len(action) else None
    parts: dict[str, NDArray[np.floating]] = {}
    if model is not None:
        with np.errstate(all="ignore"):  # of a broken version
            expected = [np.einsum("nk,nk->n", chances, model)[rows] for chances in (candidate, before)]
        parts = {"model": model[rows, action[rows]], "expected_model": expected[0], "expected_serving": expected[1]}
    comparison = compare(
        reward[rows], propensity[rows], candidate[rows, action[rows]], before[rows, action[rows]], rng,
        **parts, clip=settings.clip, draws=settings.draws, level=settings.level,
    )  # fmt: skip
    return Evidence(
        sound, ages, len(rows), measured[0], measured_before[0], measured[1], measured_before[1], change, comparison, at
    )


def judge(evidence: Evidence, settings: JudgeSettings) -> Verdict:
    """Promote a candidate, hold it until more is known, or refuse it for good."""
    against = (
        _broken(evidence)
        or _stale(evidence.ages, settings)
        or _collapsed(evidence, settings)
        or _rejected(evidence, settings)
        or _worse(evidence, settings)
    )
    return Verdict("refuse", against) if against else _weighed(evidence, settings)


def watch(evidence: Evidence, settings: JudgeSettings) -> Verdict:
    """Keep the version that serves, or roll back to the one before it."""
    against = (
        _broken(evidence) or _collapsed(evidence, settings) or _rejected(evidence, settings)
        or _worse(evidence, settings)
    )  # fmt: skip
    if against:
        return Verdict("roll_back", against)
    return Verdict("keep", f"nothing speaks against it: the difference of reward is {evidence.difference}")


def _entropy(chances: Chances) -> NDArray[np.floating]:
    """Of each line [N]; a version that is not sound is not asked for it."""
    with np.errstate(invalid="ignore"):
        logs = np.log(chances, out=np.zeros_like(chances), where=chances > 0)
        return np.asarray(-(chances * logs).sum(1))


def _measured(
    chances: Chances, entropy: NDArray[np.floating], approved: NDArray[np.bool_], allowed: NDArray[np.bool_] | None
) -> tuple[float | None, float | None]:
    """(entropy as a share of the largest, pass rate) in the mean; None without observations."""
    if not len(chances):
        return None, None
    choices = np.full(len(chances), chances.shape[1]) if allowed is None else allowed.sum(1)
    free = choices > 1  # where there is no choice, there is nothing to be undecided about
    share = float((entropy[free] / np.log(choices[free])).mean()) if free.any() else None
    return share, float(np.einsum("nk,nk->n", chances, approved).mean())


def _broken(found: Evidence) -> str:
    return "" if found.finite else "its weights or probabilities are not finite"


def _stale(ages: Ages, settings: JudgeSettings) -> str:
    if ages.step <= ages.serving_step:
        return f"it is stale: step {ages.step}, and what serves is of step {ages.serving_step}"
    if (behind := ages.serving_step - ages.parent_step) > settings.stale_steps:
        return f"it is stale: trained from step {ages.parent_step}, {behind} steps before what serves"
    return ""


def _collapsed(found: Evidence, settings: JudgeSettings) -> str:
    """Too sure of itself. What becomes less so than what was collapsed before may serve, and what is surely better."""
    now, before = found.entropy, found.entropy_before
    if now is None:
        return ""
    told = f"its entropy is {now:.3f} of the largest"
    if now < settings.entropy_floor and (before is None or now <= before):
        return f"it has collapsed: {told}, and {settings.entropy_floor:g} is the floor"
    gain = found.difference
    better = _enough(gain, settings) and gain.low is not None and gain.low > 0
    if before is not None and now < settings.entropy_fall * before and not better:
        return f"it has collapsed: {told}, after {before:.3f} in the version before"
    return ""


def _rejected(found: Evidence, settings: JudgeSettings) -> str:
    now, before = found.pass_rate, found.pass_rate_before
    if now is None or before is None or now >= settings.pass_floor * before:
        return ""
    return f"the gate approves {now:.3f} of its decisions, after {before:.3f} in the version before"


def _worse(found: Evidence, settings: JudgeSettings) -> str:
    """It earns less, and enough is known to say so."""
    gain = found.difference
    if not _enough(gain, settings) or gain.value is None:
        return ""
    if gain.value < -settings.far_loss or (gain.high is not None and gain.high < -settings.tolerance):
        return f"it earns less than the version before: {gain}"
    return ""


def _weighed(found: Evidence, settings: JudgeSettings) -> Verdict:
    """Nothing forbids it. A large change must be shown to do no harm; a small one only must not seem to."""
    gain, tolerance = found.difference, settings.tolerance
    small = found.change is not None and found.change <= settings.small_change
    size = "an unknown share" if found.change is None else f"{found.change:.3f}"
    if not _enough(gain, settings):
        if small and (gain.high is None or gain.high >= -tolerance):
            return Verdict("promote", f"it changes only {size} of the decisions; the difference of reward is {gain}")
        return Verdict("hold", f"it changes {size} of the decisions, and too little is known of it: {gain}")
    if gain.low is not None and gain.low >= -tolerance:
        return Verdict("promote", f"it earns no less than the version before: {gain}")
    if small and gain.value is not None and gain.value >= -tolerance:
        return Verdict("promote", f"it changes only {size} of the decisions and seems to do no harm: {gain}")
    return Verdict("hold", f"it changes {size} of the decisions and may earn less: {gain}")


def _enough(gain: Estimate, settings: JudgeSettings) -> bool:
    return gain.count >= settings.least_count and gain.effective >= settings.least_effective
