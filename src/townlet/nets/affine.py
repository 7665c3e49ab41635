"""x Wᵀ + b, bent or not, in the form that the processor at hand is quick at.

What torch multiplies with on ARM takes 1.2 to 6 times as long where the second operand is transposed, as it is in every
linear layer (16 rows by 64 × 64: 185 µs against 32); and its tanh takes 2.5 times as long as that of NumPy.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

Bend = Literal["relu", "tanh"]

ARM: Final = platform.machine().lower() in ("aarch64", "arm64")
FEW: Final = 12  # rows, inputs or outputs: up to so many, both forms take the same time

# Both write over their input, which their slopes do not need.
OVER: Final[dict[Bend, Callable[[Tensor], Tensor]]] = {"relu": torch.relu_, "tanh": torch.tanh_}


def affine(x: Tensor, weight: Tensor, bias: Tensor, bend: Bend | None = None) -> Tensor:
    """x [..., I], weight [O, I], bias [O] → [..., O].

    Where torch is to find the way back or to draw the graph, it is done in torch's own form.
    """
    if not ARM or torch.is_grad_enabled() or x.device.type != "cpu" or torch.compiler.is_compiling():
        made = linear(x, weight, bias)
        return made if bend is None else OVER[bend](made)
    flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    across = weight.t()
    if len(flat) > FEW and min(weight.shape) > FEW:
        across = across.contiguous()
    made = torch.addmm(bias, flat, across)
    if bend == "tanh":
        numbers = made.numpy()
        np.tanh(numbers, out=numbers)
    elif bend == "relu":
        made.relu_()
    return made if x.dim() == 2 else made.view(*x.shape[:-1], -1)
