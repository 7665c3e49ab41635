"""Intrinsic rewards for novelty, count-based or by random network distillation, and maps of novelty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.explore.rnd import RandomNetworkDistillation
from townlet.explore.spec import CountsSpec, RndSpec
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.interfaces.state import State, copy_tensor
from townlet.rng import Streams

# Keys of the state; the attributes have the same names with a leading underscore.
SAVED: Final = ("visits", "offset", "projections", "categorical_projections")
# Blocks with a wider range count as unbounded: their values are rounded to multiples of 1 / bins.
MAX_RANGE: Final = 1e6
CHUNK: Final = 4096  # observations that `novelty_map` evaluates at once


class CountBonus:
    """Count-based intrinsic reward 1 / √visits with hashed states (Tang et al. 2017), in a table of 2^bits counters.

    Values are rounded to bins of their block's range and hashed by SimHash: the signs of `bits` fixed random
    projections form the counter's index in binary, so similar states are likely to share one.
    """

    def __init__(self, spec: CountsSpec, layout: ObservationLayout, streams: Streams, device: str = "cpu") -> None:
        self.spec, generator = spec, streams.torch("counts")
        selected = {layout.block(name).name for name in spec.blocks or layout.names}
        blocks = [block for block in layout if block.name in selected]
        numeric = [block for block in blocks if block.kind != "index"]
        categorical = [block for block in blocks if block.kind == "index"]
        # Without an offset, states whose vectors differ only in length would have the same hash.
        self._offset = torch.randn(spec.bits, generator=generator).to(device)
        self._numeric, self._categorical = (
            torch.tensor([i for block in chosen for i in block.columns], dtype=torch.int64, device=device)
            for chosen in (numeric, categorical)
        )
        self._low, self._step = (tensor.to(device) for tensor in _bins(numeric, spec.bins))
        self._projections = torch.randn((len(self._numeric), spec.bits), generator=generator).to(device)
        # Index blocks have no order: each of their values has its own projection, like a one-hot encoding.
        n_values = [int(block.high - block.low) + 1 for block in categorical for _ in range(block.size)]
        starts = torch.tensor([0, *n_values]).cumsum(0)
        lows = torch.cat([torch.full((b.size,), int(b.low)) for b in categorical]) if categorical else starts[:0]
        self._first = (starts[:-1] - lows).to(device)  # plus a value: the index of its projection
        self._categorical_projections = torch.randn((int(starts[-1]), spec.bits), generator=generator).to(device)
        self._powers = (2 ** torch.arange(spec.bits)).to(device)
        self._visits = torch.zeros(2**spec.bits, dtype=torch.int64, device=device)

    def codes(self, obs: Tensor) -> Tensor:
        """Hash codes [B] int64 of observations [B, D]: the indices of their counters."""
        values = obs if self._numeric.shape[0] == obs.shape[1] else obs.index_select(1, self._numeric)
        levels = (values - self._low).div_(self._step).round_().div_(self.spec.bins)
        projections = torch.addmm(self._offset, levels, self._projections)
        if self._categorical.shape[0]:
            categories = obs.index_select(1, self._categorical).long() + self._first
            projections += self._categorical_projections[categories].sum(1)
        return torch.sum((projections > 0) * self._powers, 1)

    @torch.no_grad()
    def reward(self, obs: Tensor) -> Tensor:
        """1 / √visits [N] of obs [N, D], including these visits of all rows."""
        codes = self.codes(obs)
        self._visits.index_add_(0, codes, torch.ones_like(codes))
        return self._visits[codes].float().rsqrt_()

    @torch.no_grad()
    def novelty(self, obs: Tensor) -> Tensor:
        """1 / √(visits + 1) [B] of obs [B, D], without counting a visit."""
        return (self._visits[self.codes(obs)] + 1).float().rsqrt_()

    def learn(self, obs: Tensor) -> dict[str, float]:
        """Does nothing: visits are counted by `reward`."""
        return {}

    def state(self) -> State:
        return {name: getattr(self, f"_{name}") for name in SAVED}

    def restore(self, state: State) -> None:
        for name in SAVED:
            copy_tensor(getattr(self, f"_{name}"), state[name], f"explore.bonus.{name}")


def _bins(blocks: Sequence[Block], bins: int) -> tuple[Tensor, Tensor]:
    """Lower bounds and bin widths of all values of these blocks, each [d]."""
    low, step = [], []
    for block in blocks:
        bounded = 0 < block.high - block.low <= MAX_RANGE
        low += [block.low if bounded else 0.0] * block.size
        step += [((block.high - block.low) if bounded else 1.0) / bins] * block.size
    return torch.tensor(low), torch.tensor(step)


# Unweighted: agents apply the weight when they compute returns or targets.
IntrinsicReward = RandomNetworkDistillation | CountBonus


def make_intrinsic_reward(
    spec: RndSpec | CountsSpec | None, layout: ObservationLayout, streams: Streams, device: str = "cpu"
) -> IntrinsicReward | None:
    """The intrinsic reward for observations of this layout; None without a spec."""
    if spec is None:
        return None
    if isinstance(spec, RndSpec):
        return RandomNetworkDistillation(spec, layout, streams, device)
    return CountBonus(spec, layout, streams, device)


def novelty_map(bonus: IntrinsicReward, layout: ObservationLayout, observations: Tensor) -> Tensor:
    """Novelty [C] of C cells, from one observation of each [C, D]."""
    if observations.ndim != 2 or observations.shape[1] != layout.size:
        what = f"observations of shape {tuple(observations.shape)} do not fit a layout of {layout.size} values"
        raise TownletError(what, f"pass one observation per cell: [cells, {layout.size}]")
    return torch.cat([bonus.novelty(part) for part in torch.split(observations, CHUNK)])
