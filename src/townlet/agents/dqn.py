"""Deep Q-network (DQN, Mnih et al. 2015) with its common extensions, each enabled by its own setting.

Double Q-learning (van Hasselt et al. 2016), dueling architecture (Wang et al. 2016: Q = V + A − mean A), prioritized
replay (Schaul et al. 2016) and n-step returns (Sutton & Barto 2018, ch. 7). Invalid actions are masked when acting and
in the maximum of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.learning_agent import ValueAgent, require_discrete
from townlet.agents.networks import QNetwork, make_q_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import AgentSettings, MaxGradNorm, RewardScale, SettingProblem
from townlet.agents.update_stats import UpdateStats
from townlet.buffers.prioritized import PrioritySpec
from townlet.buffers.replay import ReplayBuffer, TransitionBatch
from townlet.buffers.storage import VectorTransition
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule, validate_non_negative, value_at
from townlet.errors import TownletError
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.optimizers import OptimizerName, flatten_parameters, restore_weights, weights

STEP_VALUES: Final = ("loss", "value", "target")  # collected for every transition, see `q_loss`
DETAILS_EVERY: Final = 100  # gradient steps between two measurements of dead units and of gradient norms by part

LossName = Literal["mse", "huber"]


class ReplaySettings(AgentSettings):
    """Settings of agents that learn action values from a replay buffer."""

    lr: FloatOrSchedule = Field(description="Learning rate. Higher learns faster until values diverge.")
    replay: int = Field(10_000, ge=1, description="Transitions in the replay buffer. Higher reuses older experience.")
    update_every: int = Field(
        4, ge=1, description="Vector steps between updates. Higher trains faster but learns less from each step."
    )
    gradient_steps: int = Field(
        1, ge=1, description="Gradient steps per update. Higher learns more from each step but trains more slowly."
    )
    warmup: int = Field(
        1000, ge=1, description="Transitions before the first update. Higher makes the first minibatches more varied."
    )
    target_every: int = Field(
        100, ge=1, description="Gradient steps between copies to the target network. Higher is more stable but slower."
    )
    polyak: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Fraction τ for soft updates of the target network; replaces copies. Higher is faster but less "
        "stable.",
    )
    double: bool = Field(True, description="Double Q-learning. If off, values are overestimated.")
    dueling: bool = Field(True, description="Separate streams for state value and advantages (dueling architecture).")
    loss: LossName = Field("mse", description="huber limits the gradient of each error to 1, mse does not.")
    max_grad_norm: MaxGradNorm = 10.0
    optimizer: OptimizerName = Field("adam", description="Optimizer. sgd needs a much higher lr.")
    reward_scale: RewardScale = 1.0

    _non_negative = field_validator("lr")(validate_non_negative)

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        if self.warmup > self.replay:
            what = f"agent.warmup waits for {self.warmup} transitions, but agent.replay keeps only {self.replay}"
            fix = f"lower agent.warmup to {self.replay} or less, or raise agent.replay"
            yield SettingProblem("warmup", what, fix)


class DqnSettings(ReplaySettings):
    """Settings of `dqn`."""

    name: Literal["dqn"] = "dqn"
    lr: FloatOrSchedule = Field(2.5e-4, description=ReplaySettings.model_fields["lr"].description)
    batch_size: int = Field(64, ge=1, description="Transitions per minibatch. Higher: less noise, higher cost.")
    n_step: int = Field(
        1, ge=1, description="Rewards summed before bootstrapping. Higher propagates rewards faster, with more noise."
    )
    prioritized: PrioritySpec | None = Field(
        None,
        description="Sample transitions with probability ∝ (|TD error| + ε)^α, new ones with the highest priority "
        "so far (Schaul et al. 2016); null: uniformly.",
    )
    accelerate: bool = Field(
        True, description="Use faster implementations where available. Results agree within rounding."
    )

    @property
    def minibatch_steps(self) -> int | None:
        return self.batch_size

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        yield from super().problems(rows)
        if self.batch_size > self.replay:
            what = f"agent.batch_size is {self.batch_size}, but agent.replay holds only {self.replay}"
            yield SettingProblem("replay", what, "raise agent.replay")


def greedy_value(selection: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Values [...]: those of `values` [..., K] at the argmax of `selection` [..., K] over the valid actions."""
    best = selection.where(mask, -torch.inf).argmax(-1, keepdim=True)
    return values.gather(-1, best).squeeze(-1)


