"""Activation functions of hidden layers, in place; their gradients; the fraction of dead units."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from townlet.nets.spec import Activation

# Activations whose gradient follows from their output alone, so that the input can be overwritten.
InPlaceActivation = Literal["relu", "tanh"]

ARM: Final = platform.machine().lower() in ("aarch64", "arm64")
MODULES: Final[dict[str, type[nn.Module]]] = {"tanh": nn.Tanh, "silu": nn.SiLU}
IN_PLACE_OPS: Final[dict[InPlaceActivation, Callable[[Tensor], Tensor]]] = {"relu": torch.relu_, "tanh": torch.tanh_}
# ∂loss/∂input from ∂loss/∂output and the output.
ACTIVATION_GRAD: Final[dict[InPlaceActivation, Callable[[Tensor, Tensor], Tensor]]] = {
    "relu": lambda grad, output: torch.ops.aten.threshold_backward.default(grad, output, 0.0),
    "tanh": torch.ops.aten.tanh_backward.default,
}


def activation_module(activation: Activation, inplace: bool = False) -> nn.Module:
    """The activation as a module. In place, relu makes large batches a tenth faster."""
    return nn.ReLU(inplace=inplace) if activation == "relu" else MODULES[activation]()


def activate_(x: Tensor, activation: InPlaceActivation) -> Tensor:
    """Apply an activation in place.

    On ARM torch's tanh takes 2.5 times as long as NumPy's, which is used unless a gradient is recorded.
    """
    needs_torch = torch.is_grad_enabled() or torch.compiler.is_compiling()
    if ARM and activation == "tanh" and not needs_torch and x.device.type == "cpu" and x.dtype != torch.bfloat16:
        array = x.numpy()
        np.tanh(array, out=array)
        return x
    return IN_PLACE_OPS[activation](x)


@torch.no_grad()
def dead_unit_fraction(network: nn.Module, *inputs: Tensor) -> float | None:
    """The fraction of relu units that are 0 for all inputs [B, …]; None for a network without relu.

    The units of a convolution are its channels. The weights of a dead unit get no gradient.
    """
    alive: list[Tensor] = []

    def record_alive(layer: nn.Module, args: Any, output: Tensor) -> None:
        alive.append((output > 0).transpose(0, 1).flatten(1).any(1))

    hooks = [layer.register_forward_hook(record_alive) for layer in network.modules() if isinstance(layer, nn.ReLU)]
    try:
        if not hooks:
            return None
        network(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return 1 - float(torch.cat(alive).float().mean())
