"""Metrics of an update, computed from per-step values that are collected over its minibatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from townlet.distributed.process_group import ProcessGroup

Values = Mapping[str, Tensor]


class UpdateStats:
    """Means of metrics over all minibatches and epochs of an update, and over all processes.

    `names` are the values collected for every step, all of the same length. They are the metrics, unless `metrics_of`
    computes these from all collected values at once, name → [S] to name → [S].
    """

    def __init__(
        self, names: Sequence[str], group: ProcessGroup, device: str | torch.device = "cpu",
        metrics_of: Callable[[Values], Values] = dict,
    ) -> None:  # fmt: skip
        self.epochs = 0
        self._names, self._group, self._metrics_of = names, group, metrics_of
        self._empty = torch.zeros(0, device=device)  # a process may have no part of any minibatch
        self._values: list[Values] = []
        self._grad_norms: list[Tensor] = []
        self._epoch_start = 0

    def start_epoch(self) -> None:
        self.epochs += 1
        self._epoch_start = len(self._values)

    def add(self, values: Values) -> None:
        """Add values of a microbatch, each [...] with one for every step."""
        self._values.append({name: value.detach() for name, value in values.items()})

    def add_grad_norm(self, norm: Tensor) -> None:
        self._grad_norms.append(norm)

    @property
    def gradient_steps(self) -> int:
        return len(self._grad_norms)

    def epoch_mean(self, name: str) -> Tensor:
        """The mean [] of one metric over the current epoch."""
        return self._group.mean(self._metrics(self._epoch_start)[name])

    def means(self) -> dict[str, float]:
        metrics = self._metrics()
        means = self._group.means(torch.stack(list(metrics.values())))
        values = torch.cat((means, torch.stack(self._grad_norms).mean().view(1))).tolist()  # one copy from the device
        return dict(zip([*metrics, "grad_norm"], values, strict=True))

    def _metrics(self, start: int = 0) -> Values:
        parts = {name: [values[name].flatten() for values in self._values[start:]] for name in self._names}
        return self._metrics_of({name: torch.cat([self._empty, *part]) for name, part in parts.items()})
