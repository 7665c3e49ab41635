"""What bends the outputs of plain layers, and its slopes."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

Bend = Literal["relu", "tanh"]

ARM: Final = platform.machine().lower() in ("aarch64", "arm64")

# They write over their input, which their slopes, by slopes behind them and what they made, do not need.
OVER: Final[dict[Bend, Callable[[Tensor], Tensor]]] = {"relu": torch.relu_, "tanh": torch.tanh_}
SLOPE: Final[dict[Bend, Callable[[Tensor, Tensor], Tensor]]] = {
    "relu": lambda slope, bent: torch.ops.aten.threshold_backward.default(slope, bent, 0.0),
    "tanh": torch.ops.aten.tanh_backward.default,
}


def bend_over(x: Tensor, bend: Bend) -> Tensor:
    """Write over x what is made of it.

    On ARM the tanh of torch takes 2.5 times as long as that of NumPy, which can be taken where torch need not know.
    """
    unknown = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
    if ARM and bend == "tanh" and unknown and x.device.type == "cpu":
        numbers = x.numpy()
        np.tanh(numbers, out=numbers)
        return x
    return OVER[bend](x)
