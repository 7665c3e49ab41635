"""Where things are, as seen from the agent, instead of one number per cell and kind.

A network over cells must learn every place of every thing anew. One over keypoints has learned "Bed is two steps
to the left" once and for all maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor, nn

from townlet.contract.layout import Block, Layout
from townlet.errors import TownletError
from townlet.nets.layers import Take, readers, width
from townlet.nets.spec import KeypointsSpec

TYPED: Final = ("window_typed", "map_typed")


def cells_of(sizes: Sequence[int]) -> Tensor:
    """Coordinates x, y, … of all cells of a grid in the order of an observation (x runs fastest): [axes, cells]."""
    grid = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in reversed(sizes)), indexing="ij")
    return torch.stack([axis.flatten() for axis in reversed(grid)])


class Place(nn.Module):
    """The agent's own cell, from its one-hot or its share of the way: obs [B, D] → x, y, … in cells [B, axes]."""

    def __init__(self, block: Block, sizes: Sequence[int]) -> None:
        super().__init__()
        self.take, self.onehot = Take(block.start, block.size), block.name == "position_onehot"
        cells = cells_of(sizes).t().contiguous() if self.onehot else torch.tensor([n - 1.0 for n in sizes])
        self.register_buffer("cells", cells, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        shown: Tensor = self.take(obs)
        cells = self.get_buffer("cells")
        return shown @ cells if self.onehot else shown * cells


class Points(nn.Module):
    """Keypoints of one typed window or map: obs [B, D], place [B, axes] → [B, (axes + 1) · kinds].

    For each axis the offset of every kind from the agent in shares of the grid, 0 where it is not seen; then
    for every kind 1 if it is seen. "None", the last kind, has no place. A wrapped window wider than its map
    shows a kind twice, which gives the mean.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        *grid, self.kinds = block.shape
        self.sizes = tuple(reversed(grid))
        self.take, self.cells = Take(block.start, block.size), prod(grid)
        self.features = (len(grid) + 1) * (self.kinds - 1)
        centred = block.name == "window_typed"  # the agent stands in its middle
        middle = torch.tensor([[n // 2 if centred else 0] for n in self.sizes])
        rows = torch.cat([cells_of(self.sizes) - middle, torch.ones(1, self.cells)])
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("share", 1 / torch.tensor(self.sizes).unsqueeze(-1), persistent=False)

    def forward(self, obs: Tensor, place: Tensor | None) -> Tensor:
        shown = torch.unflatten(self.take(obs), -1, (self.cells, self.kinds))
        sums = self.get_buffer("rows").matmul(shown)[..., :-1]  # [B, axes + 1, kinds]: coordinates, then how often
        where, count = sums[:, :-1], sums[:, -1:]
        where, seen = where / count.clamp(min=1.0), count.clamp(max=1.0)
        if place is not None:
            where = where - place.unsqueeze(-1) * seen
        return torch.cat([where * self.get_buffer("share"), seen], 1).flatten(1)


class Keypoints(nn.Module):
    """The observation with typed windows and maps as keypoints, other blocks as they are: obs [B, D] → [B, features].

    Beside a map the one-hot of the own cell becomes x and y in [0, 1].
    """

    def __init__(self, spec: KeypointsSpec, layout: Layout) -> None:
        super().__init__()
        typed = [block for block in layout if block.name in TYPED]
        if not typed:
            raise TownletError(
                f"network 'keypoints' needs a block of {' or '.join(TYPED)}; "
                f"the observation has {', '.join(layout.names)}",
                "use mlp, or the observation `shuffled` or `foggy`",
            )
        self.points = nn.ModuleList(Points(block) for block in typed)
        sizes = next((tuple(reversed(b.shape[:-1])) for b in typed if b.name == "map_typed"), ())
        own = _own_cell(layout, sizes)
        self.place = Place(own, sizes) if own else None
        told = own if own is not None and own.name == "position_onehot" else None
        self.readers = nn.ModuleList(readers((b for b in layout if b not in typed and b is not told), spec))
        self.on_map = [block.name == "map_typed" for block in typed]
        self.tells = told is not None
        self.register_buffer("ends", 1 / torch.tensor(sizes).sub(1).clamp(min=1), persistent=False)
        modules = (*self.points, *self.readers)
        self.features = sum(width(m) for m in modules) + (len(sizes) if self.tells else 0)

    def forward(self, obs: Tensor) -> Tensor:
        place = self.place(obs) if self.place is not None else None
        found = [reader(obs) for reader in self.readers]
        if place is not None and self.tells:
            found.append(place * self.get_buffer("ends"))
        found += [points(obs, place if m else None) for points, m in zip(self.points, self.on_map, strict=True)]
        return torch.cat(found, -1)


def _own_cell(layout: Layout, sizes: Sequence[int]) -> Block | None:
    """The block that tells on which cell of the map the agent stands; none without a map."""
    for block in layout:
        fits = {"position_onehot": block.size == prod(sizes), "position": block.size == len(sizes)}
        if sizes and fits.get(block.name, False):
            return block
    return None
