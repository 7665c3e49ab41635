"""Tabular Q-learning (Watkins 1989), optionally double (van Hasselt 2010), for discrete observations."""

from __future__ import annotations

from typing import Final, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from townlet.agents.agent import AgentContext, Interrupt, no_interrupt
from townlet.agents.dqn import greedy_value
from townlet.agents.learning_agent import ValueAgent, require_discrete
from townlet.agents.registry import GAMMA_CHOICES, AgentEntry, register
from townlet.agents.settings import AgentSettings
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule, endpoints
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.spec import NetworkSpec

REPORT_EVERY: Final = 16  # vector steps between metrics; the table is updated at every step
MAX_TABLE_VALUES: Final = 1 << 27  # half a gibibyte of float32


class QLearningSettings(AgentSettings):
    """Settings of `qlearning`."""

    name: Literal["qlearning"] = "qlearning"
    lr: FloatOrSchedule = Field(0.1, description="Step size α. Higher learns faster and forgets rare outcomes sooner.")
    initial_q: float = Field(
        0.0,
        ge=-1e6,
        le=1e6,
        description="Initial Q-values. Values above any possible return make the agent try every action.",
    )
    double: bool = Field(False, description="Two tables that evaluate each other: less overestimation, but slower.")
    reward_scale: float = Field(1.0, gt=0, description="Factor that multiplies rewards before learning.")

    @model_validator(mode="after")
    def _validate(self) -> QLearningSettings:
        if not all(0 <= value <= 1 for value in endpoints(self.lr)):
            raise ValueError("`lr` is a step size; give values from 0 to 1")
        return self

    def threads(self, network: NetworkSpec) -> int | None:
        """1: an update changes only a few values."""
        return 1


class QTable(nn.Module):
    """Q-values [C, S, K] of S states in C = 1 or 2 tables. An observation is a single index (`interfaces.layout`)."""

    hidden_size = 0
    table: Tensor

    def __init__(self, layout: ObservationLayout, actions: int, initial_q: float = 0.0, double: bool = False) -> None:
        super().__init__()
        block = layout.blocks[0] if len(layout.blocks) == 1 else None
        if block is None or block.kind != "index" or block.size != 1:
            what = "qlearning needs a single discrete observation (a state index), but this one has the blocks "
            what += ", ".join(layout.names)
            raise TownletError(what, "use dqn or ppo, or an environment with discrete observations")
        self.low, states = int(block.low), int(block.high - block.low) + 1
        if states * actions * (1 + double) > MAX_TABLE_VALUES:
            what = f"Q-values of {states} states and {actions} actions exceed the limit of {MAX_TABLE_VALUES} values"
            raise TownletError(what, "use dqn")
        self.register_buffer("table", torch.full((1 + double, states, actions), initial_q))

    def initial_hidden(self, rows: int) -> Tensor:
        """An empty hidden state [rows, 0]."""
        return self.table.new_zeros(rows, 0)

    def states(self, obs: Tensor) -> Tensor:
        """State indices [B] int64, from 0, of observations [B, 1]."""
        return obs[:, 0].long() - self.low

    def values(self, states: Tensor) -> Tensor:
        """Values [B, K] of states [B]: the mean of the tables."""
        values = self.table.index_select(1, states)
        return values[0] if len(values) == 1 else values.mean(0)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """obs [B, 1], hidden [B, 0] → values [B, K], hidden."""
        return self.values(self.states(obs)), hidden


