"""Losses for learning rewards from logged decisions, of which only the chosen action's reward is known."""

from __future__ import annotations

import torch
from torch import Tensor

from townlet.decide.losses import chosen


def importance_weights(propensity: Tensor, limit: float) -> Tensor:
    """w = min(1 / p, limit) for the propensities [B] of the chosen actions."""
    return propensity.reciprocal().clamp(max=limit)


def doubly_robust_loss(
    predicted: Tensor, model: Tensor, allowed: Tensor, action: Tensor, reward: Tensor, weight: Tensor
) -> Tensor:
    """Doubly robust regression (Dudík, Langford and Li 2011, equation 2): (1/n) Σₐ (f(x, a) − r̃(a))² + (q(x, a) − r)².

    r̃(a) = q(x, a) + 1{a was chosen} w (r − q(x, a)) is an estimate for every allowed action [B, K]. The reward model q,
    `model` [B, K], is fitted to the chosen actions alone; no gradient flows from r̃ into it.
    """
    q = model.detach()
    estimate = q.scatter_add(1, action[:, None], (weight * (reward - chosen(q, action)))[:, None])
    squares = torch.where(allowed, (predicted - estimate) ** 2, 0.0).sum(1) / allowed.sum(1).clamp(min=1)
    return squares + (chosen(model, action) - reward) ** 2
