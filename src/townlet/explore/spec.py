"""How an agent explores, as data: the way to choose, the bonus for the new, and what that bonus weighs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from townlet.config.model import Model
from townlet.config.schedule import Schedule, Scheduled


def ends(value: float | Schedule) -> tuple[float, ...]:
    """The values a setting goes between: one number, or both ends of its schedule."""
    return (value.start, value.end) if isinstance(value, Schedule) else (value,)


def not_negative(value: float | Schedule | None) -> float | Schedule | None:
    """The setting, unless it is below 0 at an end of its way."""
    if value is not None and min(ends(value)) < 0:
        raise ValueError("it cannot be below 0")
    return value


class EpsilonSpec(Model):
    """The best action, except that with probability ε any valid one is drawn. Every row has its own ε."""

    name: Literal["epsilon"] = "epsilon"
    start: float = Field(1.0, ge=0, le=1, description="ε of a row's first episode. Lower it to trust values sooner.")
    end: float = Field(0.01, ge=0, le=1, description="ε never falls below this. Raise it to keep exploring for ever.")
    decay: float = Field(
        0.995,
        gt=0,
        le=1,
        description="Multiplies ε when its row ends an episode. Raise it to explore longer.",
    )
    schedule: Scheduled | None = Field(
        None, description="One ε for all rows by env_steps, instead of start, end and decay. Raise it to explore more."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> EpsilonSpec:
        if self.end > self.start:
            raise ValueError(f"epsilon falls from `start` to `end`, so `end` {self.end} cannot be above {self.start}")
        if self.schedule is not None and not all(0 <= value <= 1 for value in ends(self.schedule)):
            raise ValueError("epsilon is a probability; give the schedule values from 0 to 1")
        return self


class BoltzmannSpec(Model):
    """Valid actions are drawn with probabilities softmax(values / temperature)."""

    name: Literal["boltzmann"] = "boltzmann"
    temperature: Scheduled = Field(
        1.0, description="Raise it and choices become uniform; towards 0 the best action is taken."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> BoltzmannSpec:
        if min(ends(self.temperature)) < 0:
            raise ValueError("a temperature cannot be below 0")
        return self


class RndSpec(Model):
    """Random network distillation: new is what a predictor cannot yet say of a fixed random network."""

    name: Literal["rnd"] = "rnd"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 128), description="Widths of the layers between. Raise them to tell finer differences, at more cost."
    )
    embed: int = Field(128, ge=1, description="Outputs to predict. Raise it for a smoother novelty, at more cost.")
    lr: float = Field(1e-4, gt=0, description="Step size of the predictor. Raise it and novelty fades sooner.")
    normalize_obs: bool = Field(
        True, description="Centre and scale each value by what was seen. Off, large values drown small ones."
    )
    normalize_reward: bool = Field(
        True, description="Divide by the root mean square of all novelty so far. Off, its size depends on the network."
    )
    batch: int = Field(1024, ge=1, description="Observations in a gradient step. Lower it to take more, noisier steps.")
    every: int = Field(1, ge=1, description="Learn at every n-th call. Raise it and novelty fades slower, cheaper.")


class CountsSpec(Model):
    """New is what was seldom seen: 1 / √(visits of states that look alike)."""

    name: Literal["counts"] = "counts"
    blocks: tuple[str, ...] = Field(
        (), description="Blocks of the observation that tell states apart; all by default. Fewer make states alike."
    )
    bins: int = Field(10, ge=1, description="Levels a value is rounded to. Raise it to tell finer differences.")
    bits: int = Field(
        16, ge=1, le=24, description="Size of the code, 2^bits counters. Raise it to take fewer states for the same."
    )


class FixedWeight(Model):
    """The bonus counts this much, whatever happens."""

    name: Literal["fixed"] = "fixed"
    value: Scheduled = Field(0.0, description="Intrinsic reward is multiplied by this. Raise it to seek the new more.")

    @model_validator(mode="after")
    def _makes_sense(self) -> FixedWeight:
        if min(ends(self.value)) < 0:
            raise ValueError("a weight below 0 would punish what is new")
        return self


class AdaptiveWeight(Model):
    """The bonus fades while life is steady and good: over the last episodes, small variance and a high mean."""

    name: Literal["adaptive"] = "adaptive"
    start: float = Field(1.0, ge=0, description="Weight at the beginning. Raise it to seek the new more.")
    minimum: float = Field(0.01, ge=0, description="It never falls below this. Raise it to stay curious for ever.")
    factor: float = Field(0.99, gt=0, le=1, description="Multiplied in at an episode's end. Lower it to fade faster.")
    episodes: int = Field(100, ge=2, description="Episodes looked back on. Raise it to judge slower and surer.")
    variance: float = Field(100.0, gt=0, description="Survival is steady below this variance. Raise it to fade sooner.")
    mean: float = Field(50.0, ge=0, description="Survival is good above this many steps. Raise it to fade later.")
    mean_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The same as a share of max_steps, instead of `mean`. Raise it to fade later.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> AdaptiveWeight:
        if self.minimum > self.start:
            raise ValueError(f"the weight falls from `start`, so `minimum` {self.minimum} cannot be above {self.start}")
        return self


ChooseSpec = Annotated[EpsilonSpec | BoltzmannSpec, Field(discriminator="name")]
BonusSpec = Annotated[RndSpec | CountsSpec, Field(discriminator="name")]
WeightSpec = Annotated[FixedWeight | AdaptiveWeight, Field(discriminator="name")]


class ExploreSpec(Model):
    """All of exploration. Choosing and bonus know nothing of each other, so each goes with every other."""

    choose: ChooseSpec = Field(EpsilonSpec(), description="How value-based agents choose; others have their own way.")
    bonus: BonusSpec | None = Field(None, description="Reward for reaching what is new; none by default.")
    weight: WeightSpec = Field(FixedWeight(), description="What the bonus weighs beside the environment's reward.")

    @model_validator(mode="after")
    def _makes_sense(self) -> ExploreSpec:
        if self.bonus is not None and isinstance(self.weight, FixedWeight) and not any(ends(self.weight.value)):
            raise ValueError(
                "a bonus without weight changes nothing; add weight: {name: fixed, value: 0.1} or {name: adaptive}"
            )
        return self