class QLearning(ValueAgent):
    """Q-learning agent: the table is updated at every step of all rows."""

    name = "qlearning"
    update_interval = REPORT_EVERY
    settings: QLearningSettings
    network: QTable

    def __init__(self, settings: QLearningSettings, context: AgentContext) -> None:
        env = context.env
        require_discrete(self.name, env)
        table = QTable(env.layout, env.actions.n, settings.initial_q, settings.double).to(env.device)
        super().__init__(settings, table, context)
        self.generator = context.streams.torch("tables", env.device)
        self._mask = torch.ones(env.rows, env.actions.n, dtype=torch.bool, device=env.device)
        self._state, self._actions = (torch.zeros(env.rows, dtype=torch.int64, device=env.device) for _ in range(2))
        self._sums = torch.zeros(3, dtype=torch.float64, device=env.device)  # |δ|, Q, number of transitions

    @torch.inference_mode()
    def act(self, inputs: MaskedObs) -> Tensor:
        self._state = self.network.states(inputs.obs)
        self._mask.copy_(inputs.mask)
        self.action_outputs = self.network.values(self._state)
        self._actions = self.selector.select(self.action_outputs, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: FinalObs) -> None:
        """Update the table. Where an episode ended, its final observation is in `ended.obs`, not in `step.obs`."""
        next_obs = step.obs.index_copy(0, ended.rows, ended.obs)
        next_mask = step.mask.index_copy(0, ended.rows, ended.mask)
        if self.bonus:
            self._compute_intrinsic(next_obs, step)
        reward = step.reward * self.settings.reward_scale + self.intrinsic_weight.value * self.intrinsic
        transitions = self._state, self._actions, reward, self.network.states(next_obs), next_mask, step.terminated
        if step.autoreset_step is not None:
            real = step.autoreset_step.logical_not().nonzero().squeeze(1)
            transitions = tuple(part.index_select(0, real) for part in transitions)  # type: ignore[assignment]
        if len(transitions[0]):
            self._update(*transitions)

    def _update(
        self, state: Tensor, actions: Tensor, reward: Tensor, next_state: Tensor, next_mask: Tensor, terminated: Tensor
    ) -> None:
        """Q(s, a) ← Q(s, a) + α (y − Q(s, a)),  y = r + γ max Q(s′, ·), or r where the episode terminated.

        With `double`, a random table is updated; it selects the action in s′, and the other table evaluates it.
        Applied to B transitions at once: the value of a pair (s, a) that occurs c times moves by a fraction
        1 − (1 − α)ᶜ toward its mean target, as far as c single updates toward that target would move it.
        """
        table = self.network.table
        which = torch.zeros_like(state)  # the table that each transition updates
        if self.settings.double:
            which = torch.randint(2, state.shape, generator=self.generator, device=state.device)
        selection = table[which, next_state]
        values = table[1 - which, next_state] if self.settings.double else selection
        next_value = greedy_value(selection, values, next_mask).masked_fill_(terminated, 0.0)
        target = reward + self.settings.gamma * next_value
        index = (which * table.shape[1] + state) * table.shape[2] + actions
        pairs, pair_index, counts = torch.unique(index, return_inverse=True, return_counts=True)
        mean = torch.zeros(len(pairs), device=table.device).index_add_(0, pair_index, target).div_(counts)
        flat = table.view(-1)
        value = flat.take(pairs)
        error = target - flat.take(index)
        self._sums += torch.stack((error.abs().sum(), (value * counts).sum(), counts.sum()))
        flat.index_copy_(0, pairs, value + (1 - (1 - self._lr) ** counts) * (mean - value))
        self.counters.updates += 1

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Metrics of the updates since the last call; None if there were none."""
        error, value, count = self._sums.tolist()
        if not count:
            return None
        self._sums.zero_()
        return {"td_error": error / count, "mean_q": value / count} | self.metrics()

    def parameters(self) -> dict[str, Tensor]:
        return {"table": self.network.table}

    def _tensors(self) -> State:
        return {"sums": self._sums}


register(
    AgentEntry(
        settings=QLearningSettings,
        agent=QLearning,
        network=lambda settings, spec, layout, actions: QTable(layout, actions.n, double=settings.double),
        kind="value",
        on_policy=False,
        uses_network=False,
        observations="index",
        bonuses=("counts",),  # rnd relies on similarity of observations, and state indices have none
        rows=16,
        sweep={"lr": SearchRange(low=0.005, high=1.0), "gamma": GAMMA_CHOICES},
        export_metadata=("double",),
    )
)
