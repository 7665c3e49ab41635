"""Losses of the trainer: the policy gradient, and what every loss gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class LossSettings(Protocol):
    """The settings of the trainer that losses use."""

    @property
    def max_importance(self) -> float:
        """Largest importance weight."""

    @property
    def entropy_coef(self) -> float:
        """Entropy coefficient."""


class LossBatch(NamedTuple):
    """B logged decisions, as a loss sees them."""

    inputs: tuple[Tensor, ...]  # of the network
    action: Tensor  # [B], like all that follow
    propensity: Tensor
    reward: Tensor  # training rewards, float64
    weight: Tensor  # importance weights of sampling
    used: Tensor  # whether the decision contributes
    mean_reward: float  # moving average over earlier steps
    newest: int  # number of the newest decision


# (network, batch, settings, options of the domain) → loss, and mean normalized entropy
Loss = Callable[[nn.Module, LossBatch, LossSettings, Any], tuple[Tensor, Tensor]]


def policy_gradient(
    network: nn.Module, batch: LossBatch, learning: LossSettings, options: Any
) -> tuple[Tensor, Tensor]:
    """Policy gradient with importance weights: −mean of min(π(a|x) / p, limit) (r − r̄) log π(a|x), less the entropy."""
    log_prob: Tensor = network(*batch.inputs)
    chosen = log_prob.gather(1, batch.action.unsqueeze(1)).squeeze(1)
    possible = chosen.isfinite()  # with the current gate the action may be impossible
    chosen = torch.where(possible, chosen, 0.0)
    ratio = chosen.detach().exp() / batch.propensity.float()
    weight = ratio.clamp_(max=learning.max_importance)
    weight *= batch.weight
    used = possible & batch.used
    advantage = (batch.reward - batch.mean_reward).float()
    objective = (weight * advantage * chosen * used).sum() / used.sum().clamp(min=1)
    entropy = normalized_entropy(log_prob)
    return -objective - learning.entropy_coef * entropy, entropy


def normalized_entropy(log_prob: Tensor) -> Tensor:
    """Mean entropy of log-probabilities [B, K], divided by that of a uniform choice among the possible actions."""
    safe = torch.where(log_prob.isfinite(), log_prob, 0.0)
    max_entropy = log_prob.isfinite().sum(1).clamp(min=2).log()  # at least log 2, even with a single action
    return (-(log_prob.exp() * safe).sum(1) / max_entropy).mean()


def squared_errors(predicted: Tensor, action: Tensor, reward: Tensor) -> Tensor:
    """(f(x, a) − r)² [B] of the chosen actions [B], for predictions f [B, K].

    SquareCB needs no more (Foster and Rakhlin 2020). Multiplied by importance weights, it is the regression of Bietti,
    Agarwal and Langford (2021, section 2.3), which gives rare actions the weight that they have in the policy's value.
    """
    return (chosen(predicted, action) - reward) ** 2


def chosen(values: Tensor, action: Tensor) -> Tensor:
    """The values [B] of the chosen actions."""
    return values.gather(1, action[:, None]).squeeze(1)
