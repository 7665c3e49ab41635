"""What agents share that learn from the last steps of all rows, in a few passes over minibatches of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Self

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.learner import Learner
from townlet.agents.settings import AgentSettings, SettingProblem
from townlet.contract.vec_env import Ended, Step, VecEnv
from townlet.memory.rollout import Rollout
from townlet.nets.optimizers import Kind

TINY: Final = 1e-8


class BatchSettings(AgentSettings):
    """How many steps an update has, and how it goes through them."""

    n_steps: int = Field(128, ge=1, description="Steps of every row between updates. Raised, rarer and steadier ones.")
    epochs: int = Field(4, ge=1, description="Passes over these steps. Raised, more is learned from each, less safely.")
    batch_size: Annotated[int, Field(ge=2)] | Annotated[float, Field(gt=0, le=1)] = Field(
        0.25,
        description="Steps in a gradient step: a whole number, or up to 1 the share of all steps (1 is all). "
        "Raised, fewer and steadier gradient steps. A recurrent policy takes whole rows, as near to it as they come.",
    )
    optimizer: Kind = Field("adam", description="How gradients become steps. sgd wants a much higher lr.")
    reward_scale: float = Field(
        1.0, gt=0, description="Factor on the reward inside the agent. Lowered, values and their gradients shrink."
    )
    bonus_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Share of steps that a bonus gets used to. Raised, novelty fades sooner at a cost.",
    )

    def batch_steps(self, steps: int) -> int:
        """The size of a minibatch where an update has so many steps.

        Rounded down; a product like .29 × 100 that falls short of a whole number only by its last bits is that one.
        """
        share = self.batch_size
        return share if isinstance(share, int) else max(1, math.floor(share * steps * (1 + TINY)))

    def resolved(self, rows: int) -> Self:
        """The same with the size of a minibatch in steps; 1 stays, as it would be read as the share of all."""
        size = self.batch_steps(rows * self.n_steps)
        return self.model_copy(update={"batch_size": size}) if size > 1 else self

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A minibatch larger than a rollout."""
        if rows is not None and self.batch_size > (most := rows * self.n_steps):
            rollout = f"a rollout has {most} steps ({rows} rows × {self.n_steps})"
            what = f"agent.batch_size is {self.batch_size} and {rollout}"
            yield SettingProblem("batch_size", what, "lower it, or write a share in (0, 1]")


class Batched(Learner):
    """Who keeps the last steps of all rows in a rollout."""

    settings: Any
    rollout: Rollout

    def _make_room(self, env: VecEnv) -> None:
        """For what is known only between two steps."""
        self.last_value, self._bootstrap = (torch.zeros(env.rows, device=env.device) for _ in range(2))
        self._reached = torch.zeros(env.rows if self.bonus else 0, env.layout.size, device=env.device)

    def _keep(self, step: Step, ended: Ended, worth: Callable[[Tensor], Tensor]) -> None:
        """Store what came of the last actions.

        Episodes that time cut short go on in the value of what they saw last: `worth` tells it of some of the ended
        rows, by their places [k] among them.
        """
        self._bootstrap.zero_()
        cut = step.truncated.index_select(0, ended.rows).nonzero().squeeze(1)
        if len(cut):
            self._bootstrap.index_copy_(0, ended.rows.index_select(0, cut), worth(cut))
        if self.bonus:
            self._see(self._reached.copy_(step.obs).index_copy_(0, ended.rows, ended.obs), step.void)
        reward = step.reward * self.settings.reward_scale
        self.rollout.observed(reward, self.intrinsic, step.terminated, step.truncated, self._bootstrap, step.void)
