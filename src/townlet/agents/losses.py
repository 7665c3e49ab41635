"""The mathematics that agents with a policy share: what is made small, and how far the policy moved."""

from __future__ import annotations

import torch
from torch import Tensor


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """−min(r A, clip(r, 1 − ε, 1 + ε) A) [...] with r = exp(log_ratio) (Schulman et al. 2017, eq. 7).

    Where the clipped term is the smaller one it is a constant; said so, the way back is half as long.
    """
    ratio = log_ratio.exp()
    with torch.no_grad():
        clipped = ratio.clamp(1 - clip, 1 + clip) * advantage
        free = (ratio * advantage <= clipped).to(ratio.dtype)
    return -(ratio * (advantage * free) + clipped * (1 - free))


def value_error(value: Tensor, before: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """(V − R)² [...]; with a clip, at least what it would be had V moved no further than that."""
    error = (value - returns).square()
    if clip is None:
        return error
    return torch.max(error, (before + (value - before).clamp(-clip, clip) - returns).square())


def divergence(log_ratio: Tensor) -> Tensor:
    """(r − 1) − log r [...], never below 0: its mean estimates the KL divergence (Schulman 2020, k₃)."""
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(error: Tensor, returns: Tensor) -> Tensor:
    """1 − Var(R − V) / Var R, a scalar: 1 for perfect values, 0 for constant ones; 0 where all returns are equal."""
    spread = returns.var(correction=0)
    return torch.where(spread > 0, 1 - error.var(correction=0) / spread, 0.0)
