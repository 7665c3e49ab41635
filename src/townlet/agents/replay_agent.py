"""`ReplayAgent`: off-policy value learning from a replay buffer with a target network; what dqn and drqn share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, Protocol

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.q_network import QNetwork, value_network
from townlet.agents.settings import AgentSettings, SettingProblem
from townlet.agents.update_stats import UpdateStats
from townlet.agents.value_agent import TD_TERMS, LossName, ValueAgent, require_discrete
from townlet.config.schedule import Scheduled
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step
from townlet.explore.spec import not_negative
from townlet.memory.storage import Transition
from townlet.nets.optimizers import OptimizerName, flatten_parameters, restore_weights, weights

DEAD_UNITS_EVERY: Final = 100  # updates between two searches for dead units, each of which costs part of an update


class ReplaySettings(AgentSettings):
    """Settings of algorithms that learn action values from replay."""

    lr: Scheduled = Field(description="Learning rate. Higher learns faster until values diverge.")
    replay: int = Field(10_000, ge=1, description="Capacity of the replay buffer. Higher reuses older experience.")
    update_every: int = Field(
        4, ge=1, description="Vector steps between updates. Higher trains faster but learns less from each step."
    )
    updates: int = Field(
        1, ge=1, description="Gradient steps per update. Higher learns more from each step but trains more slowly."
    )
    warmup: int = Field(
        1000, ge=1, description="Transitions before the first update. Higher makes the first minibatches more varied."
    )
    target_every: int = Field(
        100, ge=1, description="Gradient steps between copies to the target network. Higher is steadier and slower."
    )
    polyak: float | None = Field(
        None, gt=0, le=1, description="Soft update of the target network instead of copies. Higher is less steady."
    )
    double: bool = Field(True, description="Double Q-learning. Off, values are overestimated.")
    dueling: bool = Field(True, description="Separate streams for state value and advantages (dueling architecture).")
    loss: LossName = Field("mse", description="huber limits the gradient of each error to 1, mse does not.")
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Maximum gradient norm. Lower is more stable but slower; null disables clipping."
    )
    optimizer: OptimizerName = Field("adam", description="Optimizer. sgd needs a much higher lr.")
    reward_scale: float = Field(
        1.0, gt=0, description="Factor on rewards inside the agent. Lower shrinks values and their gradients."
    )

    _from_0_on = field_validator("lr")(not_negative)

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A warm-up longer than the replay buffer."""
        if self.warmup > self.replay:
            what = f"agent.warmup waits for {self.warmup} steps and agent.replay keeps only {self.replay}"
            fix = f"learning would never begin: lower agent.warmup to {self.replay} or less, or raise agent.replay"
            yield SettingProblem("warmup", what, fix)


class ReplayBuffer(Stateful, Protocol):
    """A buffer of vector steps."""

    def add(self, step: Transition) -> None:
        """Store one step of all rows."""

    def cut(self) -> None:
        """End unfinished episodes: the next step does not follow from the last."""


class ReplayAgent(ValueAgent, ABC):
    """Acts by Q(s, ·) and stores transitions; `learn` makes `updates` gradient steps, which subclasses define."""

    network: QNetwork
    memory: ReplayBuffer
    settings: Any

    def __init__(self, settings: ReplaySettings, context: AgentContext) -> None:
        env = context.env
        require_discrete(self.name, env)
        rows, device, actions = env.rows, env.device, env.actions.n
        network = context.initialised(value_network(settings, context.network, env.layout, env.actions))
        super().__init__(settings, network, context)
        self.optimizer = self._make_optimizer()
        self.update_interval = settings.update_every
        self.target = deepcopy(self.network).requires_grad_(False)
        self._target_vector = flatten_parameters(self.target)
        self._obs, self._next_obs = (torch.zeros(rows, env.layout.size, device=device) for _ in range(2))
        self._mask, self._next_mask = (torch.ones(rows, actions, dtype=torch.bool, device=device) for _ in range(2))
        self._reward = torch.zeros(rows, device=device)
        self._actions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._stored_hidden = torch.zeros(rows, 0, device=device)  # recurrent state before the last step, if stored
        self._observed = 0

    @abstractmethod
    def _q(self, obs: Tensor) -> Tensor:
        """Q(s, ·) [N, K] of the live rows at obs [N, D]."""

    @abstractmethod
    def _gradient_steps(self, weight: float) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
        """Make `updates` gradient steps with this weight of the intrinsic reward.

        Yields for each its terms (TD_TERMS), the gradient norm [], and the observations reached [B, D].
        """

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Sample exploring actions [N] int64."""
        self._obs.copy_(seen.obs)
        self._mask.copy_(seen.mask)
        self.action_outputs = self._q(self._obs)
        self._actions = self.chooser.choose(self.action_outputs, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store the transition; rows that ended already show their next episode, so their final observation is used."""
        next_obs, next_mask = step.obs, step.mask
        if ended.rows.shape[0]:
            next_obs = self._next_obs.copy_(step.obs).index_copy_(0, ended.rows, ended.obs)
            next_mask = self._next_mask.copy_(step.mask).index_copy_(0, ended.rows, ended.mask)
        if self.bonus:
            self._add_bonus(next_obs, step)
        torch.mul(step.reward, self.settings.reward_scale, out=self._reward)
        before = self._obs, self._mask, self._actions, self._reward, self.intrinsic
        after = next_obs, next_mask, step.terminated, step.truncated, self._stored_hidden
        self.memory.add(Transition(*before, *after, void=step.void))
        real = self._obs.shape[0] - (0 if step.void is None else int(step.void.sum()))
        self._observed += real * self.crew.size

    def on_env_reset(self) -> None:
        """End unfinished episodes; their last steps bootstrap from their final observations."""
        self.memory.cut()

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Make `updates` gradient steps; metrics are their means. None during warm-up."""
        if self._observed < self.settings.warmup:
            return None
        self.optimizer.lr = self._lr
        stats = UpdateStats(TD_TERMS, self.crew, self.intrinsic.device)
        novelty, before = {}, self.counters.updates
        for terms, grad_norm, reached in self._gradient_steps(self.weight.value):
            stats.add(terms)
            stats.add_grad_norm(grad_norm)
            if self.bonus:
                novelty = self.bonus.learn(reached)
        metrics = stats.means() | novelty
        if len(reached) and self.counters.updates // DEAD_UNITS_EVERY > before // DEAD_UNITS_EVERY:
            metrics |= self._dead_units(reached)
        return metrics | self.metrics()

    def _step(self) -> Tensor:
        """Step the optimizer, then update the target network. The norm of the gradient []."""
        norm = self.optimizer.step(self.settings.max_grad_norm)
        self.counters.updates += 1
        if self.settings.polyak is not None:
            self._target_vector.lerp_(self.optimizer.vector, self.settings.polyak)
        elif self.counters.updates % self.settings.target_every == 0:
            self._target_vector.copy_(self.optimizer.vector)
        return norm

    def _parts(self) -> dict[str, Stateful]:
        return {"memory": self.memory, "optimizer": self.optimizer, **super()._parts()}

    def state(self) -> State:
        """Networks, optimizer, replay buffer, exploration and counts."""
        return super().state() | {"target": weights(self.target), "counts": {"observed": self._observed}}

    def restore(self, state: State) -> None:
        """Resume exactly from a state."""
        super().restore(state)
        restore_weights(self.target, state["target"], "target network")
        self._observed = int(state["counts"]["observed"])
