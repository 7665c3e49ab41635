"""Parallelized Q-network (PQN, Gallici et al. 2024): Q-learning over many rows without replay or target network.

λ-returns (Peng & Williams 1996) and layer normalization (`network.layer_norm`) replace them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.dqn import STEP_VALUES, LossName, greedy_value, q_loss, td_metrics
from townlet.agents.learning_agent import DEAD_UNIT_SAMPLE, ValueAgent, microbatch_size, require_discrete
from townlet.agents.networks import QNetwork, make_q_network
from townlet.agents.on_policy import OnPolicySettings
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate, MaxGradNorm
from townlet.agents.update_stats import UpdateStats
from townlet.buffers.rollout import RolloutBuffer
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule, validate_non_negative
from townlet.errors import TownletError
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.spec import NetworkSpec

INHERITED: Final = OnPolicySettings.model_fields


class PqnSettings(OnPolicySettings):
    """Settings of `pqn`."""

    name: Literal["pqn"] = "pqn"
    lr: FloatOrSchedule = Field(5e-4, description="Learning rate. Higher learns faster until values diverge.")
    q_lambda: float = Field(
        0.65, ge=0, le=1, description="λ of the λ-return. Higher means less bias and more variance."
    )
    n_steps: int = Field(32, ge=1, description=INHERITED["n_steps"].description)
    epochs: int = Field(2, ge=1, description=INHERITED["epochs"].description)
    dueling: bool = Field(False, description="Separate streams for state value and advantages (dueling architecture).")
    loss: LossName = Field("huber", description="huber limits the gradient of each error to 1, mse does not.")
    max_grad_norm: MaxGradNorm = 10.0

    _non_negative = field_validator("lr")(validate_non_negative)

    def hints(self, network: NetworkSpec) -> Iterator[str]:
        """Yield a note if layer normalization is off: it replaces the target network (Gallici et al. 2024, §3)."""
        if not network.layer_norm:
            yield "pqn relies on layer normalization for stability, but network.layer_norm is false."

    def displayed_advantage(self) -> AdvantageEstimate:
        return self._estimate(self.q_lambda, f"λ-return (λ = {self.q_lambda:g}) minus the value.")


class Pqn(ValueAgent):
    """PQN agent: `act` and `observe` fill a rollout, `learn` regresses Q(s, a) on its λ-returns."""

    name = "pqn"
    interruptible = True
    settings: PqnSettings
    network: QNetwork
    generator: torch.Generator

    def __init__(self, settings: PqnSettings, context: AgentContext) -> None:
        env = context.env
        require_discrete(self.name, env)
        network = context.initialized(make_q_network(settings, context.network, env.layout, env.actions))
        if network.hidden_size:
            fix = "use drqn, or leave `recurrent` out of the network"
            raise TownletError("pqn cannot train a recurrent network", fix)
        super().__init__(settings, network, context)
        self.optimizer = self._make_optimizer()
        self.update_interval = settings.n_steps
        self.rollout = RolloutBuffer(
            settings.n_steps, env.rows, env.layout, env.actions.n, autoreset_steps=env.autoreset_steps,
            device=env.device, group=context.group,
        )  # fmt: skip
        self.last_value = torch.zeros(env.rows, device=env.device)  # max Q of the observations after the rollout
        self.generator = context.streams.torch("minibatches", env.device)
        self._no_hidden = network.initial_hidden(0)  # a feed-forward network has no hidden state
        # Values of the rollout's columns that PQN does not use.
        self._no_log_prob = torch.zeros(env.rows, device=env.device)
        self._no_episode_start = torch.zeros(env.rows, dtype=torch.bool, device=env.device)

    def _q(self, obs: Tensor) -> Tensor:
        """Q(s, ·) [B, K]."""
        values: Tensor = self.network(obs, self._no_hidden)[0]
        return values

    def _max_q(self, obs: Tensor, mask: Tensor) -> Tensor:
        """max Q(s, a) over valid actions [B]."""
        values = self._q(obs)
        return greedy_value(values, values, mask)

    @torch.inference_mode()
    def act(self, inputs: MaskedObs) -> Tensor:
        values = self.action_outputs = self._q(inputs.obs)
        actions = self.selector.select(values, inputs.mask)
        self._mask = self.rollout.mask[self.rollout.steps]  # a view of what `add_action` stores, for `entropy`
        max_q = greedy_value(values, values, inputs.mask)
        self.rollout.add_action(inputs.obs, inputs.mask, actions, self._no_log_prob, max_q, self._no_episode_start)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store rewards and ends of episodes. Truncated episodes bootstrap from max Q of their final observation."""

        def final_value(index: Tensor) -> Tensor:
            return self._max_q(ended.obs.index_select(0, index), ended.mask.index_select(0, index))

        if self.bonus:
            self._compute_intrinsic(step.obs.index_copy(0, ended.rows, ended.obs), step)
        scale = self.settings.reward_scale
        self.rollout.add_outcome(step, ended, final_value, intrinsic=self.intrinsic, reward_scale=scale)
        if self.rollout.full:
            self.last_value.copy_(self._max_q(step.obs, step.mask))

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Make `epochs` passes over a full rollout, and return the means of the metrics over all gradient steps."""
        s, rollout = self.settings, self.rollout
        if not rollout.full:
            return None
        if not len(rollout.without_autoreset_steps(rollout.reward)):  # a short rollout may have only autoreset steps
            rollout.clear()
            return None
        self.optimizer.lr = self._lr
        # Peng's Q(λ): R_t = r_t + γ [λ R_{t+1} + (1 − λ) max Q(s_{t+1}, ·)], which is GAE with V = max Q, plus V.
        rollout.advantages(self.last_value, s.gamma, s.q_lambda, self.intrinsic_weight.value)
        stats = UpdateStats(STEP_VALUES, self.group, self.intrinsic.device, td_metrics)
        size = s.batch_steps(len(rollout) * self.group.size)
        max_microbatch = microbatch_size(str(self.intrinsic.device))
        for _ in range(s.epochs):
            for minibatch in rollout.minibatches(size, self.generator, microbatch_size=max_microbatch):
                self.optimizer.zero_grad()
                for batch, fraction in minibatch:
                    check_interrupt()
                    loss, step_values = q_loss(self._q(batch.obs), batch.actions, batch.returns, s.loss)
                    (fraction * loss).backward()
                    stats.add(step_values)
                stats.add_grad_norm(self.optimizer.step(s.max_grad_norm))
                self.counters.updates += 1  # gradient steps so far
        metrics = stats.means() | self._part_grad_norms(self.optimizer)
        if self.bonus:
            metrics |= self.bonus.learn(rollout.sample_obs(s.bonus_fraction, self.generator))
        metrics |= self._dead_units(rollout.evenly_spaced_obs(DEAD_UNIT_SAMPLE))
        rollout.clear()
        return metrics | self.metrics()

    def _parts(self) -> dict[str, Stateful]:
        return {"rollout": self.rollout, "optimizer": self.optimizer, **super()._parts()}

    def _tensors(self) -> State:
        return {"rows": {"last_value": self.last_value}}


register(
    AgentEntry(
        settings=PqnSettings,
        agent=Pqn,
        network=make_q_network,
        kind="value",
        on_policy=True,
        rows=128,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "q_lambda": SearchRange(choices=(0.3, 0.65, 0.9, 0.95)),
            "epochs": SearchRange(choices=(1, 2, 4)),
        },
        smoke={"n_steps": 32, "batch_size": 32, "epochs": 1},
        changeable=("lr", "epochs"),
        shard_axes={"rows": 0, "action_selection/epsilon": 0, "rollout/hidden": 0, "rollout/storage/columns": 1},
        export_metadata=("dueling",),
    )
)
