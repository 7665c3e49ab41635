"""Metrics of an update: per-step terms are collected as they arise and averaged once, at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from townlet.contract.crew import Crew


class UpdateStats:
    """Means of named terms over all minibatches and epochs of an update, and over all processes."""

    def __init__(self, names: Sequence[str], crew: Crew, device: str | torch.device = "cpu") -> None:
        self.epochs = 0
        self._names, self._crew = names, crew
        self._nothing = torch.zeros(0, device=device)  # a process may have no share of any minibatch
        self._terms: list[Mapping[str, Tensor]] = []
        self._grad_norms: list[Tensor] = []
        self._epoch_start = 0

    def start_epoch(self) -> None:
        """Begin the next epoch."""
        self.epochs += 1
        self._epoch_start = len(self._terms)

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Add the terms of a microbatch, each [...] with one value for every step."""
        self._terms.append({name: values.detach() for name, values in terms.items()})

    def add_grad_norm(self, norm: Tensor) -> None:
        """Add the gradient norm [] of a gradient step."""
        self._grad_norms.append(norm)

    @property
    def gradient_steps(self) -> int:
        """Gradient steps so far."""
        return len(self._grad_norms)

    def epoch_mean(self, name: str) -> Tensor:
        """The mean [] of one term over the current epoch."""
        return self._crew.mean(self._joined(name, self._epoch_start))

    def means(self) -> dict[str, float]:
        """The mean of every term, and of the gradient norm."""
        means = self._crew.means([self._joined(name) for name in self._names])
        values = torch.stack([*means, torch.stack(self._grad_norms).mean()]).tolist()  # one copy from the device
        return dict(zip([*self._names, "grad_norm"], values, strict=True))

    def _joined(self, name: str, start: int = 0) -> Tensor:
        return torch.cat([self._nothing, *(terms[name].detach().flatten() for terms in self._terms[start:])])
