"""Q-learning (Watkins 1989) with a table: one number for each state and action, for states that have a number.

Double Q-learning (van Hasselt 2010) keeps two tables, each of which asks the other what its best action is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from townlet.agents.agent import Materials, unasked
from townlet.agents.choosing import Choosing
from townlet.agents.policy import Policy
from townlet.agents.registry import GAMMA_CHOICES, AgentEntry, register
from townlet.agents.settings import AgentSettings
from townlet.agents.values import best_valid, require_discrete
from townlet.config.schedule import Scheduled, value_at
from townlet.config.search import Searched
from townlet.contract.layout import Layout
from townlet.contract.restore import copy_tensor, restore_generator
from townlet.contract.state import State
from townlet.contract.vec_env import Actions, Ended, Seen, Step
from townlet.errors import TownletError
from townlet.explore.make import make_chooser
from townlet.explore.spec import ends
from townlet.nets.optimizers import restore_weights, weights
from townlet.nets.spec import NetworkSpec

ROUND: Final = 16  # vector steps that figures are told of: values are learned at every one
LARGEST: Final = 1 << 27  # numbers in a table, half a gibibyte


class QLearningSettings(AgentSettings):
    """Settings of `qlearning`."""

    name: Literal["qlearning"] = "qlearning"
    lr: Scheduled = Field(
        0.1, description="Share of the way to what was just seen. Raised, it learns faster and forgets what is rare."
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount. Raised, it looks further ahead and learns slower.")
    start: float = Field(
        0.0,
        ge=-1e6,
        le=1e6,
        description="Value of all that was never tried. Raised above what can be earned, everything is tried.",
    )
    double: bool = Field(
        False, description="Two tables that judge each other: values are not overestimated, and learned more slowly."
    )
    reward_scale: float = Field(1.0, gt=0, description="Factor on the reward inside the agent.")

    @model_validator(mode="after")
    def _makes_sense(self) -> QLearningSettings:
        if not all(0 <= value <= 1 for value in ends(self.lr)):
            raise ValueError("`lr` is a share of the way; give values from 0 to 1")
        return self

    def threads(self, network: NetworkSpec) -> int | None:
        """One: an update touches few numbers."""
        return 1


class QTable(nn.Module):
    """Values of every state [C, S, K], in C = 1 or 2 tables. Observations are one index, see `contract.layout`."""

    hidden = 0
    table: Tensor

    def __init__(self, layout: Layout, actions: int, start: float = 0.0, double: bool = False) -> None:
        super().__init__()
        self.low, states = _states(layout)
        if states * actions * (1 + double) > LARGEST:
            what = f"a table of {states} states and {actions} actions would not fit into memory"
            raise TownletError(what, "take dqn")
        self.register_buffer("table", torch.full((1 + double, states, actions), start))

    def start(self, rows: int) -> Tensor:
        """Nothing is remembered: [rows, 0]."""
        return self.table.new_zeros(rows, 0)

    def states(self, obs: Tensor) -> Tensor:
        """The states [B] int64 that observations [B, 1] show."""
        return obs[:, 0].long() - self.low

    def values(self, states: Tensor) -> Tensor:
        """Values [B, K] of states [B]: the mean of the tables."""
        found = self.table.index_select(1, states)
        return found[0] if len(found) == 1 else found.mean(0)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """obs [B, 1], hidden [B, 0] → values [B, K], hidden."""
        return self.values(self.states(obs)), hidden


def _states(layout: Layout) -> tuple[int, int]:
    """The first state's number, and how many there are."""
    block = layout.blocks[0] if len(layout.blocks) == 1 else None
    if block is None or block.kind != "index" or block.size != 1:
        what = (
            f"qlearning needs an observation that is the number of a state, and this one is {', '.join(layout.names)}"
        )
        raise TownletError(what, "take dqn or ppo, or an environment with discrete observations")
    return int(block.low), int(block.high - block.low) + 1


