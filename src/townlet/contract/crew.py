"""Several processes that train one run: each has rows of its own, and all of them learn the same.

Whatever is drawn is drawn for the rows of all, by every process, which then takes its part: so a training does not
depend on how many share it, but for the order in which numbers are added up.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Crew:
    """Those who train together. This is the crew of one, to whom nothing of it costs anything.

    Every process must ask for the same sums and means in the same order.
    """

    rank, size = 0, 1

    def all(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape over the rows of all of what is [N, …] here."""
        return (shape[0] * self.size, *shape[1:])

    def mine(self, whole: Tensor) -> Tensor:
        """The rows [N, …] of this process of what was drawn for those of all."""
        if self.size == 1:
            return whole
        rows = len(whole) // self.size
        return whole[self.rank * rows : (self.rank + 1) * rows]

    def places(self, places: Tensor, rows: int) -> Tensor:
        """Of places slot × rows of all + row [B] those that are here [b], as slot × `rows` + row."""
        if self.size == 1:
            return places
        row = places % (rows * self.size) - self.rank * rows
        return (places // (rows * self.size) * rows + row)[self.here(places, rows)]

    def here(self, places: Tensor, rows: int) -> Tensor:
        """Which of such places [B] are here, bool [B]."""
        return places % (rows * self.size) // rows == self.rank

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in the same tensor."""
        return tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of the values of all, a scalar."""
        return values.mean() if self.size == 1 else self._moments(values)[0]

    def var(self, values: Tensor) -> Tensor:
        """Their variance, a scalar."""
        return values.var(correction=0) if self.size == 1 else self._moments(values)[1]

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Their deviation and mean, scalars."""
        if self.size == 1:
            return torch.std_mean(values, correction=0)
        mean, var = self._moments(values)
        return var.sqrt(), mean

    def _moments(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, by one sum over all processes: to wait for each other takes longer than to calculate."""
        wide = values.double()
        sums = self.add_up(torch.stack((wide.new_tensor(wide.numel()), wide.sum(), wide.square().sum())))
        mean = sums[1] / sums[0]
        return mean.to(values.dtype), (sums[2] / sums[0] - mean.square()).clamp_(min=0.0).to(values.dtype)


SOLO = Crew()
