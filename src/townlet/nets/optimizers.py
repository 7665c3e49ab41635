"""Gradient descent by name, on all weights of a network as one vector; its state goes by the names of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import torch
from torch import Tensor, nn

from townlet.contract.crew import SOLO, Crew
from townlet.contract.restore import copy_into
from townlet.contract.state import State

Kind = Literal["adam", "adamw", "sgd"]
BETAS: Final = (0.9, 0.999)
MOMENTS: Final = ("exp_avg", "exp_avg_sq")
DECAY: Final = {"adam": 0.0, "adamw": 0.01}
# Every so many steps moments that are too small to move a weight become 0. Those of units that died shrink without end,
# and numbers below 1e-38 take a processor many times as long: an update of 256-256 took twice its time because of them.
SWEPT_EVERY: Final = 128
NOTHING: Final = {"exp_avg": 1e-25, "exp_avg_sq": 1e-33}


def as_vector(module: nn.Module) -> Tensor:
    """All weights of the module as one vector [W], of which they become views: what is done to it is done to them."""
    parts = list(module.parameters())
    vector = torch.cat([weight.detach().flatten() for weight in parts])
    for weight, view in zip(parts, _views(vector, parts), strict=True):
        weight.data = view
    return vector


def _views(vector: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """A vector over all weights as one tensor for each of them."""
    pieces = torch.split(vector, [weight.numel() for weight in parts])
    return [piece.view_as(weight) for piece, weight in zip(pieces, parts, strict=True)]


class Optimizer:
    """Steps down the gradient of a module's weights, which become views of one `vector`.

    A step costs a handful of calls however many layers there are: half of the time of a small network's update was
    spent on calls for single weights. Those of a crew add up their gradients, so that all make the same step.
    """

    def __init__(self, kind: Kind, module: nn.Module, lr: float, epsilon: float = 1e-8, crew: Crew = SOLO) -> None:
        self.kind, self._epsilon, self._crew = kind, epsilon, crew
        self._names = [name for name, _ in module.named_parameters()]
        self._parts = list(module.parameters())
        self.vector = as_vector(module)
        self._gradient = torch.zeros_like(self.vector)
        self._moments = {} if kind == "sgd" else {name: torch.zeros_like(self.vector) for name in MOMENTS}
        self._step = torch.zeros((), device=self.vector.device)
        self._steps = 0  # the same, known without asking the device
        self._begun = False
        # On a device it is a tensor: a recorded step reads it anew.
        self._lr: float | Tensor = lr if self.vector.device.type == "cpu" else torch.full_like(self._step, lr)

    @property
    def lr(self) -> float | Tensor:
        """The learning rate."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        if isinstance(self._lr, Tensor):
            self._lr.fill_(value)
        else:
            self._lr = value

    def add(self, outputs: Tensor | Sequence[Tensor], slopes: Sequence[Tensor] | None = None) -> None:
        """The gradient of a loss [], or of one with these slopes by some outputs; beside others since the last step."""
        gradients = torch.autograd.grad(outputs, self._parts, slopes, materialize_grads=True)
        if self.begin():
            self._gradient += torch.cat([gradient.flatten() for gradient in gradients])
        else:
            torch.cat([gradient.flatten() for gradient in gradients], out=self._gradient)

    def begin(self) -> bool:
        """Something is going to be added; whether that is beside other gradients, or in the place of old ones."""
        begun, self._begun = self._begun, True
        return begun

    def gradients(self) -> State:
        """What was followed last, by the names of the weights; live."""
        return dict(zip(self._names, _views(self._gradient, self._parts), strict=True))

    def gradients_of(self, module: nn.Module) -> list[Tensor]:
        """The same for the weights of a part of the network, in their order; live."""
        places = {id(weight): view for weight, view in zip(self._parts, self.gradients().values(), strict=True)}
        return [places[id(weight)] for weight in module.parameters()]

    def forget(self) -> None:
        """No gradient was ever added: for whoever was interrupted before the step."""
        self._begun = False

    @torch.no_grad()
    def step(self, max_norm: float | None = None) -> Tensor:
        """Down what was added, which is scaled to `max_norm` where it is longer. Its norm before that, a scalar."""
        gradient = self._gradient
        if self._crew.size > 1:
            if not self._begun:  # it fell to others alone
                gradient.zero_()
            self._crew.add_up(gradient)
        self._begun = False
        norm: Tensor = torch.linalg.vector_norm(gradient)
        if max_norm is not None:
            gradient *= (max_norm / norm).clamp_(max=1.0)  # of no gradient at all: min(∞, 1)
        if self.kind == "sgd":
            if isinstance(self._lr, Tensor):
                self.vector.sub_(gradient * self._lr)
            else:
                self.vector.sub_(gradient, alpha=self._lr)
            return norm
        mean, square = self._moments.values()
        self._step += 1
        # What torch's own optimizers end in; its functions around it take four times as long as a small network's step.
        (torch._fused_adam_ if self.kind == "adam" else torch._fused_adamw_)(
            [self.vector], [gradient], [mean], [square], [], [self._step], amsgrad=False, lr=self.lr,
            eps=self._epsilon, weight_decay=DECAY[self.kind], maximize=False, beta1=BETAS[0], beta2=BETAS[1],
        )  # fmt: skip
        self._steps += 1
        if self._steps % SWEPT_EVERY == 0 and self.vector.device.type == "cpu":
            self._sweep()
        return norm

    def written(self) -> list[Tensor]:
        """All that a step changes, and the gradient that it follows."""
        return [self.vector, self._gradient, *self._moments.values(), self._step]

    def _sweep(self) -> None:
        for name, moment in self._moments.items():
            moment.masked_fill_(moment.abs() < NOTHING[name], 0.0)

    def state(self) -> State:
        """What is kept of the past, by the names of the weights; live."""
        if not self._moments:
            return {}
        views = {name: _views(moment, self._parts) for name, moment in self._moments.items()}
        of_each = [dict(zip(views, parts, strict=True)) for parts in zip(*views.values(), strict=True)]
        return {name: {"step": self._step, **part} for name, part in zip(self._names, of_each, strict=True)}

    def restore(self, state: State) -> None:
        """Take over a state, in place; refuses one of another network or another kind of optimizer."""
        copy_into(self.state(), state, "optimizer")
        self._steps = int(self._step)
        self.forget()


def weights(module: nn.Module) -> State:
    """The module's parameters and buffers by name, live."""
    return {name: value.detach() for name, value in module.state_dict(keep_vars=True).items()}


def restore_weights(module: nn.Module, state: State, what: str = "network") -> None:
    """Copy weights into the module in place; refuses those of another network."""
    copy_into(weights(module), state, what)
