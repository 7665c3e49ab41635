"""The mathematics that agents with a policy share: what is made small, its slopes, and how far the policy moved.

Where a loss begins its slope is known, so that the way back need not go through all that it is made of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from townlet.contract.crew import SOLO, Crew

Number = Any  # a float, or where a device has it, a tensor []


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: Number) -> Tensor:
    """−min(r A, clip(r, 1 − ε, 1 + ε) A) [...] with r = exp(log_ratio) (Schulman et al. 2017, eq. 7)."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def surrogate_slope(log_ratio: Tensor, advantage: Tensor, clip: Number) -> Tensor:
    """∂ surrogate / ∂ log_ratio [...]: −r A, and 0 where the clipped term, a constant, is the smaller one."""
    ratio = log_ratio.exp()
    free = ratio * advantage
    return -free * (free <= ratio.clamp_(1 - clip, 1 + clip) * advantage)


def value_error(value: Tensor, before: Tensor, returns: Tensor, clip: Number | None) -> Tensor:
    """(V − R)² [...]; with a clip, at least what it would be had V moved no further than that."""
    error = (value - returns).square()
    if clip is None:
        return error
    return torch.max(error, (before + (value - before).clamp(-clip, clip) - returns).square())


def value_slope(value: Tensor, before: Tensor, returns: Tensor, clip: Number | None) -> Tensor:
    """∂ value_error / ∂ V [...]: 2 (V − R), and 0 where V moved too far and what it would have been is further off."""
    error = value - returns
    if clip is None:
        return 2 * error
    moved = value - before
    flat = (before + moved.clamp(-clip, clip) - returns).square_() > error.square()
    return 2 * error * flat.logical_and_(moved.abs_() > clip).logical_not_()  # within the clip both are equal


def divergence(log_ratio: Tensor) -> Tensor:
    """(r − 1) − log r [...], never below 0: its mean estimates the KL divergence (Schulman 2020, k₃)."""
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(error: Tensor, returns: Tensor, crew: Crew = SOLO) -> Tensor:
    """1 − Var(R − V) / Var R, a scalar: 1 for perfect values, 0 for constant ones; 0 where all returns are equal."""
    spread = crew.var(returns)
    return torch.where(spread > 0, 1 - crew.var(error) / spread, 0.0)
