"""Networks of action values: a body with a linear or a dueling head."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions
from townlet.nets.body import build_body
from townlet.nets.heads import DuelingHead, make_head
from townlet.nets.spec import NetworkSpec


class QNetwork(nn.Module):
    """Q(s, ·) for one step or a whole sequence, see `nets.body.Body`.

    With `carry` off the hidden state is always zero: a sequence is treated as independent steps.
    """

    carry = True

    def __init__(self, spec: NetworkSpec, layout: ObservationLayout, actions: int, dueling: bool) -> None:
        super().__init__()
        self.body = build_body(spec, layout)
        self.head: nn.Module = (
            DuelingHead(self.body.features, actions) if dueling else make_head(self.body.features, actions, 1.0)
        )
        self.hidden_size = self.body.hidden_size

    def initial_hidden(self, rows: int) -> Tensor:
        """Initial hidden state [rows, H]; H is 0 for a feed-forward network."""
        return self.body.initial_hidden(rows)

    def advance_hidden(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> Tensor:
        """The hidden state [B, H] after a sequence [T, B, D], without computing values."""
        return self.body.advance_hidden(obs, hidden, episode_start) if self.carry else torch.zeros_like(hidden)

    def forward(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """obs [B, D] or [T, B, D], hidden [B, H] → values [B, K] or [T, B, K], hidden after the last step."""
        if self.carry:
            features, hidden = self.body(obs, hidden, episode_start)
            return self.head(features), hidden
        steps = obs.flatten(0, -2)
        features, _ = self.body(steps, self.initial_hidden(steps.shape[0]))
        return torch.unflatten(self.head(features), 0, obs.shape[:-1]), torch.zeros_like(hidden)


class QNetworkSettings(Protocol):
    """Settings that shape a network of action values."""

    @property
    def dueling(self) -> bool:
        """One head for the state's value and one for advantages."""


def make_q_network(
    settings: QNetworkSettings, spec: NetworkSpec, layout: ObservationLayout, actions: Actions
) -> QNetwork:
    """The network of an agent that learns action values; its weights are zero until initialized or loaded."""
    network = QNetwork(spec, layout, actions.n, settings.dueling)
    network.carry = bool(getattr(settings, "carry", True))
    return network
