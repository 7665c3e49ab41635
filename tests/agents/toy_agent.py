"""An agent as a user writes it, in one file: one-step actor-critic over linear features (Sutton & Barto, §13.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from townlet.agents.agent import AgentContext, no_interrupt
from townlet.agents.policy import Policy
from townlet.agents.registry import LR_RANGE, AgentEntry, register
from townlet.agents.settings import AgentSettings
from townlet.explore.intrinsic_reward import IntrinsicReward
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State, restore_generator
from townlet.interfaces.vec_env import Actions, Episodes, FinalObs, MaskedObs, Step
from townlet.nets.optimizers import restore_weights, weights
from townlet.nets.spec import NetworkSpec


class ToySettings(AgentSettings):
    """Settings of `toy`."""

    name: Literal["toy"] = "toy"
    lr: float = Field(0.01, gt=0, description="Learning rate of policy and value. Higher learns faster, less stably.")


class LinearPolicy(nn.Module):
    """Logits that are linear in the observation; nothing is remembered."""

    hidden_size = 0

    def __init__(self, layout: ObservationLayout, actions: Actions) -> None:
        super().__init__()
        self.linear = nn.Linear(layout.size, actions.n)

    def initial_hidden(self, rows: int) -> Tensor:
        return self.linear.weight.new_zeros(rows, 0)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(obs), hidden


class LinearActorCritic(nn.Module):
    """Linear logits and a linear state value."""

    hidden_size = 0

    def __init__(self, layout: ObservationLayout, actions: Actions) -> None:
        super().__init__()
        self.actor, self.critic = LinearPolicy(layout, actions), nn.Linear(layout.size, 1)
        self.initial_hidden = self.actor.initial_hidden

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.actor(obs, hidden)[0], self.critic(obs).squeeze(-1), hidden


class Toy:
    """Learns from every step when it is made; metrics are reported every 8 steps."""

    name, update_interval, interruptible, graphed = "toy", 8, True, None
    bonus: IntrinsicReward | None = None
    action_outputs: Tensor
    output_label: Literal["probabilities"] = "probabilities"

    def __init__(self, settings: ToySettings, given: AgentContext) -> None:
        env = given.env
        self.settings, self.counters, self._streams = settings, given.counters, given.streams
        self.network = LinearActorCritic(env.layout, env.actions).to(env.device)
        for weight in self.network.parameters():
            nn.init.normal_(weight, std=0.01, generator=given.streams.torch("network"))
        self.generator = given.streams.torch("choice", env.device)
        self.intrinsic, self._sums = torch.zeros(env.rows), torch.zeros(2)  # loss and |δ|

    def act(self, inputs: MaskedObs) -> Tensor:
        self._obs, self._mask = inputs.obs.clone(), inputs.mask.clone()
        logits = self.network.actor(self._obs, None)[0].masked_fill(~self._mask, -torch.inf)
        self._log_prob = logits.log_softmax(-1)
        self.action_outputs = self._log_prob.detach().exp()
        self._actions = torch.multinomial(self.action_outputs, 1, generator=self.generator)
        return self._actions.squeeze(1)

    def observe(self, step: Step, ended: FinalObs) -> None:
        # δ = r + γ V(s′) − V(s); a truncated episode bootstraps from its final observation, a terminated one from 0.
        reached = step.obs.index_copy(0, ended.rows, ended.obs)
        with torch.no_grad():
            following = self.network.critic(reached).squeeze(-1) * ~step.terminated
        delta = step.reward + self.settings.gamma * following - self.network.critic(self._obs).squeeze(-1)
        policy_loss = -delta.detach() * self._log_prob.gather(1, self._actions).squeeze(1)
        loss = (policy_loss + 0.5 * delta.square()).mean()
        self.network.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in self.network.parameters():
                assert weight.grad is not None
                weight.sub_(self.settings.lr * weight.grad)
            self._sums += torch.stack((loss.detach(), delta.abs().mean()))
        self.counters.updates += 1

    def learn(self, check_interrupt: Callable[[], None] = no_interrupt) -> dict[str, float]:
        loss, error = (self._sums / self.update_interval).tolist()
        self._sums.zero_()
        return {"loss": loss, "td_error": error} | self.metrics()

    def describe_outputs(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        return torch.stack([chances[:rows] for chances in action_outputs])

    def entropy(self) -> Tensor:
        most = self._mask.sum(-1).clamp(min=2).log()
        return -(self.action_outputs * self.action_outputs.clamp(min=1e-20).log()).sum(-1) / most

    def policy(self) -> Policy:
        return Policy(self.network.actor, "discrete", self._streams.torch("policy"))

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    def metrics(self) -> dict[str, float]:
        return {"lr": self.settings.lr}

    def tune(self, settings: AgentSettings) -> None:
        assert isinstance(settings, ToySettings)
        self.settings = settings

    def on_env_reset(self) -> None: ...

    def on_episodes_end(self, episodes: Episodes) -> None: ...

    def state(self) -> State:
        return {"network": weights(self.network), "generator": self.generator.get_state(), "sums": self._sums}

    def load_weights(self, weights: State) -> None:
        restore_weights(self.network, weights)

    def restore(self, state: State) -> None:
        restore_weights(self.network, state["network"])
        restore_generator(self.generator, state["generator"], "toy")
        self._sums.copy_(state["sums"])


def toy_network(settings: ToySettings, spec: NetworkSpec, layout: ObservationLayout, actions: Actions) -> nn.Module:
    return LinearActorCritic(layout, actions)


ENTRY = register(
    AgentEntry(
        settings=ToySettings,
        agent=Toy,
        network=toy_network,
        kind="policy",
        on_policy=True,
        uses_network=False,
        bonuses=(),
        rows=16,
        sweep={"lr": LR_RANGE},
        changeable=("lr",),
    )
)
