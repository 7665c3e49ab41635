"""Fused kernels of torch that have no public function; the only module that calls private functions of torch."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

BETAS: Final = (0.9, 0.999)


def adam_(
    parameters: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor, *,
    lr: float | Tensor, epsilon: float, weight_decay: float, decoupled: bool,
) -> None:  # fmt: skip
    """One step of Adam (or with `decoupled` decay AdamW) on a flat vector, in one kernel.

    torch.optim.Adam(fused=True) ends in the same call; what it does before takes four times as long as a step of a
    small network.
    """
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    kernel(
        [parameters], [gradient], [mean], [square], [], [step], amsgrad=False, lr=lr, eps=epsilon,
        weight_decay=weight_decay, maximize=False, beta1=BETAS[0], beta2=BETAS[1],
    )  # fmt: skip


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(x Wᵀ + b) in one kernel on CUDA."""
    return torch._addmm_activation(bias, x, weight.t())
