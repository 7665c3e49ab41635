"""DQN (Mnih et al. 2015) with its extensions, each a switch that changes one thing.

Double (van Hasselt et al. 2016), dueling (Wang et al. 2016), prioritized replay (Schaul et al. 2016) and
n-step returns (Sutton & Barto, ch. 7), over valid actions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.agent import Materials
from townlet.agents.q_agent import QAgent, QSettings
from townlet.agents.q_network import value_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import SettingProblem
from townlet.agents.values import best_valid, pointwise_loss, pointwise_slope
from townlet.config.schedule import Scheduled, value_at
from townlet.config.search import Searched
from townlet.errors import TownletError
from townlet.memory.packing import Packing
from townlet.memory.priority import PrioritySpec
from townlet.memory.ring import Batch, Ring
from townlet.nets.spec import MlpSpec, NetworkSpec
from townlet.nets.ways import way

# Numbers in the widest layer of an update up to which torch's threads wait for each other longer than they work: on an
# idle machine of two cores one thread is as fast, on a busy one up to a hundred times faster.
SMALL_UPDATE: Final = 2**15
DRAWN: Final = 2**20  # numbers of observations that are drawn at once, at most: 4 MiB, twice


class DqnSettings(QSettings):
    """Settings of `dqn`."""

    name: Literal["dqn"] = "dqn"
    lr: Scheduled = Field(2.5e-4, description=QSettings.model_fields["lr"].description)
    batch_size: int = Field(64, ge=1, description="transitions in an update: raised, steadier gradients at more cost")
    n_step: int = Field(
        1, ge=1, description="rewards summed before bootstrapping: raised, news travels faster and noise grows"
    )
    prioritized: PrioritySpec | None = Field(None, description="draw transitions by their error; null draws uniformly")

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


class Dqn(QAgent):
    """Values of single observations, learned from single transitions."""

    name = "dqn"
    settings: DqnSettings
    memory: Ring

    def __init__(self, settings: DqnSettings, given: Materials) -> None:
        super().__init__(settings, given)
        if self.network.hidden:
            raise TownletError(
                "dqn cannot train a recurrent network", "use drqn, or leave `recurrent` out of the network"
            )
        self._way = way(self.network, self.network.chains(), self.optimizer)
        self._nothing = self.network.start(0)  # handed through by a network without memory
        env = given.env
        self.memory = Ring(
            settings.replay,
            env.rows,
            env.layout.size,
            env.actions.n,
            crew=given.crew,
            n_step=settings.n_step,
            gamma=settings.gamma,
            generator=given.streams.torch("memory", env.device),
            priority=settings.prioritized,
            voids=env.voids,
            packing=Packing(env.layout, env.device),
            device=env.device,
        )

    @property
    def _beta(self) -> float | None:
        """How much of the bias by priorities is corrected now; None where there are none."""
        spec = self.settings.prioritized
        return None if spec is None else value_at(spec.beta, self.counters)

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        return super().figures() | ({} if self._beta is None else {"beta": self._beta})

    def _evaluate(self, obs: Tensor) -> Tensor:
        values: Tensor = self.network(obs, self._nothing)[0]
        return values

    @torch.no_grad()
    def targets(self, batch: Batch, values: Tensor | None = None) -> Tensor:
        """What Q(s, a) should be [B]: y = r + discount · Q⁻(s′, argmax over valid a′), discount 0 after a death.

        `values` [B, K] are those of s′ by the target network, where they are known.
        """
        if values is None:
            values = self._lag(batch.next_obs)
        ranking = self._evaluate(batch.next_obs) if self.settings.double else values
        return batch.reward + batch.discount * best_valid(ranking, values, batch.next_mask)

    @torch.no_grad()
    def _lag(self, obs: Tensor) -> Tensor:
        values: Tensor = self.target(obs, self._nothing)[0]
        return values

    def _batches(self, weight: float) -> Iterator[tuple[Batch, Tensor | None]]:
        """What a round learns from, and the target's values of what was reached: many batches at once.

        Not where priorities change with every update, nor values where the target does.
        """
        s, left = self.settings, self.settings.updates
        if self._beta is not None:
            yield from ((self.memory.sample(s.batch_size, weight, self._beta), None) for _ in range(left))
            return
        at_once = max(1, DRAWN // (s.batch_size * self._obs.shape[1]))
        while left:
            count = min(at_once, left)
            if s.polyak is None:
                count = min(count, s.target_every - self.counters.updates % s.target_every)
            drawn, sizes = self.memory.samples(count, s.batch_size, weight)
            values = [None] * count if s.polyak is not None else torch.split(self._lag(drawn.next_obs), sizes)
            parts = zip(*(torch.split(part, sizes) for part in drawn), strict=True)
            yield from zip(map(Batch._make, parts), values, strict=True)
            left -= count

    @torch.no_grad()
    def _updates(self, weight: float) -> Iterator[tuple[Tensor, Tensor]]:
        s = self.settings
        for batch, lagging in self._batches(weight):
            (values,) = self._way.there(batch.obs, self._nothing)
            actions = batch.actions.unsqueeze(1)
            chosen = values.gather(1, actions).squeeze(1)
            error = chosen - self.targets(batch, lagging)
            # Weights of importance undo the bias of drawing by priority (Schaul et al. 2016, §3.4); 1 without it.
            slope = batch.importance * pointwise_slope(error, s.loss) / s.batch_size
            self._way.back([torch.zeros_like(values).scatter_(1, actions, slope.unsqueeze(1))])
            norm = self._descend()
            loss, off = batch.importance * pointwise_loss(error, s.loss), error.abs()
            self.memory.reprioritize(batch.index, off)
            means = [column.sum() / s.batch_size for column in (loss, off, chosen)]
            yield torch.stack((*means, norm / self.crew.size)), batch.next_obs


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
        shard_axes=("rows",),
        unsharded=("prioritized",),
        exported=("dueling", "double"),
    )
)
