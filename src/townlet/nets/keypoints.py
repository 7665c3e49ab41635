"""Keypoint encoder: positions of things relative to the agent, instead of one value per cell and kind.

A network over cells must learn every position of every thing separately. From keypoints, "a bed is two steps to the
left" is learned once and holds on every map.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.nets.layers import Slice, block_encoders, feature_count
from townlet.nets.spec import KeypointsSpec

TYPED: Final = ("window_typed", "map_typed")  # blocks with one channel per kind of thing


def cell_coordinates(sizes: Sequence[int]) -> Tensor:
    """Coordinates x, y, … of all cells of a grid in the order of an observation (x runs fastest): [axes, cells]."""
    grid = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in reversed(sizes)), indexing="ij")
    return torch.stack([axis.flatten() for axis in reversed(grid)])


class AgentCell(nn.Module):
    """The agent's cell, from its one-hot or its position in [0, 1]: obs [B, D] → x, y, … in cells [B, axes]."""

    def __init__(self, block: Block, sizes: Sequence[int]) -> None:
        super().__init__()
        self.slice, self.onehot = Slice(block.start, block.size), block.name == "position_onehot"
        cells = cell_coordinates(sizes).t().contiguous() if self.onehot else torch.tensor([n - 1.0 for n in sizes])
        self.register_buffer("cells", cells, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        position: Tensor = self.slice(obs)
        cells = self.get_buffer("cells")
        return position @ cells if self.onehot else position * cells


class BlockKeypoints(nn.Module):
    """Keypoints of one typed window or map: obs [B, D], agent's cell [B, axes] → [B, (axes + 1) · kinds].

    For each axis, the offset of every kind from the agent as a fraction of the grid, 0 if it is not seen; then, for
    every kind, 1 if it is seen, else 0. The last kind, "none", is omitted. A wrapped window that is wider than its map
    shows a kind twice; the offset is then the mean of both.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        *grid, channels = block.shape
        self.sizes = tuple(reversed(grid))
        self.slice, self.cells, self.kinds = Slice(block.start, block.size), prod(grid), channels - 1
        self.features = (len(grid) + 1) * self.kinds
        centered = block.name == "window_typed"  # on the agent
        origin = torch.tensor([[n // 2 if centered else 0] for n in self.sizes])
        projection = torch.cat([cell_coordinates(self.sizes) - origin, torch.ones(1, self.cells)])
        self.register_buffer("projection", projection, persistent=False)  # [axes + 1, cells]
        self.register_buffer("scale", 1 / torch.tensor(self.sizes).unsqueeze(-1), persistent=False)

    def forward(self, obs: Tensor, agent: Tensor | None) -> Tensor:
        grid = torch.unflatten(self.slice(obs), -1, (self.cells, self.kinds + 1))
        # Sums of coordinates, then counts: [B, axes + 1, kinds].
        sums = self.get_buffer("projection").matmul(grid)[..., :-1]
        position, count = sums[:, :-1], sums[:, -1:]
        position, seen = position / count.clamp(min=1.0), count.clamp(max=1.0)
        if agent is not None:
            position = position - agent.unsqueeze(-1) * seen
        return torch.cat([position * self.get_buffer("scale"), seen], 1).flatten(1)


class Keypoints(nn.Module):
    """Keypoints of typed windows and maps, and encodings of the other blocks: obs [B, D] → [B, features].

    If there is a map, the one-hot of the agent's cell becomes x and y in [0, 1].
    """

    def __init__(self, spec: KeypointsSpec, layout: ObservationLayout) -> None:
        super().__init__()
        typed = [block for block in layout if block.name in TYPED]
        if not typed:
            raise TownletError(
                f"network 'keypoints' needs a block {' or '.join(TYPED)}; "
                f"the observation has {', '.join(layout.names)}",
                "use mlp, or the observation `shuffled` or `foggy`",
            )
        self.points = nn.ModuleList(BlockKeypoints(block) for block in typed)
        sizes = next((tuple(reversed(b.shape[:-1])) for b in typed if b.name == "map_typed"), ())
        block_sizes = {"position_onehot": prod(sizes), "position": len(sizes)} if sizes else {}
        position = next((block for block in layout if block_sizes.get(block.name) == block.size), None)
        self.agent = AgentCell(position, sizes) if position else None
        onehot = position if position is not None and position.name == "position_onehot" else None
        others = (block for block in layout if block not in typed and block is not onehot)
        self.readers = nn.ModuleList(block_encoders(others, spec))  # checkpoints contain this name
        self.on_map = [block.name == "map_typed" for block in typed]
        self.replaces_onehot = onehot is not None
        self.register_buffer("cell_scale", 1 / torch.tensor(sizes).sub(1).clamp(min=1), persistent=False)
        modules = (*self.points, *self.readers)
        self.features = sum(feature_count(m) for m in modules) + (len(sizes) if self.replaces_onehot else 0)

    def forward(self, obs: Tensor) -> Tensor:
        agent = self.agent(obs) if self.agent is not None else None
        features = [encoder(obs) for encoder in self.readers]
        if agent is not None and self.replaces_onehot:
            features.append(agent * self.get_buffer("cell_scale"))
        for points, on_map in zip(self.points, self.on_map, strict=True):
            features.append(points(obs, agent if on_map else None))
        return torch.cat(features, -1)
