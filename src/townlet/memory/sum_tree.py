"""Sums over parts of a long list of weights, so that drawing by weight costs O(log n)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from townlet.contract.restore import copy_tensor, part
from townlet.contract.state import State

# Children of a node. A whole batch goes down a level in a dozen tensor operations whose fixed cost dominates, so few
# wide levels beat many of two: a hundred thousand leaves are three levels instead of seventeen.
WIDTH: Final = 64


class SumTree:
    """Weights ≥ 0 at 0 … size − 1, in float64; every node is the exact floating-point sum of its children.

    All levels lie in one flat tensor, leaves first, each padded with zeros to whole groups of `WIDTH`.
    """

    def __init__(self, size: int, device: str = "cpu") -> None:
        groups = [-(-size // WIDTH)]
        while groups[-1] > 1:
            groups.append(-(-groups[-1] // WIDTH))
        lengths = [n * WIDTH for n in groups]
        self._nodes = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self._levels = [level.view(-1, WIDTH) for level in torch.split(self._nodes, lengths)]
        self._leaves = self._levels[0].view(-1)
        self._above = [(below, above.view(-1)) for below, above in pairwise(self._levels)]

    @property
    def total(self) -> Tensor:
        """The sum of all weights, a tensor without dimensions."""
        return self._levels[-1].sum()

    def weights(self, index: Tensor) -> Tensor:
        """The weights [B] at `index` [B]."""
        return self._leaves.index_select(0, index)

    def set(self, index: Tensor, weight: Tensor) -> None:
        """Set the weights [B] float64 at `index` [B]; of several for one place the largest stays."""
        self._leaves.scatter_reduce_(0, index, weight, "amax", include_self=False)
        for below, above in self._above:
            index = index // WIDTH
            above.index_copy_(0, index, below.index_select(0, index).sum(1))

    def fill(self, start: int, stop: int, weight: Tensor) -> None:
        """Set the weights of a stretch: to one value, a tensor without dimensions, or to [stop − start] of them."""
        self._leaves[start:stop] = weight
        for below, above in self._above:
            start, stop = start // WIDTH, -(-stop // WIDTH)
            torch.sum(below[start:stop], 1, out=above[start:stop])

    def find(self, prefix: Tensor) -> Tensor:
        """For each of `prefix` [B] in [0, total): the first place where the running sum of weights exceeds it.

        A place of weight 0 is never found, whatever the rounding, as long as the total is above 0.
        """
        node = torch.zeros(len(prefix), dtype=torch.int64, device=prefix.device)
        rest = prefix.unsqueeze(1)
        for level in reversed(self._levels):
            children = level.index_select(0, node)
            ends = children.cumsum(1)
            # Sums in another order differ in the last bit: stay strictly inside the node, or a child of 0 is taken.
            last = ends[:, -1:]
            rest = torch.minimum(rest, last.nextafter(torch.zeros_like(last)))
            child = torch.searchsorted(ends, rest, right=True)
            rest = (rest - ends.gather(1, child) + children.gather(1, child)).clamp_(min=0.0)
            node = node * WIDTH + child.squeeze(1)
        return node

    def state(self) -> State:
        """All nodes."""
        return {"nodes": self._nodes}

    def restore(self, state: State) -> None:
        """Take over the nodes of a tree of the same size."""
        copy_tensor(self._nodes, part(state, "nodes", "memory"), "nodes")
