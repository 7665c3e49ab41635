"""Gradient descent by name: fused steps, clipping, and a state that goes by parameter names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from townlet.contract.restore import copy_into
from townlet.contract.state import State

Kind = Literal["adam", "adamw", "sgd"]
MOMENTS: Final = ("exp_avg", "exp_avg_sq")


def make_optimizer(kind: Kind, module: nn.Module, lr: float, epsilon: float = 1e-8) -> Optimizer:
    """An optimizer over all weights of the module, stepping all of them in one fused call."""
    if kind == "sgd":
        return SGD(module.parameters(), lr=lr, fused=True)
    optimizer = (Adam if kind == "adam" else AdamW)(module.parameters(), lr=lr, eps=epsilon, fused=True)
    for weight in module.parameters():  # torch would make these at the first step; a state must have them before
        zeros = {name: torch.zeros_like(weight, memory_format=torch.preserve_format) for name in MOMENTS}
        optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **zeros}
    return optimizer


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """The learning rate of the next steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def forget_gradients(parameters: Iterable[Tensor]) -> None:
    """Before a backward pass: gradients are written anew, not added to; quicker than `zero_grad`."""
    for weight in parameters:
        weight.grad = None


def clip(parameters: Iterable[Tensor], max_norm: float | None) -> Tensor:
    """Scale all gradients together down to `max_norm`; None leaves them. Their norm before that, a scalar tensor."""
    grads = [weight.grad for weight in parameters if weight.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    if max_norm is not None:
        torch._foreach_mul_(grads, (max_norm / norm).clamp_(max=1.0))  # of no gradient at all: min(∞, 1)
    return norm


def optimizer_state(optimizer: Optimizer, module: nn.Module) -> State:
    """What the optimizer keeps of the past, by the names of the module's parameters."""
    return {
        name: {key: value for key, value in optimizer.state[weight].items() if value is not None}
        for name, weight in module.named_parameters()
        if optimizer.state[weight]
    }


def restore_optimizer(optimizer: Optimizer, module: nn.Module, state: State) -> None:
    """Take over a state, in place; refuses one of another network or another kind of optimizer."""
    copy_into(optimizer_state(optimizer, module), state, "optimizer")


def weights(module: nn.Module) -> State:
    """The module's parameters and buffers by name, live."""
    return {name: value.detach() for name, value in module.state_dict(keep_vars=True).items()}


def restore_weights(module: nn.Module, state: State, what: str = "network") -> None:
    """Copy weights into the module in place; refuses those of another network."""
    copy_into(weights(module), state, what)