def dqn_target(batch: TransitionBatch, next_values: Tensor, selection: Tensor) -> Tensor:
    """The target y [B] of Q(s, a) (Mnih et al. 2015, algorithm 1; van Hasselt et al. 2016, eq. 4).

    y = R + γᵐ Q⁻(s′, argmax_a′ Q(s′, a′)),  or without double Q-learning  y = R + γᵐ max_a′ Q⁻(s′, a′)

    R = Σ_{k<m} γᵏ r_k sums m ≤ n rewards, up to the end of the episode, and s′ is the observation after them. After
    termination y = R; a truncated episode bootstraps from its final observation. There is no off-policy correction. The
    rewards are scaled by `reward_scale`, and contain the weighted intrinsic reward. `next_values` [B, K] are those of
    the target network Q⁻. The action a′ is the argmax over valid actions of `selection` [B, K]: values of the online
    network Q in double Q-learning, else of Q⁻. `batch.discount` is γᵐ, or 0 after termination.
    """
    return batch.reward + batch.discount * greedy_value(selection, next_values, batch.next_mask)


def td_loss(values: Tensor, target: Tensor, kind: LossName) -> Tensor:
    """Loss of each TD error δ = Q − y, same shape: δ² (mse), or δ²/2 within ±1 and |δ| − 1/2 beyond (huber)."""
    return (mse_loss if kind == "mse" else huber_loss)(values, target, reduction="none")


