"""Deep Q-network (DQN, Mnih et al. 2015) with its common extensions, each enabled by a setting of its own.

Double Q-learning (van Hasselt et al. 2016), dueling architecture (Wang et al. 2016), prioritized replay (Schaul et
al. 2016) and n-step returns (Sutton & Barto 2018, ch. 7). Invalid actions are neither chosen nor considered in the
maximum of a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.agent import AgentContext
from townlet.agents.q_network import value_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.replay_agent import ReplayAgent, ReplaySettings
from townlet.agents.settings import SettingProblem
from townlet.agents.value_agent import TDBackward, greedy_value, q_loss
from townlet.config.schedule import Scheduled, value_at
from townlet.config.search import Searched
from townlet.errors import TownletError
from townlet.memory.packing import Packing
from townlet.memory.priority import PrioritySpec
from townlet.memory.ring import Batch, Ring
from townlet.nets.spec import MlpSpec, NetworkSpec

PREFETCH: Final = 2**20  # elements of observations sampled at once, at most: 4 MiB, and as much for the next ones
# Numbers in the widest layer of an update up to which torch's threads wait for each other longer than they work: on an
# idle machine of two cores one thread is as fast, on a busy one up to a hundred times faster.
SMALL_UPDATE: Final = 2**15


class DqnSettings(ReplaySettings):
    """Settings of `dqn`."""

    name: Literal["dqn"] = "dqn"
    lr: Scheduled = Field(2.5e-4, description=ReplaySettings.model_fields["lr"].description)
    batch_size: int = Field(64, ge=1, description="Transitions in a minibatch. Higher: steadier gradients, more cost.")
    n_step: int = Field(
        1, ge=1, description="Rewards summed before bootstrapping. Higher propagates rewards faster, with more noise."
    )
    prioritized: PrioritySpec | None = Field(None, description="Sample transitions by their TD error; null: uniformly.")
    accelerate: bool = Field(True, description="Use faster implementations where available. Results agree to rounding.")

    def threads(self, network: NetworkSpec) -> int | None:
        """One for small updates."""
        small = isinstance(network, MlpSpec) and self.batch_size * max(network.widths, default=1) <= SMALL_UPDATE
        return 1 if small else None

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A batch larger than the replay buffer."""
        yield from super().problems(rows)
        if self.batch_size > self.replay:
            what = f"agent.batch_size is {self.batch_size} and agent.replay holds only {self.replay}"
            yield SettingProblem("replay", what, "raise agent.replay")


def dqn_target(batch: Batch, next_values: Tensor, ranking: Tensor) -> Tensor:
    """The target y [B] of Q(s, a) (Mnih et al. 2015, algorithm 1; van Hasselt et al. 2016, eq. 4).

    y = R + γⁿ Q⁻(s′, argmax_a′ Q(s′, a′)),  or without double Q-learning  y = R + γⁿ max_a′ Q⁻(s′, a′)

    R = Σ γᵏ r_k sums n rewards, fewer where the episode ends sooner, and s′ is the observation after them; there is no
    off-policy correction. After termination y = R; a truncated episode bootstraps from its final observation.
    `next_values` [B, K] are those of the target network Q⁻; `ranking` [B, K] those of the online network (double
    Q-learning) or again of Q⁻. `batch.discount` is γ to the number of rewards summed, or 0 after termination.
    """
    return batch.reward + batch.discount * greedy_value(ranking, next_values, batch.next_mask)


