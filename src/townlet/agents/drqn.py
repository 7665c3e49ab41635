"""DRQN: the recurrent form of DQN (Hausknecht & Stone 2015), replaying windows of episodes with burn-in.

Burn-in (Kapturowski et al. 2019, R2D2, §3): the first steps of a window only bring the hidden state to where
it was; neither loss nor gradient comes from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.agent import Materials
from townlet.agents.learner import refuse_voids
from townlet.agents.q_agent import QAgent, QSettings
from townlet.agents.q_network import QNetwork, value_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import SettingProblem
from townlet.agents.values import best_valid, pointwise_loss, pointwise_slope
from townlet.config.schedule import Scheduled
from townlet.config.search import Searched
from townlet.contract.restore import copy_tensor
from townlet.contract.state import State
from townlet.contract.vec_env import Ended, Step
from townlet.memory.packing import Packing
from townlet.memory.sequence import Sequences, Windows


class DrqnSettings(QSettings):
    """Settings of `drqn`."""

    name: Literal["drqn"] = "drqn"
    lr: Scheduled = Field(1e-4, description=QSettings.model_fields["lr"].description)
    batch_size: int = Field(64, ge=1, description="windows in an update: raised, steadier gradients at more cost")
    sequence: int = Field(
        32,
        ge=1,
        description="steps of a window that are learned from: raised, it learns to remember longer, at more cost",
    )
    burn_in: int = Field(
        8,
        ge=0,
        description="steps before them that only fill the memory: raised, values suit long lives better; 0 is without",
    )
    n_step: int = Field(
        1,
        ge=1,
        description="rewards before the value of what follows: raised, news of reward travel faster, with more noise",
    )
    stored: bool = Field(
        False,
        description="windows begin with what was remembered when they were lived; off, with nothing. On, it learns "
        "from what long lives leave in the memory, by older weights than now, and needs less burn_in",
    )
    bptt: bool = Field(True, description="gradients go back through time; off, what is remembered is left to luck")
    carry: bool = Field(
        True,
        description="the memory lasts through an episode; off, it is wiped before every step, lived or learned from",
    )

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A replay buffer without room for one window of every row."""
        yield from super().problems(rows)
        if rows is not None and self.replay < (least := rows * (self.sequence + self.burn_in)):
            what = f"agent.replay is {self.replay}, and one window of every row needs {least}"
            yield SettingProblem("replay", what, "raise agent.replay, or lower rows or agent.sequence")


