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
        slot, row, here = self._split(places, rows)
        return (slot * rows + row)[here]

    def here(self, places: Tensor, rows: int) -> Tensor:
        """Which of such places [B] are here, bool [B]."""
        return self._split(places, rows)[2]

    def _split(self, places: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Slots, rows counted from the first one here, and which are here [B]. Whole numbers are slow to divide."""
        slot = places // (rows * self.size)
        row = places - slot * (rows * self.size) - self.rank * rows
        return slot, row, (row >= 0) & (row < rows)

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in the same tensor."""
        return tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of the values of all, a scalar."""
        return values.mean() if self.size == 1 else self._moments([values])[0][0]

    def means(self, parts: Tensor) -> Tensor:
        """The mean [P] of each part of [P, S] over all processes."""
        if self.size == 1:
            return parts.mean(1)
        return torch.stack([mean for mean, _ in self._moments(list(parts))])

    def var(self, values: Tensor) -> Tensor:
        """Their variance, a scalar."""
        return values.var(correction=0) if self.size == 1 else self._moments([values])[0][1]

    def std_means(self, parts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Deviation and mean of each part, scalars."""
        if self.size == 1:
            return [torch.std_mean(values, correction=0) for values in parts]
        return [(var.sqrt(), mean) for mean, var in self._moments(parts)]

    def _moments(self, parts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Means and variances, by one sum over all processes: to wait for each other takes longer than to calculate."""
        sums = self.add_up(torch.stack([_sums(values.double()) for values in parts]))
        count, total, squares = sums.unbind(1)
        mean = total / count
        var = (squares / count - mean.square()).clamp_(min=0.0)
        return list(zip(mean.to(parts[0].dtype), var.to(parts[0].dtype), strict=True))


def _sums(values: Tensor) -> Tensor:
    """Their number, their sum and that of their squares [3]."""
    return torch.stack((values.new_tensor(values.numel()), values.sum(), values.square().sum()))


SOLO = Crew()
