"""Settings and metrics of algorithms that learn from rollouts in a few epochs of minibatches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Final, Self

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.settings import AgentSettings, RewardScale, SettingProblem
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.nets.optimizers import OptimizerName

ROUNDING: Final = 1e-8  # relative rounding error of a fraction of the rollout


class OnPolicySettings(AgentSettings):
    """Settings of rollouts and of the minibatches that an update draws from them."""

    n_steps: int = Field(128, ge=1, description="Steps of each row in a rollout. Higher: fewer, more stable updates.")
    epochs: int = Field(
        4, ge=1, description="Passes over a rollout. Higher learns more from each step but risks collapse."
    )
    batch_size: Annotated[int, Field(ge=2)] | Annotated[float, Field(gt=0, le=1)] = Field(
        0.25,
        description="Steps in a minibatch: an integer, or a fraction of the rollout up to 1. Higher: fewer, less noisy "
        "gradient steps.",
    )
    optimizer: OptimizerName = Field("adam", description="Optimizer. sgd needs a much higher lr.")
    reward_scale: RewardScale = 1.0
    bonus_fraction: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Fraction of the rollout that trains the RND predictor. Higher: novelty fades sooner, "
        "but updates take longer.",
    )

    def batch_steps(self, steps: int) -> int:
        """The size of a minibatch in a rollout of `steps` steps.

        A fraction of the rollout is rounded down, without floating-point errors: 0.29 × 100 gives 29, not 28.
        """
        size = self.batch_size
        return size if isinstance(size, int) else max(1, math.floor(size * steps * (1 + ROUNDING)))

    @property
    def minibatch_steps(self) -> int | None:
        return self.batch_size if isinstance(self.batch_size, int) else None

    def resolved(self, rows: int) -> Self:
        """A copy with `batch_size` in steps.

        A size of one step is left as a fraction, because 1 would mean the whole rollout.
        """
        size = self.batch_steps(rows * self.n_steps)
        return self.model_copy(update={"batch_size": size}) if size > 1 else self

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        if rows is not None and self.batch_size > (steps := rows * self.n_steps):
            rollout = f"a rollout has {steps} steps ({rows} rows × {self.n_steps})"
            what = f"agent.batch_size is {self.batch_size}, but {rollout}"
            yield SettingProblem("batch_size", what, "lower it, or give a fraction in (0, 1]")


def explained_variance(error: Tensor, returns: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
    """1 − Var(R − V) / Var(R), a scalar, from the `error` R − V: 1 for perfect values, 0 for constant V or R."""
    variance = group.var(returns)
    return torch.where(variance > 0, 1 - group.var(error) / variance, 0.0)
