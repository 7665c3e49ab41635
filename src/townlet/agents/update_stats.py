"""Metrics of an update, computed from per-step values that are collected over its minibatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from townlet.distributed.process_group import ProcessGroup

Values = Mapping[str, Tensor]


class UpdateStats:
    """Means of metrics over all minibatches and epochs of an update, and over all processes.

    `names` are the values collected for every step. By default they are the metrics; `metrics_of` can derive others
    from them: it maps {name: [S]} to {name: [S]}, where S is the number of collected steps.
    """

    def __init__(
        self, names: Sequence[str], group: ProcessGroup, device: str | torch.device = "cpu",
        metrics_of: Callable[[Values], Values] | None = None,
    ) -> None:  # fmt: skip
        self.epochs = 0
        self._names, self._group, self._metrics_of = names, group, metrics_of
        self._empty = torch.zeros(0, device=device)  # for `torch.cat` in a process that got no steps
        self._values: list[Values] = []
        self._grad_norms: list[Tensor] = []
        self._epoch_start = 0

    def start_epoch(self) -> None:
        self.epochs += 1
        self._epoch_start = len(self._values)

    def add(self, values: Values) -> None:
        """Add per-step values of a microbatch (a part of a minibatch), each of any shape."""
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
        """Means of all metrics, and of `grad_norm`, which is the same in every process."""
        metrics = self._metrics()
        means = self._group.means(torch.stack(list(metrics.values())))
        values = torch.cat((means, torch.stack(self._grad_norms).mean().view(1))).tolist()  # one synchronization
        return dict(zip([*metrics, "grad_norm"], values, strict=True))

    def _metrics(self, start: int = 0) -> Values:
        parts = {name: [values[name].flatten() for values in self._values[start:]] for name in self._names}
        collected = {name: torch.cat([self._empty, *part]) for name, part in parts.items()}
        return self._metrics_of(collected) if self._metrics_of else collected
