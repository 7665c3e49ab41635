"""Rule 12 on tensors: observation and mask of all rows, built from the world's blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from townlet.town.ops import real
from townlet.town.rules import allowed
from townlet.town.world.tables import BLOCK_KIND, World


def one_hot(index: Tensor, n: int) -> Tensor:
    """[N, ...] → float [N, ..., n]; an index of n or more gives zeros."""
    return (index.unsqueeze(-1) == torch.arange(n, device=index.device)).to(torch.float32)


def _seen(s: Any, kind_at: Tensor, town: Any, w: Any) -> Tensor:
    """Kinds in the window [N, W]."""
    where = town if isinstance(town, int) else town.unsqueeze(-1)
    kinds: Tensor = kind_at[where, w.window_cell[s.cell]]
    return kinds


def _map(s: Any, kind_at: Tensor, town: Any, w: Any) -> Tensor:
    kinds = one_hot(kind_at[:, :-1], w.none + 1).flatten(1)
    return kinds.expand(len(s.cell), -1)


BLOCKS: Final[dict[str, Callable[[Any, Tensor, Any, Any], Tensor]]] = {
    "position_onehot": lambda s, kind_at, town, w: one_hot(s.cell, w.next_cell.shape[1]),
    "position": lambda s, kind_at, town, w: w.position[s.cell],
    "window": lambda s, kind_at, town, w: real(_seen(s, kind_at, town, w) < w.none),
    "window_typed": lambda s, kind_at, town, w: one_hot(_seen(s, kind_at, town, w), w.none + 1).flatten(1),
    "map_typed": _map,
    "meters": lambda s, kind_at, town, w: torch.stack(s.meters, 1),
    "affordance_here": lambda s, kind_at, town, w: one_hot(s.here, w.none + 1),
    "clock": lambda s, kind_at, town, w: w.clock[s.hour],
    "progress": lambda s, kind_at, town, w: (real(s.progress) * w.tick_share[s.using]).unsqueeze(1),
    "age": lambda s, kind_at, town, w: (real(s.age) * w.age_share).unsqueeze(1),
}
assert set(BLOCKS) == set(BLOCK_KIND)


def observe(s: Any, kind_at: Tensor, town: Any, world: World, w: Any) -> tuple[Tensor, Tensor]:
    """Observation [N, D] and mask [N, K]."""
    obs = torch.cat([BLOCKS[name](s, kind_at, town, w) for name in world.layout.names], 1)
    mask = torch.stack([allowed(s, action, kind_at, town, w) for action in range(len(world.actions))], 1)
    return obs, mask
