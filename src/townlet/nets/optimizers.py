"""Optimizers over all parameters of a network as one flat vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import torch
from torch import Tensor, nn

from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.state import State, copy_into
from townlet.nets.kernels import adam_

OptimizerName = Literal["adam", "adamw", "sgd"]
MOMENTS: Final = ("exp_avg", "exp_avg_sq")
WEIGHT_DECAY: Final = {"adam": 0.0, "adamw": 0.01}
# Moments of dead units shrink toward 0, and a CPU is many times slower with denormal numbers (below 1e-38): they can
# double the time of a gradient step. So negligible moments are set to 0 every FLUSH_EVERY steps.
FLUSH_EVERY: Final = 128
NEGLIGIBLE: Final = {"exp_avg": 1e-25, "exp_avg_sq": 1e-33}


def flatten_parameters(module: nn.Module) -> Tensor:
    """Move all parameters of a module into one vector [W], of which they become views."""
    parameters = list(module.parameters())
    vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
    for parameter, view in zip(parameters, _views(vector, parameters), strict=True):
        parameter.data = view
    return vector


def _views(vector: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Views of a vector [W], one for each parameter."""
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=True)]


class FlatOptimizer:
    """SGD, Adam or AdamW on one flat vector: a step costs a handful of calls, however many layers there are.

    The parameters of the module become views of `vector`, and their `.grad` views of one gradient vector, to which
    `loss.backward()` adds. With several processes, gradients are summed over all of them before each step.
    """

    def __init__(self, name: OptimizerName, module: nn.Module, lr: float, group: ProcessGroup = SINGLE_PROCESS) -> None:
        self.name, self._group = name, group
        self._names = [name for name, _ in module.named_parameters()]
        self._parameters = list(module.parameters())
        self.vector = flatten_parameters(module)
        self.gradient = torch.zeros_like(self.vector)
        self._grads = _views(self.gradient, self._parameters)
        for parameter, view in zip(self._parameters, self._grads, strict=True):
            parameter.grad = view
        self._moments = {} if name == "sgd" else {moment: torch.zeros_like(self.vector) for moment in MOMENTS}
        self._step = torch.zeros((), device=self.vector.device)
        self._norm = torch.zeros_like(self._step)  # gradient norm of the last step, before clipping
        self._steps = 0  # equals `_step`, but known without a synchronization
        # On a GPU the learning rate is a tensor, which a captured CUDA graph reads at every replay.
        self._lr: float | Tensor = lr if self.vector.device.type == "cpu" else torch.full_like(self._step, lr)

    @property
    def lr(self) -> float | Tensor:
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        if isinstance(self._lr, Tensor):
            self._lr.fill_(value)
        else:
            self._lr = value

    def zero_grad(self) -> None:
        self.gradient.zero_()

    @torch.no_grad()
    def step(self, max_norm: float | None = None) -> Tensor:
        """Make a gradient step, with the gradient clipped to `max_norm`. Returns its norm [] before clipping."""
        if any(parameter.grad is not view for parameter, view in zip(self._parameters, self._grads, strict=True)):
            raise RuntimeError("a gradient was replaced: call zero_grad() of this optimizer, not of the module")
        gradient = self._group.all_reduce(self.gradient)
        norm: Tensor = torch.linalg.vector_norm(gradient)
        self._norm = norm
        if max_norm is not None:
            gradient *= norm.reciprocal().mul_(max_norm).clamp_(max=1.0)  # a gradient of 0 gives min(∞, 1)
        if self.name == "sgd":
            if isinstance(self._lr, Tensor):
                self.vector.sub_(gradient * self._lr)
            else:
                self.vector.sub_(gradient, alpha=self._lr)
            return norm
        mean, square = self._moments.values()
        self._step += 1
        adam_(
            self.vector, gradient, mean, square, self._step,
            lr=self._lr, weight_decay=WEIGHT_DECAY[self.name], decoupled=self.name == "adamw",
        )  # fmt: skip
        self._steps += 1
        if self._steps % FLUSH_EVERY == 0 and self.vector.device.type == "cpu":
            for name, moment in self._moments.items():
                moment.masked_fill_(moment.abs() < NEGLIGIBLE[name], 0.0)
        return norm

    def part_norms(self, parts: Mapping[str, nn.Module]) -> dict[str, float]:
        """The gradient norm of each part of the module at the last step, before clipping.

        The parts follow each other in the module and have all its parameters.
        """
        sizes = [sum(parameter.numel() for parameter in part.parameters()) for part in parts.values()]
        norms = torch.stack([torch.linalg.vector_norm(piece) for piece in torch.split(self.gradient, sizes)])
        total = torch.linalg.vector_norm(norms)  # smaller than the norm of the step if that was clipped
        unclipped = norms * torch.where(total > 0, self._norm / total, 1.0)
        return dict(zip(parts, unclipped.tolist(), strict=True))

    def mutable_tensors(self) -> list[Tensor]:
        """Every tensor that a step reads and writes, for the capture of a CUDA graph."""
        return [self.vector, self.gradient, *self._moments.values(), self._step]

    def state(self) -> State:
        """Step count and moments by the names of the parameters, not copied."""
        if not self._moments:
            return {}
        views = {name: _views(moment, self._parameters) for name, moment in self._moments.items()}
        moments = [dict(zip(views, parts, strict=True)) for parts in zip(*views.values(), strict=True)]
        return {name: {"step": self._step, **part} for name, part in zip(self._names, moments, strict=True)}

    def restore(self, state: State) -> None:
        """Copy a state in place; raises an error if it is of another network or optimizer."""
        copy_into(self.state(), state, "optimizer")
        self._steps = int(self._step)
        self.zero_grad()


def weights(module: nn.Module) -> State:
    """Parameters and buffers of the module by name, not copied."""
    return {name: value.detach() for name, value in module.state_dict(keep_vars=True).items()}


def restore_weights(module: nn.Module, state: State, what: str = "network") -> None:
    """Copy weights into the module in place; raises an error if they are of another network."""
    copy_into(weights(module), state, what)
