"""Deep recurrent Q-network (DRQN, Hausknecht & Stone 2015), trained on sequences within episodes, with burn-in.

Burn-in (R2D2, Kapturowski et al. 2019, §3): the first steps of a sequence only restore the hidden state; they
contribute neither to the loss nor to the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, ReplaySettings, greedy_value, td_loss
from townlet.agents.learning_agent import refuse_autoreset_steps
from townlet.agents.networks import QNetwork, make_q_network
from townlet.agents.registry import GAMMA_CHOICES, LR_RANGE, AgentEntry, register
from townlet.agents.settings import Carry, SettingProblem
from townlet.buffers.sequence_replay import SequenceBatch, SequenceReplay
from townlet.config.models import SearchRange
from townlet.config.schedule import FloatOrSchedule
from townlet.interfaces.state import State, copy_tensor
from townlet.interfaces.vec_env import FinalObs, Step


class DrqnSettings(ReplaySettings):
    """Settings of `drqn`."""

    name: Literal["drqn"] = "drqn"
    lr: FloatOrSchedule = Field(1e-4, description=ReplaySettings.model_fields["lr"].description)
    batch_size: int = Field(64, ge=1, description="Sequences per minibatch. Higher: less noise, higher cost.")
    sequence_length: int = Field(32, ge=1, description="Steps per sequence after burn-in. Higher: longer dependencies.")
    burn_in: int = Field(
        8, ge=0, description="Steps at the start of each sequence that only restore the hidden state; 0: no burn-in."
    )
    n_step: int = Field(
        1, ge=1, description="Rewards summed before bootstrapping. Higher propagates rewards faster, with more noise."
    )
    stored_state: bool = Field(
        False,
        description="Start sequences from the hidden state stored with them; if false, from zeros. Stored states "
        "come from older weights, but need less burn_in.",
    )
    bptt: bool = Field(True, description="Backpropagate through time; if false, only through the current step.")
    carry: Carry = True

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        yield from super().problems(rows)
        if rows is not None and self.replay < (needed := rows * (self.sequence_length + self.burn_in)):
            what = f"agent.replay is {self.replay}, but one sequence of every row needs {needed}"
            yield SettingProblem("replay", what, "raise agent.replay, or lower rows or agent.sequence_length")


class Drqn(Dqn):
    """DRQN agent: DQN whose Q-values depend on the history, learned from sequences within episodes."""

    name = "drqn"
    settings: DrqnSettings
    buffer: SequenceReplay

    def __init__(self, settings: DrqnSettings, context: AgentContext) -> None:
        refuse_autoreset_steps("drqn", context.env)
        self._stores_hidden = settings.stored_state and settings.carry
        super().__init__(settings, context)
        self.hidden = self.network.initial_hidden(context.env.rows)  # [N, H] before the next step

    def _make_replay(self, context: AgentContext) -> SequenceReplay:
        s, env = self.settings, context.env
        return SequenceReplay(
            s.replay, env.rows, env.layout, env.actions.n, length=s.sequence_length, burn_in=s.burn_in, gamma=s.gamma,
            generator=context.streams.torch("memory", env.device),
            hidden=self.network.hidden_size if self._stores_hidden else 0, device=env.device,
        )  # fmt: skip

    def _q(self, obs: Tensor) -> Tensor:
        """Q(h, ·) [N, K] of the current step; advances the hidden state."""
        values: Tensor
        if self._stores_hidden:
            self._stored_hidden = self.hidden
        values, self.hidden = self.network(obs, self.hidden)
        return values

    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store the transition; reset the hidden state of rows whose episode ended."""
        super().observe(step, ended)
        if ended.rows.shape[0]:
            with torch.inference_mode():  # as in `act`, which created the tensor
                self.hidden.index_fill_(0, ended.rows, 0.0)

    def on_env_reset(self) -> None:
        super().on_env_reset()
        self.hidden = self.network.initial_hidden(len(self.hidden))

    def unroll(self, network: QNetwork, sequences: SequenceBatch) -> Tensor:
        """Q-values [T + 1, B, K] of the T steps after burn-in, and of the observation that follows them."""
        hidden = self._burn_in(network, sequences)
        obs = sequences.obs[self.settings.burn_in :]
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
    def _burn_in(self, network: QNetwork, sequences: SequenceBatch) -> Tensor:
        """The hidden state [B, H] after burn-in; padding before a sequence's first step has no effect."""
        steps, start = self.settings.burn_in, sequences.start.unsqueeze(2)
        if not self._stores_hidden:
            hidden = network.initial_hidden(sequences.obs.shape[1])
            if steps:
                hidden = network.advance_hidden(sequences.obs[:steps], hidden, sequences.start[:steps])
            return hidden.masked_fill(start[steps], 0.0)
        hidden = sequences.hidden
        for step in range(steps):
            hidden = network.advance_hidden(sequences.obs[step], torch.where(start[step], sequences.hidden, hidden))
        return torch.where(start[steps], sequences.hidden, hidden)

    @torch.no_grad()
    def sequence_targets(self, sequences: SequenceBatch, online: Tensor) -> Tensor:
        """Targets y [T, B] of Q(h, a), with h the history; `online` [T + 1, B, K] selects actions in double Q-learning.

        y_t = r_t + γ Q⁻(h_{t+1}, argmax_a′ Q(h_{t+1}, a′)), and y_t = r_t where the episode terminated. For n-step
        returns, y is recomputed n − 1 times with y_{t+1} as bootstrap value, except where an episode or sequence ends.
        """
        burn_in = self.settings.burn_in
        values = self.unroll(self.target_network, sequences)[1:]
        selection = online[1:] if self.settings.double else values
        next_value = greedy_value(selection, values, sequences.mask[burn_in + 1 :])
        reward, discount = sequences.reward[burn_in:], sequences.discount[burn_in:]
        continues = sequences.valid[burn_in + 1 :]
        targets = reward + discount * next_value
        for _ in range(self.settings.n_step - 1):
            next_target = torch.where(continues, targets[1:], next_value[:-1])
            targets = reward + discount * torch.cat((next_target, next_value[-1:]))
        return targets

    def minibatches(self) -> Iterator[SequenceBatch]:
        for _ in range(self.settings.gradient_steps):
            yield self.buffer.sample(self.settings.batch_size, self.intrinsic_weight.value)

    def _backward(self, sequences: SequenceBatch) -> tuple[dict[str, Tensor], Tensor]:
        """Backpropagate E[loss(Q(h_t, a_t) − y_t)] over the valid steps after burn-in; returns the same as `Dqn`."""
        burn_in = self.settings.burn_in
        valid = sequences.valid[burn_in:]  # neither padding nor steps beyond the episode
        online = self.unroll(self.network, sequences)
        target = self.sequence_targets(sequences, online.detach())[valid]
        chosen = online[:-1].gather(2, sequences.actions[burn_in:].unsqueeze(2)).squeeze(2)[valid]
        losses = td_loss(chosen, target, self.settings.loss)
        losses.mean().backward()
        step_values = {"loss": losses, "value": chosen, "target": target}
        if self.bonus:
            return step_values, sequences.obs[burn_in + 1 :][valid]
        return step_values, sequences.obs[0]  # only to count dead units, for which any observations will do

    def state(self) -> State:
        return super().state() | {"hidden": self.hidden}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.hidden = self.network.initial_hidden(len(self.hidden))  # `act` may have left an inference tensor
        copy_tensor(self.hidden, state["hidden"], f"{self.name}: hidden")


register(
    AgentEntry(
        settings=DrqnSettings,
        agent=Drqn,
        network=make_q_network,
        kind="value",
        on_policy=False,
        recurrent="required",
        rows=32,
        sweep={"lr": LR_RANGE, "gamma": GAMMA_CHOICES, "n_step": SearchRange(choices=(1, 3, 5, 8))},
        smoke={"warmup": 64, "batch_size": 2, "replay": 1000, "update_every": 32},
        export_metadata=("dueling", "carry", "double"),
    )
)