class Dqn(ReplayAgent):
    """DQN agent: ε-greedy (or softmax) actions, transitions in a replay buffer, regression on bootstrapped targets.

    `ReplayAgent` acts on valid actions only, stores transitions, and after `warmup` of them makes `updates` gradient
    steps every `update_every` steps. The loss is the mean squared or Huber TD error (`loss`); the target network is
    copied every `target_every` gradient steps, or follows softly (`polyak`). Exploration is set by `explore`.
    """

    name = "dqn"
    settings: DqnSettings
    memory: Ring
    accelerated: TDBackward | None = None

    def __init__(self, settings: DqnSettings, context: AgentContext) -> None:
        super().__init__(settings, context)
        if self.network.hidden:
            fix = "use drqn, or leave `recurrent` out of the network"
            raise TownletError("dqn cannot train a recurrent network", fix)
        self._hidden = self.network.start(0)
        env = context.env
        self.memory = Ring(
            settings.replay, env.rows, env.layout.size, env.actions.n, crew=context.crew, n_step=settings.n_step,
            gamma=settings.gamma, generator=context.streams.torch("memory", env.device),
            priority=settings.prioritized, voids=env.voids, packing=Packing(env.layout, env.device),
            device=env.device,
        )  # fmt: skip

    @property
    def _beta(self) -> float | None:
        """Exponent of the importance weights at this moment; None without priorities."""
        spec = self.settings.prioritized
        return None if spec is None else value_at(spec.beta, self.counters)

    def metrics(self) -> dict[str, float]:
        """Current values of everything scheduled or annealed."""
        return super().metrics() | ({} if self._beta is None else {"beta": self._beta})

    def _q(self, obs: Tensor) -> Tensor:
        values: Tensor = self.network(obs, self._hidden)[0]
        return values

    @torch.no_grad()
    def targets(self, batch: Batch, next_values: Tensor | None = None) -> Tensor:
        """Targets [B] of a batch; `next_values` [B, K] are those of the target network, if known."""
        if next_values is None:
            next_values = self._target_q(batch.next_obs)
        ranking = self._q(batch.next_obs) if self.settings.double else next_values
        return dqn_target(batch, next_values, ranking)

    @torch.no_grad()
    def _target_q(self, obs: Tensor) -> Tensor:
        values: Tensor = self.target(obs, self._hidden)[0]
        return values

    def _gradient_steps(self, weight: float) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
        s = self.settings
        for batch, next_values in self._minibatches(weight):
            target = self.targets(batch, next_values)
            share = len(batch.obs) / s.batch_size  # of this process; gradients of all processes are summed
            # Importance weights (N·P(i))^−β / max w correct for sampling by priority (Schaul et al. 2016, §3.4).
            self.optimizer.zero_grad()
            if self.accelerated:
                terms = self.accelerated.backward(batch.obs, batch.actions, target, s.loss, batch.importance, share)
            else:
                loss, terms = q_loss(self._q(batch.obs), batch.actions, target, s.loss, batch.importance)
                (share * loss).backward()
            norm = self._step()
            self.memory.reprioritize(batch.index, terms["td_error"].detach())
            yield terms, norm, batch.next_obs

    def _minibatches(self, weight: float) -> Iterator[tuple[Batch, Tensor | None]]:
        """Sample the minibatches of an update, with Q⁻(s′, ·) where it is known.

        Several are sampled, and evaluated by the target network, in one operation each, which costs less than many
        small ones. Priorities change with every gradient step, so there it is one at a time; a soft target is evaluated
        for each, and a block ends where a hard target is copied.
        """
        s, left = self.settings, self.settings.updates
        if self._beta is not None:
            yield from ((self.memory.sample(s.batch_size, weight, self._beta), None) for _ in range(left))
            return
        most = max(1, PREFETCH // (s.batch_size * self._obs.shape[1]))
        while left:
            count = min(most, left)
            if s.polyak is None:
                count = min(count, s.target_every - self.counters.updates % s.target_every)
            sampled, sizes = self.memory.samples(count, s.batch_size, weight)
            values = [None] * count if s.polyak is not None else torch.split(self._target_q(sampled.next_obs), sizes)
            parts = zip(*(torch.split(part, sizes) for part in sampled), strict=True)
            yield from zip(map(Batch._make, parts), values, strict=True)
            left -= count


register(
    AgentEntry(
        settings=DqnSettings,
        agent=Dqn,
        network=value_network,
        kind="value",
        on_policy=False,
        rows=64,
        sweep={
            "lr": LR_RANGE,
            "gamma": GAMMA_CHOICES,
            "n_step": Searched(choices=(1, 3, 5, 8)),
            "batch_size": Searched(choices=(32, 64, 128, 256)),
        },
        smoke={"warmup": 64, "batch_size": 8, "replay": 1000, "update_every": 32},
        shard_axes={"chooser/epsilon": 0, "memory/storage/columns": 1},
        unsharded=("prioritized",),
        exported=("dueling", "double"),
    )
)