def q_loss(
    values: Tensor, actions: Tensor, target: Tensor, kind: LossName, importance: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss L = 1/B Σ_i w_i · loss(Q(s_i, a_i) − y_i), and `STEP_VALUES` [B] for metrics.

    values [B, K]; actions, targets y and importance weights w [B] (Schaul et al. 2016, §3.4; None: all 1).
    """
    chosen = values.gather(1, actions.unsqueeze(1)).squeeze(1)
    losses = td_loss(chosen, target, kind)
    if importance is not None:
        losses = importance * losses
    return losses.mean(), {"loss": losses, "value": chosen, "target": target}


def td_metrics(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Metrics of every transition from its `STEP_VALUES`."""
    error = (values["value"] - values["target"]).abs()
    return {"loss": values["loss"], "td_error": error, "mean_q": values["value"]}


class Dqn(ValueAgent):
    """DQN agent: explores, stores transitions in a replay buffer, and makes gradient steps on bootstrapped targets.

    A subclass whose settings lack fields of `DqnSettings` overrides `_make_replay`, `minibatches` and `_backward`.
    """

    name = "dqn"
    network: QNetwork
    buffer: Any  # ReplayBuffer; a subclass may have another buffer
    settings: Any  # DqnSettings, or those of a subclass
    accelerated: Callable[[], Iterator[tuple[TransitionBatch, Tensor]]] | None = None  # faster form of `minibatches`

    def __init__(self, settings: Any, context: AgentContext) -> None:
        env = context.env
        require_discrete(self.name, env)
        rows, device, actions = env.rows, env.device, env.actions.n
        network = context.initialized(make_q_network(settings, context.network, env.layout, env.actions))
        super().__init__(settings, network, context)  # also makes the action selector: ε-greedy (default) or Boltzmann
        self.optimizer = self._make_optimizer()
        self.update_interval = settings.update_every
        self.target_network = deepcopy(self.network).requires_grad_(False)
        self._target_vector = flatten_parameters(self.target_network)  # its parameters are views of this vector
        self._no_hidden = self.network.initial_hidden(0)  # a feed-forward network has no hidden state
        self.buffer = self._make_replay(context)
        self.obs_size = env.layout.size
        self._obs, self._next_obs = (torch.zeros(rows, env.layout.size, device=device) for _ in range(2))
        self._mask, self._next_mask = (torch.ones(rows, actions, dtype=torch.bool, device=device) for _ in range(2))
        self._reward = torch.zeros(rows, device=device)
        self._actions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._stored_hidden = torch.zeros(rows, 0, device=device)  # hidden state before the last step, if stored
        self._observed = 0  # transitions so far

    def _make_replay(self, context: AgentContext) -> Any:
        """An empty replay buffer. It stores single transitions, so the network cannot be recurrent."""
        s, env = self.settings, context.env
        if self.network.hidden_size:
            fix = "use drqn, or leave `recurrent` out of the network"
            raise TownletError("dqn cannot train a recurrent network", fix)
        return ReplayBuffer(
            s.replay, env.rows, env.layout, env.actions.n, n_step=s.n_step, gamma=s.gamma,
            generator=context.streams.torch("memory", env.device), priority=s.prioritized,
            autoreset_steps=env.autoreset_steps, device=env.device, group=context.group,
        )  # fmt: skip

    def _q(self, obs: Tensor) -> Tensor:
        """Q(s, ·) [B, K] of the online network."""
        values: Tensor = self.network(obs, self._no_hidden)[0]
        return values

    @torch.no_grad()
    def target_q(self, obs: Tensor) -> Tensor:
        """Q⁻(s, ·) [B, K] of the target network."""
        values: Tensor = self.target_network(obs, self._no_hidden)[0]
        return values

    @torch.inference_mode()
    def act(self, inputs: MaskedObs) -> Tensor:
        self._obs.copy_(inputs.obs)
        self._mask.copy_(inputs.mask)
        self.action_outputs = self._q(self._obs)
        self._actions = self.selector.select(self.action_outputs, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store the transition.

        For rows that ended, `step.obs` is the first observation of the next episode and `ended.obs` the final one.
        """
        next_obs, next_mask = step.obs, step.mask
        if ended.rows.shape[0]:
            next_obs = self._next_obs.copy_(step.obs).index_copy_(0, ended.rows, ended.obs)
            next_mask = self._next_mask.copy_(step.mask).index_copy_(0, ended.rows, ended.mask)
        if self.bonus:
            self._compute_intrinsic(next_obs, step)  # stored separately from the reward
        torch.mul(step.reward, self.settings.reward_scale, out=self._reward)
        before = self._obs, self._mask, self._actions, self._reward, self.intrinsic
        after = next_obs, next_mask, step.terminated, step.truncated, self._stored_hidden
        self.buffer.add(VectorTransition(*before, *after, autoreset=step.autoreset_step))
        # Autoreset steps are not transitions. With several processes there are none (see `ReplayBuffer`).
        real = self._obs.shape[0] - (0 if step.autoreset_step is None else int(step.autoreset_step.sum()))
        self._observed += real * self.group.size

    def on_env_reset(self) -> None:
        """Mark unfinished episodes as truncated: their last steps bootstrap from the last observations."""
        self.buffer.truncate_unfinished_episodes()

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Make `gradient_steps` gradient steps and return their mean metrics; None during warm-up."""
        s = self.settings
        if self._observed < s.warmup:
            return None
        self.optimizer.lr = self._lr
        stats = UpdateStats(STEP_VALUES, self.group, self.intrinsic.device, td_metrics)
        bonus_metrics, updates_before = {}, self.counters.updates
        for minibatch in self.minibatches():
            self.optimizer.zero_grad()
            step_values, next_obs = self._backward(minibatch)
            stats.add(step_values)
            stats.add_grad_norm(self.optimizer.step(s.max_grad_norm))  # clips the global norm first
            self.counters.updates += 1  # gradient steps so far
            self._update_target()
            if self.bonus:
                bonus_metrics = self.bonus.learn(next_obs)
        metrics = stats.means() | bonus_metrics
        if self.counters.updates // DETAILS_EVERY > updates_before // DETAILS_EVERY:
            metrics |= self._part_grad_norms(self.optimizer)
            if len(next_obs):
                metrics |= self._dead_units(next_obs)
        return metrics | self.metrics()

    def minibatches(self) -> Iterator[Any]:
        """Yield the minibatches of an update, each with its targets [B] by the current networks."""
        s = self.settings
        if self.accelerated:
            yield from self.accelerated()
            return
        for _ in range(s.gradient_steps):
            batch = self.buffer.sample(s.batch_size, self.intrinsic_weight.value, self._beta)
            yield batch, self.targets(batch, self.target_q(batch.next_obs))

    def _backward(self, minibatch: Any) -> tuple[dict[str, Tensor], Tensor]:
        """Backpropagate the loss of a minibatch and update its priorities.

        Returns `STEP_VALUES` [B], and observations [B, D] to train the bonus and to count dead units.
        """
        batch, target = minibatch
        s = self.settings
        values = self._q(batch.obs)
        loss, step_values = q_loss(values, batch.actions, target, s.loss, batch.importance)
        if self.group.size > 1:  # gradients are summed over all processes; this one has a part of the minibatch
            loss = loss * (len(batch.obs) / s.batch_size) if len(batch.obs) else values.sum()  # 0 for an empty part
        loss.backward()
        if s.prioritized is not None:
            self.buffer.update_priorities(batch.index, td_metrics(step_values)["td_error"])
        return step_values, batch.next_obs

    @torch.no_grad()
    def targets(self, batch: TransitionBatch, next_values: Tensor) -> Tensor:
        """Targets [B] of a minibatch, given Q⁻(s′, ·) [B, K] of its next observations."""
        return dqn_target(batch, next_values, self._q(batch.next_obs) if self.settings.double else next_values)

    def _update_target(self) -> None:
        """Copy θ to θ⁻ every `target_every` gradient steps; with `polyak` τ, θ⁻ ← (1 − τ) θ⁻ + τ θ after each."""
        if self.settings.polyak is not None:
            self._target_vector.lerp_(self.optimizer.vector, self.settings.polyak)
        elif self.counters.updates % self.settings.target_every == 0:
            self._target_vector.copy_(self.optimizer.vector)

    @property
    def _beta(self) -> float:
        """Current β of the importance weights w_i = (N P(i))^−β / max_j (N P(j))^−β, j in the minibatch."""
        spec = self.settings.prioritized
        return 0.0 if spec is None else value_at(spec.beta, self.counters)

    def metrics(self) -> dict[str, float]:
        prioritized = isinstance(self.settings, DqnSettings) and self.settings.prioritized
        return super().metrics() | ({"beta": self._beta} if prioritized else {})

    def load_weights(self, weights: State) -> None:
        """Start from the network weights of another run, also in the target network."""
        super().load_weights(weights)
        restore_weights(self.target_network, weights, "target network")

    def _parts(self) -> dict[str, Stateful]:
        return {"replay": self.buffer, "optimizer": self.optimizer, **super()._parts()}

    def state(self) -> State:
        return super().state() | {"target": weights(self.target_network), "counts": {"observed": self._observed}}

    def restore(self, state: State) -> None:
        super().restore(state)
        restore_weights(self.target_network, state["target"], "target network")
        self._observed = int(state["counts"]["observed"])


register(
    AgentEntry(
        settings=DqnSettings,
        agent=Dqn,
        network=make_q_network,
        kind="value",
        on_policy=False,
        rows=64,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "n_step": SearchRange(choices=(1, 3, 5, 8)),
            "batch_size": SearchRange(choices=(32, 64, 128, 256)),
        },
        smoke={"warmup": 64, "batch_size": 8, "replay": 1000, "update_every": 32},
        shard_axes={"action_selection/epsilon": 0, "replay/storage/columns": 1},
        unshardable=("prioritized",),
        export_metadata=("dueling", "double"),
    )
)
