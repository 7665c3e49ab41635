"""Which version may serve: what is known of a candidate, and what follows from it, with the reason in words.

A candidate is compared with the version that serves on decisions that nobody learned from. `watch` asks the same of
the version that serves, beside the one that served before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from townlet.agents.agent import no_interrupt
from townlet.config.models import StrictModel
from townlet.decide.estimate import Estimate, PolicyComparison, compare
from townlet.decide.policy_diff import Numbers, PolicyDiff


class JudgeSettings(StrictModel):
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
class VersionSteps:
    """The steps of a candidate, of what it was trained from, and of what serves."""

    step: int
    parent_step: int
    serving_step: int


@dataclass(frozen=True)
class Evidence:
    """What is known of a version beside the one before it, which is the serving one for a candidate."""

    finite: bool
    ages: VersionSteps
    count: int  # held-out experiences with an outcome
    entropy: float | None  # mean, as a share of the largest; None as all: not known
    entropy_before: float | None
    pass_rate: float | None  # the probability that the gate approves, in the mean
    pass_rate_before: float | None
    change: float | None  # total variation between both, in the mean
    comparison: PolicyComparison
    at: float = 0.0  # seconds since 1970

    @property
    def difference(self) -> Estimate:
        """Estimated reward less that of the one before, on the same experiences."""
        return self.comparison.difference


class Verdict(NamedTuple):
    """What is done with a version, and why."""

    action: Literal["promote", "hold", "refuse", "keep", "roll_back"]
    reason: str


def collect_evidence(
    found: PolicyDiff,
    reward: Numbers,
    propensity: Numbers,
    ages: VersionSteps,
    settings: JudgeSettings,
    rng: np.random.Generator,
    *,
    weights_finite: bool,
    known: NDArray[np.bool_] | None = None,
    at: float = 0.0,
    rest: Callable[[], object] = no_interrupt,
) -> Evidence:
    """All of it from N held-out observations: what both versions would do there, and what came of what was done [N].

    `weights_finite` must be asked of the weights: an infinite one may hide behind a tanh. `known` [N] are those with an
    outcome, else all. `rest` is called again and again on the way.
    """
    rows = np.flatnonzero(known) if known is not None else np.arange(len(found))
    sound, trusted = weights_finite and found.finite[0], found.finite[1]
    measured = _measured(found, 0) if sound else (None, None)
    measured_before = _measured(found, 1) if trusted else (None, None)
    change = float(found.change.mean()) if sound and trusted and len(found) else None
    parts: dict[str, Numbers] = {}
    if found.hoped is not None and found.said is not None:
        hoped, hoped_before = found.hoped
        parts = {"model": found.said[rows], "expected_model": hoped[rows], "expected_serving": hoped_before[rows]}
    comparison = compare(
        reward[rows], propensity[rows], found.chosen[0][rows], found.chosen[1][rows], rng,
        **parts, clip=settings.clip, draws=settings.draws, level=settings.level, rest=rest,
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


def review_serving(evidence: Evidence, settings: JudgeSettings) -> Verdict:
    """Keep the version that serves, or roll back to the one before it."""
    against = (
        _broken(evidence) or _collapsed(evidence, settings) or _rejected(evidence, settings)
        or _worse(evidence, settings)
    )  # fmt: skip
    if against:
        return Verdict("roll_back", against)
    return Verdict("keep", f"nothing speaks against it: the difference of reward is {evidence.difference}")


def _measured(found: PolicyDiff, which: int) -> tuple[float | None, float | None]:
    """(entropy as a share of the largest, pass rate) in the mean; None without observations."""
    if not len(found):
        return None, None
    free = found.choices > 1  # where there is no choice, there is nothing to be undecided about
    share = found.entropy[which][free] / np.log(found.choices[free])
    return float(share.mean()) if free.any() else None, float(found.passes[which].mean())


def _broken(found: Evidence) -> str:
    return "" if found.finite else "its weights or probabilities are not finite"


def _stale(ages: VersionSteps, settings: JudgeSettings) -> str:
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
