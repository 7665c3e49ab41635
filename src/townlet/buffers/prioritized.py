"""Prioritized experience replay, proportional variant (Schaul et al. 2016, §3.3)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.config.models import StrictModel
from townlet.config.schedule import FloatOrSchedule, Schedule, endpoints
from townlet.interfaces.state import State, copy_tensor, get_part

# Children of a node. Descending a level takes a dozen tensor operations for a whole batch, whose fixed cost dominates,
# so a few wide levels are faster than many binary ones: 100,000 leaves need 3 levels instead of 17.
FANOUT: Final = 64


class PrioritySpec(StrictModel):
    """Settings of prioritized replay."""

    alpha: float = Field(
        0.6, ge=0, le=1, description="Exponent of priorities. Higher prefers larger TD errors; 0 samples uniformly."
    )
    beta: FloatOrSchedule = Field(
        Schedule(start=0.4, end=1.0),
        description="Exponent of the importance weights. 1 corrects the sampling bias fully, 0 not at all.",
    )
    epsilon: float = Field(
        1e-6, gt=0, description="Added to absolute TD errors. Higher samples small errors more often."
    )

    @field_validator("beta")
    @classmethod
    def _require_fraction(cls, beta: float | Schedule) -> float | Schedule:
        if not all(0 <= end <= 1 for end in endpoints(beta)):
            raise ValueError("beta must be between 0 and 1")
        return beta


class PrioritizedSampler:
    """Samples indices 0 … size − 1 in proportion to their priority (|error| + ε)^α; unwritten ones have priority 0."""

    def __init__(self, spec: PrioritySpec, size: int, device: str = "cpu") -> None:
        self.spec = spec
        self._tree = SumTree(size, device)
        self._max_priority = torch.ones((), dtype=torch.float64, device=device)  # highest so far

    def add(self, start: int, stop: int, excluded: Tensor | None = None) -> None:
        """Give new transitions at start … stop − 1 the highest priority so far, so that they are likely sampled soon.

        Those in `excluded` [stop − start] bool get priority 0 and are never sampled.
        """
        priority = self._max_priority if excluded is None else self._max_priority.masked_fill(excluded, 0.0)
        self._tree.fill(start, stop, priority)

    def sample(self, batch_size: int, beta: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Stratified sample of indices [B] and their importance weights [B], scaled to a maximum of 1.

        The total priority is divided into B equal ranges, and one index is drawn from each (Schaul et al. 2016, §3.3).
        """
        device = self._max_priority.device
        prefix = torch.rand(batch_size, dtype=torch.float64, generator=generator, device=device)
        prefix += torch.arange(batch_size, device=device)
        index = self._tree.find(prefix * (self._tree.total / batch_size))
        # w = (N·P)^−β / max w (§3.4): N and the total cancel, so the smallest priority of the batch has weight 1.
        priority = self._tree.weights(index)
        return index, (priority / priority.min()).pow_(-beta).float()

    def update(self, index: Tensor, error: Tensor) -> None:
        """Set the priorities of `index` [B] from TD errors [B]; for a repeated index the largest error counts."""
        # Non-finite errors count as 0: they would break the tree before the training loop could report them.
        magnitude = error.detach().double().nan_to_num_(0.0, 0.0, 0.0).abs_()
        priority = magnitude.add_(self.spec.epsilon).pow_(self.spec.alpha)
        self._tree.set(index, priority)
        torch.maximum(self._max_priority, priority.max(), out=self._max_priority)

    def state(self) -> State:
        return {"tree": self._tree.state(), "max_priority": self._max_priority}

    def restore(self, state: State) -> None:
        self._tree.restore(get_part(state, "tree", "priorities"))
        copy_tensor(self._max_priority, get_part(state, "max_priority", "priorities"), "max_priority")


class SumTree:
    """Weights ≥ 0 in float64 whose prefix sums are searched in O(log n); every node is the sum of its children.

    Sums are recomputed from the children, never corrected by differences, so rounding errors do not accumulate. All
    levels share one flat tensor, leaves first, each padded with zeros to whole groups of `FANOUT`.
    """

    def __init__(self, size: int, device: str = "cpu") -> None:
        groups = [-(-size // FANOUT)]
        while groups[-1] > 1:
            groups.append(-(-groups[-1] // FANOUT))
        lengths = [n * FANOUT for n in groups]
        self._nodes = torch.zeros(sum(lengths), dtype=torch.float64, device=device)
        self._levels = [level.view(-1, FANOUT) for level in torch.split(self._nodes, lengths)]
        self._leaves = self._levels[0].view(-1)
        self._level_pairs = [(below, above.view(-1)) for below, above in pairwise(self._levels)]

    @property
    def total(self) -> Tensor:
        """The sum of all weights []."""
        return self._levels[-1].sum()

    def weights(self, index: Tensor) -> Tensor:
        """The weights [B] at `index` [B]."""
        return self._leaves.index_select(0, index)

    def set(self, index: Tensor, weight: Tensor) -> None:
        """Set the weights [B] float64 at `index` [B]; for a repeated index the largest is kept."""
        self._leaves.scatter_reduce_(0, index, weight, "amax", include_self=False)
        for below, above in self._level_pairs:
            index = index // FANOUT
            above.index_copy_(0, index, below.index_select(0, index).sum(1))

    def fill(self, start: int, stop: int, weight: Tensor) -> None:
        """Set the weights at start … stop − 1 to one value [] or to values [stop − start]."""
        self._leaves[start:stop] = weight
        for below, above in self._level_pairs:
            start, stop = start // FANOUT, -(-stop // FANOUT)
            torch.sum(below[start:stop], 1, out=above[start:stop])

    def find(self, prefix: Tensor) -> Tensor:
        """For each `prefix` [B] in [0, total): the first index whose cumulative weight exceeds it.

        An index of weight 0 is never returned, whatever the rounding, as long as the total is positive.
        """
        node = torch.zeros(len(prefix), dtype=torch.int64, device=prefix.device)
        rest = prefix.unsqueeze(1)
        for level in reversed(self._levels):
            children = level.index_select(0, node)
            ends = children.cumsum(1)
            # Sums in different orders differ in the last bit: stay strictly within the node, else a child of weight 0
            # could be selected.
            last = ends[:, -1:]
            rest = torch.minimum(rest, last.nextafter(torch.zeros_like(last)))
            child = torch.searchsorted(ends, rest, right=True)
            rest = (rest - ends.gather(1, child) + children.gather(1, child)).clamp_(min=0.0)
            node = node * FANOUT + child.squeeze(1)
        return node

    def state(self) -> State:
        return {"nodes": self._nodes}

    def restore(self, state: State) -> None:
        copy_tensor(self._nodes, get_part(state, "nodes", "sum tree"), "nodes")
