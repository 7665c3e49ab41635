"""The inference part of an agent: a network, and how its outputs become actions."""

from __future__ import annotations

from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from townlet.agents import distributions
from townlet.agents.distributions import distribution
from townlet.errors import TownletError

Kind = Literal["values"] | distributions.Kind
LOWEST: Final = float("-inf")


class Policy:
    """Acts on batches of any size and keeps the hidden state of its rows by itself.

    The network is a body with a head: `start(rows)` → hidden [rows, H], and a call with obs [B, D] and
    hidden [B, H] → outputs [B, K] and the hidden state after them. `kind` says what the outputs are: action
    `values`, of which the highest is taken, `logits` of discrete actions, logits of `binary` actions, or means and
    log standard deviations of `continuous` actions. Sampling needs a generator.
    """

    def __init__(self, network: nn.Module, kind: Kind, generator: torch.Generator | None = None) -> None:
        self.network, self.kind = network, kind
        self._steps: Any = network  # a module's attributes have no types
        self._generator = generator
        self._hidden: Tensor | None = None

    def start(self, rows: int) -> None:
        """Forget the past: every one of `rows` is before its first step."""
        self._hidden = self._steps.start(rows)

    @torch.inference_mode()
    def act(self, obs: Tensor, mask: Tensor | None = None, fresh: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N] int64 for obs [N, D]; no mask [N, K] means that all are valid.

        Binary actions are [N, A] int64 and continuous ones [N, A] float32, not clipped to their bounds. Rows that are
        fresh [N] bool begin an episode. Unless greedy, actions are sampled; a policy of values is always greedy.
        """
        outputs, self._hidden = self._steps(obs, self._before(obs, fresh))
        if self.kind == "values":
            return _best(outputs, mask)
        chances = distribution(self.kind, outputs, mask)
        return chances.mode() if greedy else chances.sample(self._chance())

    @torch.inference_mode()
    def outputs(self, obs: Tensor, mask: Tensor | None = None, fresh: Tensor | None = None) -> dict[str, Tensor]:
        """What the next action follows from: `values` or `logits`, and `probabilities`, each [N, K].

        Probabilities of binary actions are those of 1; continuous actions have `means` and `deviations`.
        The hidden state does not change.
        """
        outputs, _ = self._steps(obs, self._before(obs, fresh))
        if self.kind == "values":
            return {"values": outputs, "probabilities": one_hot(_best(outputs, mask), outputs.shape[-1]).float()}
        return distribution(self.kind, outputs, mask).outputs()

    def _before(self, obs: Tensor, fresh: Tensor | None) -> Tensor:
        """Hidden state [N, H] before this step."""
        rows, hidden = obs.shape[0], self._hidden
        if hidden is None or (hidden.shape[0] != rows and not hidden.shape[1]):
            hidden = self._steps.start(rows)
        if hidden.shape[0] != rows:
            raise TownletError(
                f"the policy remembers {hidden.shape[0]} rows and is shown {rows}",
                f"call start({rows}) before their first step",
            )
        return hidden if fresh is None else hidden.masked_fill(fresh.unsqueeze(1), 0.0)

    def _chance(self) -> torch.Generator:
        if self._generator is None:
            raise TownletError(
                "this policy has no random stream to draw actions from",
                "build it with generator=Streams(seed).torch(name), or act greedily",
            )
        return self._generator


def _best(values: Tensor, mask: Tensor | None) -> Tensor:
    """The valid action of highest value [N]; the first of equals."""
    return (values if mask is None else values.masked_fill(mask.logical_not(), LOWEST)).argmax(-1)
