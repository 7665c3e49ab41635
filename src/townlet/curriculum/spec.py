"""A curriculum as data: its stages, and the rules by which a row goes on or back."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel

ALWAYS: Final = ("health", "fitness")

# What the words for a reward mean: how much of each of the world's rewards is paid; those not named pay nothing.
REWARDS: Final[dict[str, dict[str, float]]] = {
    "shaped": {"milestone": 1.0, "potential": 1.0},
    "half": {"milestone": 1.0, "potential": 0.5},
    "sparse": {"milestone": 1.0},
}

Meters = tuple[Annotated[str, Field(min_length=1)], ...]
Shares = Annotated[dict[str, Annotated[float, Field(ge=0)]], Field(min_length=1)]


class StageSpec(StrictModel):
    """One stage of difficulty."""

    active: Meters = Field(
        description="Meters that move, beside those always active; the others rest at their start. More make it harder."
    )
    depletion: float = Field(1.0, ge=0, description="Multiplies decay and modulations. Raise it to make life harder.")
    reward: Literal["shaped", "half", "sparse"] | Shares = Field(
        "shaped",
        description="shaped: milestone + potential; half: potential counts half; sparse: milestone alone; "
        "or {reward: share} for other rewards of the world. Less guidance makes it harder.",
    )

    @property
    def shares(self) -> dict[str, float]:
        """How much of each reward is paid, by name."""
        return REWARDS[self.reward] if isinstance(self.reward, str) else self.reward


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
SHIPPED: Final = {"five": STAGES, "six": STAGES_SIX}

Stages = Literal["five", "six"] | Annotated[tuple[StageSpec, ...], Field(min_length=1)]


class Staged(StrictModel):
    """What every curriculum has: a name and a list of stages."""

    name: str
    stages: Stages = Field(
        "five",
        description="five: the shipped stages; six: a half-shaped one before the last; or a list of stages.",
    )
    always: Meters = Field(ALWAYS, description="Meters active in every stage. More make the first ones harder.")

    @property
    def stage_list(self) -> tuple[StageSpec, ...]:
        """The stages in order, the first is stage 1."""
        return SHIPPED[self.stages] if isinstance(self.stages, str) else self.stages


class FixedSpec(Staged):
    """Every row stays at one stage."""

    name: Literal["fixed"] = "fixed"
    stage: int = Field(1, ge=1, description="The stage, from 1. Raise it to make life harder.")

    @model_validator(mode="after")
    def _makes_sense(self) -> FixedSpec:
        if self.stage > len(self.stage_list):
            raise ValueError(f"there is no stage {self.stage}; the last is {len(self.stage_list)}")
        return self


class AdversarialSpec(Staged):
    """Every row goes on when it does well and back when it fails, judged by its own last episodes."""

    name: Literal["adversarial"] = "adversarial"
    episodes: int = Field(
        10, ge=1, description="Finished episodes at the stage that are judged. Raise it to judge slower and surer."
    )
    steps: int = Field(1000, ge=0, description="Least steps at a stage before a change. Raise it to change less often.")
    advance: float = Field(
        0.7, ge=0, le=1, description="Go on above this share of max_steps survived. Raise it to ask for more first."
    )
    retreat: float = Field(
        0.3, ge=0, le=1, description="Go back below this share of max_steps survived. Raise it to go back sooner."
    )
    delta: float = Field(
        0.05, ge=0, description="Fall of reward per step that is put up with. Raise it to go on more easily."
    )
    entropy: float = Field(
        0.5, ge=0, description="Go on only while choices are surer than this, in [0, 1]. Raise it to ask for less."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> AdversarialSpec:
        if self.retreat > self.advance:
            raise ValueError(f"`retreat` {self.retreat} above `advance` {self.advance} would send good rows back")
        return self


CurriculumSpec = Annotated[FixedSpec | AdversarialSpec, Field(discriminator="name")]
