"""Settings of curricula: the stages, and the rules that advance or retreat a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel

ALWAYS: Final = ("health", "fitness")

SHAPING: Final = "potential"  # the shaping reward, which does not change the optimal policy
# Its weight under a reward mode; the world's other rewards keep theirs.
SHAPING_WEIGHTS: Final = {"shaped": 1.0, "half": 0.5, "sparse": 0.0}

MeterNames = tuple[Annotated[str, Field(min_length=1)], ...]
RewardWeights = Annotated[dict[str, Annotated[float, Field(ge=0)]], Field(min_length=1)]


class StageSpec(StrictModel):
    """One stage of difficulty."""

    active: MeterNames = Field(
        description="Meters that change, in addition to `always`; the others keep their initial value. More make the "
        "stage harder."
    )
    depletion: float = Field(
        1.0, ge=0, description="Multiplier of decay and modulations. Raise it to make the stage harder."
    )
    reward: Literal["shaped", "half", "sparse"] | RewardWeights = Field(
        "shaped",
        description="shaped: all rewards of the world, including `potential`; half: `potential` at half weight; "
        "sparse: without `potential`; or {reward: weight}, where rewards that are not listed weigh 0. Less shaping "
        "makes the stage harder.",
    )

    def reward_weights(self, rewards: Sequence[str]) -> dict[str, float]:
        """The weight of each reward in a world with these rewards, and of those that the stage needs besides."""
        if not isinstance(self.reward, str):
            return {name: self.reward.get(name, 0.0) for name in (*rewards, *self.reward)}
        weight = SHAPING_WEIGHTS[self.reward]
        shaping = {SHAPING: weight} if weight or SHAPING in rewards else {}
        return dict.fromkeys(rewards, 1.0) | shaping


_FIRST: Final = ("energy", "hygiene")
_ALL: Final = (*_FIRST, "satiation", "money", "mood", "social")
_SHAPED: Final = (
    StageSpec(active=_FIRST, depletion=0.2, reward="shaped"),
    StageSpec(active=(*_FIRST, "satiation"), depletion=0.5, reward="shaped"),
    StageSpec(active=(*_FIRST, "satiation", "money"), depletion=0.8, reward="shaped"),
    StageSpec(active=_ALL, depletion=1.0, reward="shaped"),
)
_HALF: Final = StageSpec(active=_ALL, depletion=1.0, reward="half")
_SPARSE: Final = StageSpec(active=_ALL, depletion=1.0, reward="sparse")
STAGES: Final = (*_SHAPED, _SPARSE)
STAGES_SIX: Final = (*_SHAPED, _HALF, _SPARSE)
SHIPPED_STAGES: Final = {"five": STAGES, "six": STAGES_SIX}

Stages = Literal["five", "six"] | Annotated[tuple[StageSpec, ...], Field(min_length=1)]


class StagedSpec(StrictModel):
    """Settings that all curricula share."""

    name: str
    stages: Stages = Field(
        "five",
        description="five: the shipped stages; six: with one more before the last, in which shaping has half its "
        "weight; or a list of stages.",
    )
    always: MeterNames = Field(
        ALWAYS, description="Meters active in every stage. More meters make the first stages harder."
    )

    @property
    def stage_list(self) -> tuple[StageSpec, ...]:
        """The stages in order; the first is stage 1."""
        return SHIPPED_STAGES[self.stages] if isinstance(self.stages, str) else self.stages


class FixedSpec(StagedSpec):
    """Every row stays at one stage."""

    name: Literal["fixed"] = "fixed"
    stage: int = Field(1, ge=1, description="The stage, counted from 1. Raise it for a harder environment.")

    @model_validator(mode="after")
    def _check(self) -> FixedSpec:
        if self.stage > len(self.stage_list):
            raise ValueError(f"there is no stage {self.stage}; the last is {len(self.stage_list)}")
        return self


class AdaptiveSpec(StagedSpec):
    """Each row advances when it does well and retreats when it fails, based on its most recent episodes."""

    name: Literal["adaptive"] = "adaptive"
    episodes: int = Field(
        10,
        ge=1,
        description="Number of most recent episodes at the stage on which a change is based. Raise it for slower, more "
        "reliable changes.",
    )
    steps: int = Field(1000, ge=0, description="Minimum steps at a stage before a change. Raise it for fewer changes.")
    advance: float = Field(
        0.7, ge=0, le=1, description="Advance above this fraction of max_steps survived. Raise it to require more."
    )
    retreat: float = Field(
        0.3, ge=0, le=1, description="Retreat below this fraction of max_steps survived. Raise it to retreat sooner."
    )
    delta: float = Field(0.05, ge=0, description="Tolerated drop of the reward per step. Raise it to advance sooner.")
    entropy: float = Field(
        0.5,
        ge=0,
        description="Advance only below this normalized entropy, in [0, 1]. Raise it to advance sooner.",
    )

    @model_validator(mode="after")
    def _check(self) -> AdaptiveSpec:
        if self.retreat > self.advance:
            raise ValueError(f"`retreat` {self.retreat} is above `advance` {self.advance}; lower it")
        return self


CurriculumSpec = Annotated[FixedSpec | AdaptiveSpec, Field(discriminator="name")]
