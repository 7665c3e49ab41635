"""What a network's outputs say about actions: sample, mode, log-probability and entropy.

Every kind of action is one class with these four methods, so that an algorithm need not know which it has.
"""

from __future__ import annotations

from typing import Final, Protocol

import torch
from torch import Tensor

# Added to a logit it leaves an exponential of exactly 0. Not −inf nor the lowest float: the way back multiplies it by
# the gradient first and by that 0 afterwards.
INVALID: Final = -1e30


class Distribution(Protocol):
    """Actions [...] or [..., A] by the outputs [..., O] of a network."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """Random actions."""

    def mode(self) -> Tensor:
        """The most likely actions; the first of equals."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of these actions."""

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""


class Categorical:
    """One of K actions by logits [..., K]; those that the mask [..., K] excludes have probability 0.

    Inside, actions come first, [K, ...]: with a handful of actions torch's sums over the last dimension take five to
    fifteen times as long. Logits that lie in memory like this already, see `ActorCritic`, are not copied.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        if mask is not None:  # a sum, because filling by a mask takes twice as long, and again on the way back
            logits = torch.add(logits, mask.logical_not().to(logits.dtype), alpha=INVALID)
        self.log_probs = torch.log_softmax(logits.movedim(-1, 0).contiguous(), 0)  # [K, ...]

    @property
    def probs(self) -> Tensor:
        """Probabilities [..., K]."""
        return self.log_probs.exp().movedim(0, -1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """Actions [...] int64, one draw for each."""
        one = self.log_probs[0]
        return self.at(torch.rand(one.shape, generator=generator, device=one.device))

    def at(self, draws: Tensor) -> Tensor:
        """Actions [...] int64 at these points [...] of the cumulative distribution, each in [0, 1).

        One of probability 0 is never taken: the first sum above a point is above the sum before it, and no point
        reaches the last sum, because the highest float32 below 1 takes at least half a bit off.
        """
        sums = self.log_probs.exp().cumsum(0)
        return (sums <= draws * sums[-1]).sum(0)

    def mode(self) -> Tensor:
        """The most likely actions [...] int64; the first of equals."""
        return self.log_probs.argmax(0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of actions [...]."""
        return self.log_probs.gather(0, actions.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats; an excluded action adds exactly 0."""
        return -(self.log_probs.exp() * self.log_probs).sum(0)
