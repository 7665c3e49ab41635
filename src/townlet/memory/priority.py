"""Prioritized replay, the proportional form (Schaul et al. 2016): surprising transitions are drawn more often."""

from __future__ import annotations

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.config.model import Model
from townlet.config.schedule import Schedule, Scheduled
from townlet.contract.restore import copy_tensor, part
from townlet.contract.state import State
from townlet.memory.sum_tree import SumTree


class PrioritySpec(Model):
    """How strongly replay prefers surprise, and how much of the bias this brings is corrected."""

    alpha: float = Field(
        0.6,
        ge=0,
        le=1,
        description="preference for large errors; raised towards 1 the most surprising transitions crowd out the "
        "others, lowered to 0 all are drawn alike",
    )
    beta: Scheduled = Field(
        Schedule(start=0.4, end=1.0),
        description="correction of the bias by importance weights; at 1 it is complete and often-drawn transitions "
        "move the network less, lowered to 0 there is none and learning is quicker but skewed",
    )
    epsilon: float = Field(
        1e-6,
        gt=0,
        description="added to every error; raised, transitions without surprise are drawn more often, lowered, they "
        "are hardly drawn again",
    )

    @field_validator("beta")
    @classmethod
    def _a_share(cls, beta: float | Schedule) -> float | Schedule:
        ends = (beta.start, beta.end) if isinstance(beta, Schedule) else (beta,)
        if not all(0 <= end <= 1 for end in ends):
            raise ValueError("beta is a share of the correction; give values from 0 to 1")
        return beta


class Priorities:
    """A priority (|error| + ε)^α for each of `size` places. Places never written have 0 and are never drawn."""

    def __init__(self, spec: PrioritySpec, size: int, device: str = "cpu") -> None:
        self.spec = spec
        self._tree = SumTree(size, device)
        self._top = torch.ones((), dtype=torch.float64, device=device)  # the largest so far

    def written(self, start: int, stop: int, void: Tensor | None = None) -> None:
        """New transitions lie at places start … stop − 1: each gets the largest priority, so that it is soon drawn.

        Those that are void [stop − start] get none.
        """
        self._tree.fill(start, stop, self._top if void is None else self._top.masked_fill(void, 0.0))

    def draw(self, batch: int, beta: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Places [B], one from each of B equal shares of the total, and their importance weights [B] (largest 1)."""
        spots = torch.rand(batch, dtype=torch.float64, generator=generator, device=self._top.device)
        spots += torch.arange(batch, device=self._top.device)
        index = self._tree.find(spots * (self._tree.total / batch))
        # (n·P)^−β over its largest: n and the total cancel, and the rarest of the batch has 1.
        priority = self._tree.weights(index)
        return index, (priority / priority.min()).pow_(-beta).float()

    def update(self, index: Tensor, error: Tensor) -> None:
        """The errors [B] at `index` [B] are known now. Where one place stands twice the larger error counts."""
        # What is not finite is the trainer's to report; in the tree it would break the next draw before that.
        size = error.detach().double().nan_to_num_(0.0, 0.0, 0.0).abs_()
        priority = size.add_(self.spec.epsilon).pow_(self.spec.alpha)
        self._tree.set(index, priority)
        torch.maximum(self._top, priority.max(), out=self._top)

    def state(self) -> State:
        """The tree, and the priority of new transitions."""
        return {"tree": self._tree.state(), "top": self._top}

    def restore(self, state: State) -> None:
        """Take over the priorities of as many places."""
        self._tree.restore(part(state, "tree", "memory"))
        copy_tensor(self._top, part(state, "top", "memory"), "top")
