"""Counting visits where states are too many to list (Tang et al. 2017, "#Exploration")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from townlet.contract.layout import Block, Layout
from townlet.contract.restore import copy_tensor
from townlet.contract.state import State
from townlet.explore.spec import CountsSpec
from townlet.rng import Streams

KEPT: Final = ("visits", "offset", "project", "named")
WIDEST: Final = 1e6  # a range beyond this says nothing of the values; they are rounded to 1 / bins


class Counts:
    """The bonus 1 / √visits. States that look alike share a counter, so the table never grows.

    Values are rounded to bins of their block's range; the signs of `bits` fixed random projections of them
    (SimHash: the smaller the angle, the likelier the same signs) are the number of the counter.
    """

    def __init__(self, spec: CountsSpec, layout: Layout, streams: Streams, device: str = "cpu") -> None:
        self.spec, generator = spec, streams.torch("counts")
        chosen = {layout.block(name).name for name in spec.blocks or layout.names}
        blocks = [block for block in layout if block.name in chosen]
        numbers = [block for block in blocks if block.kind != "index"]
        names = [block for block in blocks if block.kind == "index"]
        # The offset moves the hyperplanes off the origin: states that differ only in length are told apart too.
        self._offset = torch.randn(spec.bits, generator=generator).to(device)
        self._places = _places(numbers).to(device)
        self._low, self._step = (part.to(device) for part in _ranges(numbers, spec.bins))
        self._project = torch.randn((len(self._places), spec.bits), generator=generator).to(device)
        # An index has no order: each of its values gets a projection of its own, as if it were a one-hot.
        counts = [int(block.high - block.low) + 1 for block in names for _ in range(block.size)]
        starts = torch.tensor([0, *counts]).cumsum(0)
        lows = torch.cat([torch.full((b.size,), int(b.low)) for b in names]) if names else starts[:0]
        self._names, self._first = _places(names).to(device), (starts[:-1] - lows).to(device)
        self._named = torch.randn((int(starts[-1]), spec.bits), generator=generator).to(device)
        self._powers = (2 ** torch.arange(spec.bits)).to(device)
        self._visits = torch.zeros(2**spec.bits, dtype=torch.int64, device=device)

    def codes(self, obs: Tensor) -> Tensor:
        """The number of each observation's counter [B] int64."""
        values = obs if self._places.shape[0] == obs.shape[1] else obs.index_select(1, self._places)
        levels = (values - self._low).div_(self._step).round_().div_(self.spec.bins)
        sides = torch.addmm(self._offset, levels, self._project)
        if self._names.shape[0]:
            sides += self._named[obs.index_select(1, self._names).long() + self._first].sum(1)
        return torch.sum((sides > 0) * self._powers, 1)

    @torch.no_grad()
    def reward(self, obs: Tensor) -> Tensor:
        """1 / √visits [N] of obs [N, D], this visit and those of the other rows included."""
        codes = self.codes(obs)
        self._visits.index_add_(0, codes, torch.ones_like(codes))
        return self._visits[codes].float().rsqrt_()

    @torch.no_grad()
    def novelty(self, obs: Tensor) -> Tensor:
        """What one more visit of obs [B, D] would be worth [B]; nothing is counted."""
        return (self._visits[self.codes(obs)] + 1).float().rsqrt_()

    def learn(self, obs: Tensor) -> dict[str, float]:
        """Nothing to learn: counting is done when a state is reached."""
        return {}

    def state(self) -> State:
        """The counters, and the projections they belong to."""
        return {name: getattr(self, f"_{name}") for name in KEPT}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name in KEPT:
            copy_tensor(getattr(self, f"_{name}"), state[name], f"explore.bonus.{name}")


def _places(blocks: Sequence[Block]) -> Tensor:
    """Where the values of these blocks stand in an observation [d]."""
    return torch.tensor([place for block in blocks for place in range(block.start, block.start + block.size)]).long()


def _ranges(blocks: Sequence[Block], bins: int) -> tuple[Tensor, Tensor]:
    """The lowest value and the width of a bin [d] of each value of these blocks."""
    low, step = [], []
    for block in blocks:
        bounded = 0 < block.high - block.low <= WIDEST
        low += [block.low if bounded else 0.0] * block.size
        step += [((block.high - block.low) if bounded else 1.0) / bins] * block.size
    return torch.tensor(low), torch.tensor(step)
