"""The inference part of an agent: a network, and how its outputs become actions."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from townlet.agents.distributions import DISTRIBUTIONS, DistributionKind
from townlet.errors import TownletError

OutputKind = Literal["values"] | DistributionKind


class Policy:
    """Acts on batches of any size and tracks the hidden state of each row.

    The network maps obs [B, D] and hidden [B, H] to outputs [B, O] and the next hidden state; `initial_hidden(rows)`
    gives the first one. `kind` states what the outputs are: action `values`, of which the highest is taken; logits of
    `discrete` or `binary` actions; or means and log standard deviations of `continuous` actions. Sampling needs a
    generator.
    """

    def __init__(self, network: nn.Module, kind: OutputKind, generator: torch.Generator | None = None) -> None:
        self.network: Any = network  # mypy does not know the attributes of a module
        self.kind, self._generator = kind, generator
        self._hidden: Tensor | None = None

    def reset(self, rows: int) -> None:
        """Reset the hidden state for `rows` rows, each at the start of an episode."""
        self._hidden = self.network.initial_hidden(rows)

    @torch.inference_mode()
    def act(
        self, obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None, greedy: bool = True
    ) -> Tensor:
        """Actions [N] int64 for obs [N, D]; without a mask [N, K] all actions are valid.

        Binary actions are [N, A] int64 and continuous ones [N, A] float32, not clipped to their bounds. `episode_start`
        [N] bool marks rows that begin an episode. Unless `greedy`, actions are sampled; policies of kind `values` are
        always greedy.
        """
        outputs, self._hidden = self.network(obs, self._hidden_before(obs, episode_start))
        if self.kind == "values":
            return _best(outputs, mask)
        policy = DISTRIBUTIONS[self.kind](outputs, mask)
        if greedy:
            return policy.mode()
        if self._generator is None:
            raise TownletError(
                "this policy has no random generator to sample actions with",
                "build it with generator=Streams(seed).torch(name), or act greedily",
            )
        return policy.sample(self._generator)

    @torch.inference_mode()
    def outputs(
        self, obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Network outputs for the next action: `values` or `logits`, and `probabilities`, each [N, K].

        Probabilities of binary actions are those of 1; continuous actions have `means` and `stds` instead.
        The hidden state does not change.
        """
        outputs, _ = self.network(obs, self._hidden_before(obs, episode_start))
        if self.kind == "values":
            return {"values": outputs, "probabilities": one_hot(_best(outputs, mask), outputs.shape[-1]).float()}
        return DISTRIBUTIONS[self.kind](outputs, mask).outputs()

    def _hidden_before(self, obs: Tensor, episode_start: Tensor | None) -> Tensor:
        rows, hidden = obs.shape[0], self._hidden
        if hidden is None or (hidden.shape[0] != rows and not hidden.shape[1]):
            hidden = self.network.initial_hidden(rows)
        if hidden.shape[0] != rows:
            raise TownletError(
                f"the policy has hidden states of {hidden.shape[0]} rows, but the observations have {rows}",
                f"call reset({rows}) at the start of their episodes",
            )
        return hidden if episode_start is None else hidden.masked_fill(episode_start.unsqueeze(1), 0.0)


def _best(values: Tensor, mask: Tensor | None) -> Tensor:
    """The valid actions with the highest values [N]; ties go to the first."""
    if mask is not None:
        values = values.masked_fill(mask.logical_not(), -torch.inf)
    return values.argmax(-1)
