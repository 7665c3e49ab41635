"""The choice of torch's backend for matrix products, and fused kernels without a public function.

This is the only module that calls private functions of torch.
"""

from __future__ import annotations

import platform
from typing import Final

import torch
from torch import Tensor

ADAM_BETAS: Final = (0.9, 0.999)
ADAM_EPSILON: Final = 1e-8


def select_matmul_backend(has_convolutions: bool) -> None:
    """Choose the faster kernels for a network with or without convolutions, in the whole process.

    On ARM under Linux oneDNN multiplies the matrices of small networks up to eight times as slowly as BLAS; only its
    convolutions are faster. A loaded policy makes the same choice, so that its outputs are bit-identical.
    """
    if (platform.system(), platform.machine()) == ("Linux", "aarch64"):
        torch.backends.mkldnn.enabled = has_convolutions  # type: ignore[assignment]


def adam_(
    parameters: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor, *,
    lr: float | Tensor, weight_decay: float, decoupled: bool,
) -> None:  # fmt: skip
    """One step of Adam (or with `decoupled` decay AdamW) on a flat vector, in one kernel.

    torch.optim.Adam(fused=True) makes the same call, but for a small network its overhead takes four times as long as
    the step itself.
    """
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    kernel(
        [parameters], [gradient], [mean], [square], [], [step], amsgrad=False, lr=lr, eps=ADAM_EPSILON,
        weight_decay=weight_decay, maximize=False, beta1=ADAM_BETAS[0], beta2=ADAM_BETAS[1],
    )  # fmt: skip


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(x Wᵀ + b) in one kernel on CUDA."""
    return torch._addmm_activation(bias, x, weight.t())
