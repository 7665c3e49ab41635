"""Settings of exploration: action selection, intrinsic reward, and the weight of the intrinsic reward."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from townlet.config.models import StrictModel
from townlet.config.schedule import FloatOrSchedule, endpoints, validate_non_negative


class EpsilonSpec(StrictModel):
    """ε-greedy: the best valid action, or with probability ε a uniformly random one. ε is per row, unless scheduled."""

    name: Literal["epsilon"] = "epsilon"
    start: float = Field(1.0, ge=0, le=1, description="Initial ε of each row. Lower relies on values sooner.")
    end: float = Field(0.01, ge=0, le=1, description="Lower bound of ε. Higher keeps exploring more.")
    decay: float = Field(
        0.995, gt=0, le=1, description="Factor on a row's ε at the end of each of its episodes. Higher explores longer."
    )
    schedule: FloatOrSchedule | None = Field(
        None, description="ε of all rows, constant or by env_steps; replaces start, end and decay."
    )

    @model_validator(mode="after")
    def _validate(self) -> EpsilonSpec:
        if self.end > self.start:
            raise ValueError(f"epsilon falls from `start` to `end`, so `end` {self.end} cannot be above {self.start}")
        if self.schedule is not None and not all(0 <= value <= 1 for value in endpoints(self.schedule)):
            raise ValueError("epsilon is a probability; give the schedule values from 0 to 1")
        return self


class BoltzmannSpec(StrictModel):
    """Boltzmann exploration: valid actions are sampled from softmax(values / temperature)."""

    name: Literal["boltzmann"] = "boltzmann"
    temperature: FloatOrSchedule = Field(
        1.0, description="Temperature of the softmax. Higher approaches uniform choice, 0 is greedy."
    )
    _non_negative = field_validator("temperature")(validate_non_negative)


class RndSpec(StrictModel):
    """Random network distillation: novelty is the error in predicting a fixed random network."""

    name: Literal["rnd"] = "rnd"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (256, 128), description="Widths of the hidden layers. Wider layers distinguish finer details but cost more."
    )
    embedding_size: int = Field(128, ge=1, description="Outputs to predict. More make novelty smoother but cost more.")
    lr: float = Field(1e-4, gt=0, description="Learning rate of the predictor. Higher lets novelty decline faster.")
    normalize_obs: bool = Field(
        True, description="Normalize observations by running statistics. If off, large values dominate small ones."
    )
    normalize_reward: bool = Field(
        True,
        description="Divide by the root mean square of prediction errors. If off, the scale depends on the network.",
    )
    batch_size: int = Field(
        1024, ge=1, description="Observations per gradient step. Lower takes more and noisier steps."
    )
    update_every: int = Field(
        1,
        ge=1,
        description="Train the predictor only on every n-th minibatch (on-policy agents: rollout). Higher costs less; "
        "novelty declines more slowly.",
    )


class CountsSpec(StrictModel):
    """Count-based bonus: 1 / √(visits of similar states)."""

    name: Literal["counts"] = "counts"
    blocks: tuple[str, ...] = Field(
        (), description="Observation blocks that distinguish states; all by default. Fewer make more states equal."
    )
    bins: int = Field(10, ge=1, description="Bins per value. More distinguish finer differences.")
    bits: int = Field(
        16, ge=1, le=24, description="Bits of the hash, for 2^bits counters. More make fewer states collide."
    )


class ScheduledWeightSpec(StrictModel):
    """A constant or scheduled weight."""

    name: Literal["scheduled"] = "scheduled"
    value: FloatOrSchedule = Field(0.0, description="Factor on the intrinsic reward. Higher explores more.")

    @model_validator(mode="after")
    def _validate(self) -> ScheduledWeightSpec:
        if min(endpoints(self.value)) < 0:
            raise ValueError("a weight below 0 would penalize novelty; give 0 or more")
        return self


class AdaptiveWeightSpec(StrictModel):
    """A weight that is annealed while the lengths of recent episodes have low variance and a high mean."""

    name: Literal["adaptive"] = "adaptive"
    start: float = Field(1.0, ge=0, description="Initial weight. Higher explores more.")
    minimum: float = Field(0.01, ge=0, description="Lower bound of the weight. Higher keeps exploring more.")
    factor: float = Field(
        0.99, gt=0, le=1, description="Factor on the weight when it is annealed. Lower anneals faster."
    )
    episodes: int = Field(100, ge=2, description="Recent episodes considered. More react later and more reliably.")
    variance: float = Field(
        100.0, gt=0, description="Upper bound of the variance of episode lengths. Higher anneals sooner."
    )
    mean: float = Field(50.0, ge=0, description="Lower bound of the mean episode length. Higher anneals later.")
    mean_fraction: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The same bound as a fraction of max_steps; replaces `mean`. Higher anneals later.",
    )

    @model_validator(mode="after")
    def _validate(self) -> AdaptiveWeightSpec:
        if self.minimum > self.start:
            raise ValueError(f"the weight falls from `start`, so `minimum` {self.minimum} cannot be above {self.start}")
        return self


ActionSelectionSpec = Annotated[EpsilonSpec | BoltzmannSpec, Field(discriminator="name")]
BonusSpec = Annotated[RndSpec | CountsSpec, Field(discriminator="name")]
WeightSpec = Annotated[ScheduledWeightSpec | AdaptiveWeightSpec, Field(discriminator="name")]


class ExploreSpec(StrictModel):
    """Settings of exploration. Action selection and intrinsic reward are independent and can be combined freely."""

    action_selection: ActionSelectionSpec = Field(
        EpsilonSpec(), description="Action selection of value-based agents; others sample from their policy."
    )
    bonus: BonusSpec | None = Field(None, description="Intrinsic reward for novelty; null: none.")
    weight: WeightSpec = Field(
        ScheduledWeightSpec(), description="Weight of the intrinsic reward relative to the environment's reward."
    )

    @model_validator(mode="after")
    def _validate(self) -> ExploreSpec:
        zero = isinstance(self.weight, ScheduledWeightSpec) and not any(endpoints(self.weight.value))
        if self.bonus is not None and zero:
            raise ValueError(
                "a bonus without weight has no effect; add weight: {name: scheduled, value: 0.1} or {name: adaptive}"
            )
        return self