class QLearning(Choosing):
    """Acts in N rows by the values in a table, and learns from every step when it is made."""

    name = "qlearning"
    on_policy = False
    round = ROUND
    settings: QLearningSettings

    def __init__(self, settings: QLearningSettings, given: Materials) -> None:
        super().__init__(given)
        env, streams, self.settings = given.env, given.streams, settings
        require_discrete(self.name, env)
        rows, device = env.rows, env.device
        self.network = QTable(env.layout, env.actions.n, settings.start, settings.double).to(device)
        self.chooser = make_chooser(given.explore.choose, rows, given.counters, streams.torch("choice", device), device)
        self._generator = streams.torch("tables", device)
        self._mask = torch.ones(rows, env.actions.n, dtype=torch.bool, device=device)
        self._state, self._actions = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        self._told = torch.zeros(3, dtype=torch.float64, device=device)  # sums of |error| and Q, and their number

    @property
    def _lr(self) -> float:
        return value_at(self.settings.lr, self.counters)

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Exploring actions [N] int64."""
        self._state = self.network.states(seen.obs)
        self._mask.copy_(seen.mask)
        self.behind = self.network.values(self._state)
        self._actions = self.chooser.choose(self.behind, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: Ended) -> None:
        """Learn from what was really reached: rows that ended already show their next episode."""
        reached = step.obs.index_copy(0, ended.rows, ended.obs)
        mask = step.mask.index_copy(0, ended.rows, ended.mask)
        if self.bonus:
            self._see(reached, step.void)
        reward = step.reward * self.settings.reward_scale + self.weight.value * self.intrinsic
        before, after = self._state, self.network.states(reached)
        lived = before, self._actions, reward, after, mask, step.terminated
        if step.void is not None:
            real = step.void.logical_not().nonzero().squeeze(1)
            lived = tuple(part.index_select(0, real) for part in lived)  # type: ignore[assignment]
        if len(lived[0]):
            self._move(*lived)

    def _move(
        self, before: Tensor, actions: Tensor, reward: Tensor, after: Tensor, mask: Tensor, terminated: Tensor
    ) -> None:
        """Q(s, a) ← Q + lr · (r + γ max Q(s′, ·) − Q), over B transitions at once.

        A pair that stands there c times goes 1 − (1 − lr)ᶜ of the way to the mean of its targets: as far as c steps
        would go, whatever their order.
        """
        table = self.network.table
        which = self._tables(len(before))
        ranking = table[which, after]
        other = table[1 - which, after] if self.settings.double else ranking
        target = reward + self.settings.gamma * best_valid(ranking, other, mask).masked_fill_(terminated, 0.0)
        place = (which * table.shape[1] + before) * table.shape[2] + actions
        pairs, which_pair, counts = torch.unique(place, return_inverse=True, return_counts=True)
        mean = torch.zeros(len(pairs), device=table.device).index_add_(0, which_pair, target).div_(counts)
        flat = table.view(-1)
        now = flat.take(pairs)
        error = target - flat.take(place)
        self._told += torch.stack((error.abs().sum(), (now * counts).sum(), counts.sum()))
        flat.index_copy_(0, pairs, now + (1 - (1 - self._lr) ** counts) * (mean - now))
        self.counters.updates += 1

    def _tables(self, count: int) -> Tensor:
        """The table that each of so many transitions is learned in [B]."""
        if not self.settings.double:
            return torch.zeros(count, dtype=torch.int64, device=self._state.device)
        return torch.randint(2, (count,), generator=self._generator, device=self._state.device)

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """Figures of what was learned since the last call; None where nothing was."""
        error, value, count = self._told.tolist()
        if not count:
            return None
        self._told.zero_()
        return {"td_error": error / count, "mean_q": value / count} | self.figures()

    def policy(self) -> Policy:
        """The greedy policy; it shares the table."""
        return Policy(self.network, "values")

    def parameters(self) -> dict[str, Tensor]:
        """The table, live."""
        return {"table": self.network.table}

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        return super().figures() | {"lr": self._lr}

    def state(self) -> State:
        """The table, exploration, what is not yet told, and the random stream."""
        kept = {"network": weights(self.network), "told": self._told, "generator": self._generator.get_state()}
        return kept | super().state()

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        restore_weights(self.network, state["network"], "table")
        copy_tensor(self._told, state["told"], "qlearning: told")
        restore_generator(self._generator, state["generator"], "qlearning")


def _table(settings: QLearningSettings, spec: NetworkSpec, layout: Layout, actions: Actions) -> QTable:
    """The table for inference; there is no network."""
    return QTable(layout, actions.n, double=settings.double)


register(
    AgentEntry(
        settings=QLearningSettings,
        agent=QLearning,
        network=_table,
        kind="value",
        on_policy=False,
        uses_network=False,
        observations="index",
        rows=16,
        sweep={"lr": Searched(low=0.005, high=1.0), "gamma": GAMMA_CHOICES},
        exported=("double",),
    )
)
