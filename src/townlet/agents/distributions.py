"""Probability distributions over actions [...] or [..., A]: categorical with a mask, Bernoulli and Gaussian.

All three have the same methods, and an attribute `action_outputs`, the input of `describe`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.explore.action_selection import normalized_entropy as normalized_categorical_entropy
from townlet.interfaces.vec_env import Actions, Continuous, Discrete

# Outputs of a policy network: logits of one of K actions, logits of binary actions, or means and log
# standard deviations of continuous actions.
DistributionKind = Literal["discrete", "binary", "continuous"]

# Added to a logit, it makes the probability exactly 0. It is not −inf or the lowest float, because the backward pass
# multiplies it by a gradient before it multiplies the result by that 0.
MASKED_LOGIT: Final = -1e30
LOG_2PI: Final = math.log(2 * math.pi)


class Categorical:
    """One of K actions by logits [..., K]; actions that the mask [..., K] excludes have probability 0.

    Internally tensors are [K, ...]: with a handful of actions, torch's sums over the last dimension take five to
    fifteen times as long. Logits in this memory layout, as `ActorCritic` returns them, are not copied.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self._logits = logits
        if mask is not None:  # masked_fill would take twice as long as this sum, here and in the backward pass
            logits = torch.add(logits, mask.logical_not().to(logits.dtype), alpha=MASKED_LOGIT)
        self.action_outputs = self.log_probs = torch.log_softmax(logits.movedim(-1, 0).contiguous(), 0)  # [K, ...]
        self._probs: Tensor | None = None  # not a cached_property: torch cannot compile its lock
        self._cached_entropy: Tensor | None = None

    @property
    def probs_by_action(self) -> Tensor:
        """Probabilities [K, ...], computed once."""
        if self._probs is None:
            self._probs = self.log_probs.exp()
        return self._probs

    @property
    def probs(self) -> Tensor:
        return self.probs_by_action.movedim(0, -1)

    def sample(self, generator: torch.Generator, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Random actions [N] for the rows of this process."""
        shape = group.global_shape(self.log_probs[0].shape)
        return self.icdf(group.local_rows(torch.rand(shape, generator=generator, device=self.log_probs.device)))

    def icdf(self, draws: Tensor) -> Tensor:
        """Inverse cumulative distribution: actions [...] int64 for uniform draws [...] in [0, 1).

        An action of probability 0 is never returned: its cumulative sum equals the one before it, so it is never the
        first to exceed the draw; and a draw times the last sum is always below that sum, even after rounding.
        """
        sums = self.probs_by_action.cumsum(0)
        return (sums <= draws * sums[-1]).sum(0)

    def mode(self) -> Tensor:
        """The most likely actions; ties go to the first."""
        return self.log_probs.argmax(0)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(0, actions.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats, computed once; an excluded action adds exactly 0."""
        if self._cached_entropy is None:
            self._cached_entropy = -(self.probs_by_action * self.log_probs).sum(0)
        return self._cached_entropy

    def normalized_entropy(self, mask: Tensor) -> Tensor:
        """Entropy [N] divided by that of the uniform policy over the valid actions in mask [N, K]: in [0, 1]."""
        return normalized_categorical_entropy(self.probs, mask)

    def outputs(self) -> dict[str, Tensor]:
        """`logits` as the network gave them, and `probabilities`, each [..., K]."""
        return {"logits": self._logits, "probabilities": self.probs}

    @staticmethod
    def describe(action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        """Probabilities (or means) [T, rows, K] of the first `rows` rows, from `action_outputs` of T distributions."""
        return torch.stack([log_probs[:, :rows] for log_probs in action_outputs]).exp().transpose(1, 2)


class Bernoulli:
    """Independent binary actions [..., A], with the logits [..., A] of action 1. Ignores masks."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self.action_outputs = self.logits = logits

    def sample(self, generator: torch.Generator, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        """Binary actions [..., A] int64, one draw for each."""
        draws = torch.rand(group.global_shape(self.logits.shape), generator=generator, device=self.logits.device)
        return (group.local_rows(draws) < self.logits.sigmoid()).long()

    def mode(self) -> Tensor:
        """The more likely of 0 and 1 for each action [..., A] int64; 0 on ties."""
        return (self.logits > 0).long()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability [...] of binary actions [..., A]: log σ(l) of a 1, log σ(−l) of a 0, summed."""
        return -softplus(self.logits * (1 - 2 * actions)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats: the sum of −p log p − (1 − p) log (1 − p) = log (1 + eˡ) − p l."""
        return (softplus(self.logits) - self.logits.sigmoid() * self.logits).sum(-1)

    def normalized_entropy(self, mask: Tensor) -> Tensor:
        return (self.entropy() / (self.logits.shape[-1] * math.log(2))).clamp_(0.0, 1.0)

    def outputs(self) -> dict[str, Tensor]:
        return {"logits": self.logits, "probabilities": self.logits.sigmoid()}

    @staticmethod
    def describe(action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        return torch.stack([logits[:rows] for logits in action_outputs]).sigmoid_()


class Gaussian:
    """Independent Gaussian actions [..., A]; outputs [..., 2A]: means, then log standard deviations. Ignores masks."""

    def __init__(self, outputs: Tensor, mask: Tensor | None = None) -> None:
        self.mean, self.log_std = outputs.chunk(2, -1)
        self.action_outputs = self.mean

    def sample(self, generator: torch.Generator, group: ProcessGroup = SINGLE_PROCESS) -> Tensor:
        draws = torch.randn(group.global_shape(self.mean.shape), generator=generator, device=self.mean.device)
        return torch.addcmul(self.mean, group.local_rows(draws), self.log_std.exp())

    def mode(self) -> Tensor:
        return self.mean.clone()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density [...] of actions [..., A] as sampled, before the environment clips them to their bounds."""
        z = (actions - self.mean) * (-self.log_std).exp()
        return -(0.5 * z.square() + self.log_std + 0.5 * LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy [...] in nats: the sum of log σ + ½ log 2πe. It may be negative."""
        return (self.log_std + 0.5 * (LOG_2PI + 1)).sum(-1)

    def normalized_entropy(self, mask: Tensor) -> Tensor:
        """The geometric mean [N] of the standard deviations, at most 1: there is no uniform policy to compare with."""
        return self.log_std.mean(-1).exp().clamp_(max=1.0)

    def outputs(self) -> dict[str, Tensor]:
        return {"means": self.mean, "stds": self.log_std.exp()}

    @staticmethod
    def describe(action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        return torch.stack([means[:rows] for means in action_outputs])


Distribution = Categorical | Bernoulli | Gaussian
# The class for each kind of actions, built from the outputs [..., O] of a network and a mask.
DISTRIBUTIONS: Final[dict[DistributionKind, type[Distribution]]] = {
    "discrete": Categorical,
    "binary": Bernoulli,
    "continuous": Gaussian,
}


@dataclass(frozen=True)
class DistributionFamily:
    """The family of distributions for an action space, with the shape and dtype of an action."""

    kind: DistributionKind
    shape: tuple[int, ...]  # of the action of one row
    dtype: torch.dtype

    @property
    def output_label(self) -> Literal["probabilities", "means"]:
        return "means" if self.kind == "continuous" else "probabilities"

    def distribution(self, outputs: Tensor, mask: Tensor) -> Distribution:
        return DISTRIBUTIONS[self.kind](outputs, mask)

    def describe(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        return DISTRIBUTIONS[self.kind].describe(action_outputs, rows)


def distribution_family(actions: Actions) -> DistributionFamily:
    """The family for this action space."""
    if isinstance(actions, Discrete):
        return DistributionFamily("discrete", (), torch.int64)
    if isinstance(actions, Continuous):
        return DistributionFamily("continuous", (actions.n,), torch.float32)
    return DistributionFamily("binary", (actions.n,), torch.int64)
