"""Networks of agents: an actor-critic with shared or separate bodies, and Q-networks with an optional dueling head."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions, Continuous
from townlet.nets.body import build_body
from townlet.nets.layers import DuelingHead, GaussianHead, make_head
from townlet.nets.spec import NetworkSpec

POLICY_GAIN: Final = 0.01  # initial policies are nearly uniform (Andrychowicz et al. 2021, §3.2)
VALUE_GAIN: Final = 1.0


class Branch(nn.Module):
    """A body with one head. Its input is one step or a sequence, as for `nets.body.Body`.

    With an initial `log_std`, the outputs are means followed by log standard deviations.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        layout: ObservationLayout,
        outputs: int,
        gain: float,
        log_std: float | None = None,
        carry: bool = True,
    ) -> None:
        super().__init__()
        self.body = build_body(spec, layout, carry)
        self.head: nn.Linear | GaussianHead | DuelingHead = (
            make_head(self.body.features, outputs, gain)
            if log_std is None
            else GaussianHead(self.body.features, outputs, gain, log_std)
        )
        self.hidden_size = self.body.hidden_size

    def parts(self) -> dict[str, nn.Module]:
        """Parts whose gradients are measured separately, in the order of their parameters."""
        return {"body": self.body, "head": self.head}

    def initial_hidden(self, rows: int) -> Tensor:
        """Initial hidden state [rows, H]; H is 0 for a feed-forward network."""
        return self.body.initial_hidden(rows)

    def forward(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """obs [B, D] or [T, B, D], hidden [B, H] → outputs [B, O] or [T, B, O], hidden after the last step."""
        features, hidden = self.body(obs, hidden, episode_start)
        return self.head(features), hidden


class ActorCritic(nn.Module):
    """Policy and state value. Acting needs only `actor`; `critic` is a head on its body, or a separate branch.

    Continuous actions need `log_std`, their initial log standard deviation.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        layout: ObservationLayout,
        actions: int,
        shared: bool,
        log_std: float | None = None,
        carry: bool = True,
    ) -> None:
        super().__init__()
        self.actor = Branch(spec, layout, actions, POLICY_GAIN, log_std, carry)
        features = self.actor.body.features
        self.critic = make_head(features, 1, VALUE_GAIN) if shared else Branch(spec, layout, 1, VALUE_GAIN, carry=carry)
        self.hidden_size = self.actor.hidden_size * (1 if shared else 2)

    def parts(self) -> dict[str, nn.Module]:
        """Parts whose gradients are measured separately, in the order of their parameters."""
        if isinstance(self.critic, Branch):
            return {"actor": self.actor, "critic": self.critic}
        return {"body": self.actor.body, "actor": self.actor.head, "critic": self.critic}

    @property
    def separate_feedforward_critic(self) -> bool:
        """Whether the critic is a separate feed-forward network, which acting need not evaluate."""
        return isinstance(self.critic, Branch) and not self.hidden_size

    def values(self, obs: Tensor) -> Tensor:
        """Values [B] of obs [B, D]; only with a separate critic."""
        value: Tensor = self.critic(obs, self.initial_hidden(len(obs)))[0]
        return value.squeeze(-1)

    def initial_hidden(self, rows: int) -> Tensor:
        """Initial hidden state [rows, H]: that of the actor, then that of a separate critic."""
        return self.actor.initial_hidden(rows).repeat(1, 1 if isinstance(self.critic, nn.Linear) else 2)

    def forward(
        self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """obs [B, D] or [T, B, D], hidden [B, H] → outputs [..., B, O], value [..., B], hidden after the last step."""
        if isinstance(self.critic, nn.Linear):
            features, hidden = self.actor.body(obs, hidden, episode_start)
            if isinstance(self.actor.head, nn.Linear):
                return *_both_heads(self.actor.head, self.critic, features), hidden
            return self.actor.head(features), self.critic(features).squeeze(-1), hidden
        if not self.hidden_size:
            return self.actor(obs, hidden)[0], self.critic(obs, hidden)[0].squeeze(-1), hidden
        actor_hidden, critic_hidden = hidden.chunk(2, -1)
        outputs, actor_hidden = self.actor(obs, actor_hidden, episode_start)
        value, critic_hidden = self.critic(obs, critic_hidden, episode_start)
        return outputs, value.squeeze(-1), torch.cat((actor_hidden, critic_hidden), -1)


def _both_heads(policy: nn.Linear, value: nn.Linear, features: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of both heads from one matrix product, with the action dimension first in memory.

    Separate products with few columns, and sums over a last dimension of few actions, would be slow.
    """
    bias = torch.cat((policy.bias, value.bias)).unsqueeze(1)
    flat = features.flatten(0, -2)
    outputs = torch.addmm(bias, torch.cat((policy.weight, value.weight)), flat.t()).t()  # [B, K + 1]
    outputs = outputs.view(*features.shape[:-1], -1)
    return outputs[..., :-1], outputs[..., -1]


def make_actor_critic(settings: Any, spec: NetworkSpec, layout: ObservationLayout, actions: Actions) -> ActorCritic:
    """The network of a policy agent. Reads `shared`, `log_std` and, where it exists, `carry` from its settings.

    The weights are zero until they are initialized or loaded.
    """
    log_std = settings.log_std if isinstance(actions, Continuous) else None
    return ActorCritic(spec, layout, actions.n, settings.shared, log_std, getattr(settings, "carry", True))


class QNetwork(Branch):
    """Network for Q(s, ·). Its input is one step or a sequence, as for `nets.body.Body`."""

    def __init__(
        self, spec: NetworkSpec, layout: ObservationLayout, actions: int, dueling: bool, carry: bool = True
    ) -> None:
        super().__init__(spec, layout, actions, VALUE_GAIN, carry=carry)
        if dueling:
            self.head = DuelingHead(self.body.features, actions)

    def advance_hidden(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> Tensor:
        """The hidden state [B, H] after a sequence [T, B, D], without computing values."""
        return self.body.advance_hidden(obs, hidden, episode_start)


def make_q_network(settings: Any, spec: NetworkSpec, layout: ObservationLayout, actions: Actions) -> QNetwork:
    """The network of a value agent. Reads `dueling` and, where it exists, `carry` from its settings.

    The weights are zero until they are initialized or loaded.
    """
    return QNetwork(spec, layout, actions.n, settings.dueling, getattr(settings, "carry", True))