class Drqn(QAgent):
    """Values of histories. Without a recurrent part the network learns from windows but remembers nothing."""

    name = "drqn"
    settings: DrqnSettings
    memory: Sequences

    def __init__(self, settings: DrqnSettings, given: Materials) -> None:
        refuse_voids("drqn", given.env)
        super().__init__(settings, given)
        self.network.carry = self.target.carry = settings.carry
        self._stores = settings.stored and settings.carry  # without memory there is nothing to store
        env = given.env
        self.memory = Sequences(
            settings.replay,
            env.rows,
            env.layout.size,
            env.actions.n,
            length=settings.sequence,
            burn_in=settings.burn_in,
            gamma=settings.gamma,
            generator=given.streams.torch("memory", env.device),
            hidden=self.network.hidden if self._stores else 0,
            packing=Packing(env.layout, env.device),
            device=env.device,
        )
        self.hidden = self.network.start(env.rows)  # [N, H] of the live rows

    def _evaluate(self, obs: Tensor) -> Tensor:
        values: Tensor
        if self._stores:
            self._before = self.hidden
        values, self.hidden = self.network(obs, self.hidden)
        return values

    def observe(self, step: Step, ended: Ended) -> None:
        """Store the step; rows whose episode ended forget it."""
        super().observe(step, ended)
        if ended.rows.shape[0]:
            with torch.inference_mode():  # where the hidden state was made
                self.hidden.index_fill_(0, ended.rows, 0.0)

    def cut(self) -> None:
        """Rows that begin remember nothing."""
        super().cut()
        self.hidden = self.network.start(len(self.hidden))

    def unroll(self, network: QNetwork, windows: Windows) -> Tensor:
        """Values [T + 1, B, K] of the steps after burn-in and of what the last one led to."""
        hidden, obs = self._burn_in(network, windows), windows.obs[self.settings.burn_in :]
        values: Tensor
        if self.settings.bptt:
            values, _ = network(obs, hidden)
            return values
        steps = []
        for step in obs.unsqueeze(1):
            values, hidden = network(step, hidden.detach())
            steps.append(values)
        return torch.cat(steps)

    @torch.no_grad()
    def _burn_in(self, network: QNetwork, windows: Windows) -> Tensor:
        """What is remembered at the drawn step [B, H]. Nothing stays of the padding before a window's first step."""
        steps, fresh = self.settings.burn_in, windows.fresh.unsqueeze(2)
        if not self._stores:
            hidden = network.start(windows.obs.shape[1])
            if steps:
                hidden = network.remember(windows.obs[:steps], hidden, windows.fresh[:steps])
            return hidden.masked_fill(fresh[steps], 0.0)
        hidden = windows.hidden
        for step in range(steps):
            hidden = network.remember(windows.obs[step], torch.where(fresh[step], windows.hidden, hidden))
        return torch.where(fresh[steps], windows.hidden, hidden)

    @torch.no_grad()
    def targets(self, windows: Windows, online: Tensor) -> Tensor:
        """y = r + discount · Q⁻(h′, argmax over valid a′) [T, B]; `online` [T + 1, B, K] ranks when double.

        Each further step of `n_step` puts the target of the next step in the place of its value, as far as the
        episode and the window go.
        """
        burn_in = self.settings.burn_in
        values = self.unroll(self.target, windows)[1:]
        ranking = online[1:] if self.settings.double else values
        following = best_valid(ranking, values, windows.mask[burn_in + 1 :])
        reward, discount = windows.reward[burn_in:], windows.discount[burn_in:]
        goes_on = windows.valid[burn_in + 1 :]
        targets = reward + discount * following
        for _ in range(self.settings.n_step - 1):
            ahead = torch.where(goes_on, targets[1:], following[:-1])
            targets = reward + discount * torch.cat((ahead, following[-1:]))
        return targets

    def _updates(self, weight: float) -> Iterator[tuple[Tensor, Tensor]]:
        s = self.settings
        for _ in range(s.updates):
            windows = self.memory.sample(s.batch_size, weight)
            valid = windows.valid[s.burn_in :]
            online = self.unroll(self.network, windows)
            values = online[:-1].gather(2, windows.actions[s.burn_in :].unsqueeze(2)).squeeze(2)
            # Padding counts for nothing.
            error = (values.detach() - self.targets(windows, online.detach())) * valid
            count = valid.sum()
            self.optimizer.add([values], [pointwise_slope(error, s.loss) / count])
            norm = self._descend()
            sums = pointwise_loss(error, s.loss).sum(), error.abs().sum(), (values.detach() * valid).sum()
            reached = windows.obs[s.burn_in + 1 :][valid] if self.bonus else windows.obs[0]
            yield torch.stack((*(total / count for total in sums), norm)), reached

    def state(self) -> State:
        """As of every agent, and what the live rows remember."""
        return super().state() | {"hidden": self.hidden}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        self.hidden = self.network.start(self.hidden.shape[0])
        copy_tensor(self.hidden, state["hidden"], f"{self.name}: hidden")


register(
    AgentEntry(
        settings=DrqnSettings,
        agent=Drqn,
        network=value_network,
        kind="value",
        on_policy=False,
        recurrent="required",
        rows=32,
        sweep={"lr": LR_RANGE, "gamma": GAMMA_CHOICES, "n_step": Searched(choices=(1, 3, 5, 8))},
        smoke={"warmup": 64, "batch_size": 2, "replay": 1000, "update_every": 32},
        exported=("dueling", "carry", "double"),
    )
)
