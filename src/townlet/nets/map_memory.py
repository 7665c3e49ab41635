"""Map memory (network `map_memory`): where each kind of thing was last seen, and which cells have been in view.

A gated recurrent layer must learn to store positions, to keep them and to compute with them. Here that is built in, and
only how to act on it is learned. Similar to the Neural Map (Parisotto & Salakhutdinov 2018), with one entry per kind
of thing instead of one per cell.
"""

from __future__ import annotations

from math import prod
from typing import Final

import torch
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.keypoints import BlockKeypoints
from townlet.nets.layers import Slice, block_encoders, feature_count
from townlet.nets.spec import MapMemorySpec

# Blocks of the observation.
WINDOW: Final = "window_typed"
POSITION: Final = "position"


class MapEncoder(nn.Module):
    """Encodes an observation [B, D] → [B, features]: keypoints of the window, the agent's position, other blocks."""

    def __init__(self, spec: MapMemorySpec, layout: ObservationLayout) -> None:
        super().__init__()
        for name in (WINDOW, POSITION):
            if name not in layout:
                what = f"network 'map_memory' needs a block '{name}'; the observation has {', '.join(layout.names)}"
                raise TownletError(what, "use mlp, or the observation `foggy`")
        window, position = layout.block(WINDOW), layout.block(POSITION)
        self.points, self.position = BlockKeypoints(window), Slice(position.start, position.size)
        self.kinds, self.axes = self.points.kinds, position.size
        if not len(window.shape) - 1 == self.axes == len(position.grid):
            what = f"the window has {len(window.shape) - 1} axes, the position {self.axes} in a grid of {position.grid}"
            raise TownletError(
                f"network 'map_memory' needs a window and a position with as many axes as the map, but {what}",
                "use keypoints with `recurrent`",
            )
        self.window, self.grid = self.points.sizes, position.grid
        others = (block for block in layout if block.name not in (WINDOW, POSITION))
        self.encoders = nn.ModuleList(block_encoders(others, spec))
        self.features = self.points.features + self.axes + sum(feature_count(encoder) for encoder in self.encoders)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.cat([self.points(obs, None), self.position(obs), *(encoder(obs) for encoder in self.encoders)], -1)


class MapMemory(nn.Module):
    """The last sighting of each kind, and the cells that were in view: encodings [..., B, E] → [..., B, features].

    The entry of a kind is a flag, its offset from the agent when it was last seen, and the agent's position then. The
    features are the current bearings of all entries, how much of the map is unseen in each direction, and the encoding
    without its keypoints.
    """

    def __init__(self, encoder: MapEncoder) -> None:
        super().__init__()
        self.kinds, self.axes = encoder.kinds, encoder.axes
        self.entry_size, self.cells = 1 + 2 * self.axes, prod(encoder.grid)
        self.entries_size = self.kinds * self.entry_size
        self.hidden_size = self.entries_size + self.cells
        # An encoding is offsets [: flags_at], flags [flags_at : position_at], the agent's position and other features.
        self.flags_at, self.position_at = self.axes * self.kinds, encoder.points.features
        self.features = encoder.features - self.position_at + self.kinds * (self.axes + 2) + 2 * self.axes
        self.grid, self.radius = encoder.grid, [side // 2 for side in encoder.window]
        self.register_buffer("window", torch.tensor(encoder.window), persistent=False)
        self.register_buffer("last_cell", torch.tensor(encoder.grid) - 1.0, persistent=False)
        self.register_buffer("coordinates", torch.arange(max(encoder.grid), dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step x [B, E] or a sequence [T, B, E] from hidden [B, H] → features, hidden after the last step.

        `episode_start` ([B] or [T, B] bool) marks rows that begin an episode, with a hidden state of zeros.
        """
        sequence = x if x.dim() == 3 else x.unsqueeze(0)
        if episode_start is not None:
            episode_start = episode_start.view(sequence.shape[:2])
        before = torch.unflatten(hidden[:, : self.entries_size], -1, (self.kinds, self.entry_size))
        flags = sequence[..., self.flags_at : self.position_at] > 0  # whether each kind is in view [T, B, kinds]
        entries = self._latest(self._sightings(sequence), flags, before, episode_start)
        distances = self._axis_distances(sequence)
        viewed = self._viewed(distances, hidden[:, self.entries_size :], episode_start)
        parts = [
            self._bearings(entries, self._position(sequence)),
            self._unseen(distances, viewed),
            sequence[..., self.position_at :],
        ]
        features = torch.cat(parts, -1)
        return features if x.dim() == 3 else features[0], torch.cat([entries[-1].flatten(1), viewed[-1]], 1)

    def _position(self, x: Tensor) -> Tensor:
        """The agent's position [..., B, 1, axes] in [0, 1]."""
        return x[..., self.position_at : self.position_at + self.axes].unsqueeze(-2)

    def _sightings(self, x: Tensor) -> Tensor:
        """The entry of each kind if it is in view at this step [..., B, kinds, entry]."""
        offset = torch.unflatten(x[..., : self.flags_at], -1, (self.axes, self.kinds)).transpose(-1, -2)
        here = self._position(x).expand_as(offset)
        return torch.cat([torch.ones_like(offset[..., :1]), offset, here], -1)

    def _latest(self, sightings: Tensor, flags: Tensor, before: Tensor, episode_start: Tensor | None) -> Tensor:
        """The latest entry of each kind at every step [T, B, kinds, entry]; those `before` the sequence have time 0."""
        if len(flags) == 1:
            before = before if episode_start is None else before.masked_fill(episode_start.view(-1, 1, 1), 0.0)
            return torch.where(flags.unsqueeze(-1), sightings, before)
        time = torch.arange(1, len(flags) + 1, device=sightings.device).view(-1, 1, 1)
        last = (flags * time).cummax(0).values
        index = last.unsqueeze(-1).expand(-1, -1, -1, self.entry_size)
        latest = torch.cat([before.unsqueeze(0), sightings]).gather(0, index)
        if episode_start is None:
            return latest
        started = (episode_start.unsqueeze(-1) * time).cummax(0).values
        return latest.masked_fill((last < started).unsqueeze(-1), 0.0)

    def _axis_distances(self, x: Tensor) -> list[Tensor]:
        """For each axis, the signed distance of every coordinate from the agent in cells: [..., B, coordinates]."""
        here = (self._position(x).squeeze(-2) * self.get_buffer("last_cell")).round()
        coordinates = self.get_buffer("coordinates")
        return [coordinates[:count] - here[..., axis, None] for axis, count in enumerate(self.grid)]

    def _viewed(self, distances: list[Tensor], before: Tensor, episode_start: Tensor | None) -> Tensor:
        """1 for cells that have been in view up to each step, otherwise 0: [T, B, cells]."""
        in_view = before.new_ones(*distances[0].shape[:-1], 1)
        for distance, radius in zip(reversed(distances), reversed(self.radius), strict=True):  # x runs fastest
            near = (distance.abs() <= radius).to(before.dtype)
            in_view = (in_view.unsqueeze(-1) * near.unsqueeze(-2)).flatten(-2)
        viewed = []
        for step, now in enumerate(in_view.unbind()):  # cummax takes many times as long, and ONNX does not have it
            before = before if episode_start is None else before.masked_fill(episode_start[step].unsqueeze(-1), 0.0)
            before = torch.maximum(before, now)
            viewed.append(before)
        return torch.stack(viewed)

    def _unseen(self, distances: list[Tensor], viewed: Tensor) -> Tensor:
        """Unseen fraction of the map below the agent's coordinate on each axis, then above it: [..., B, 2 · axes]."""
        cells = torch.unflatten(viewed, -1, self.grid[::-1])
        before, after = [], []
        for axis, distance in enumerate(distances):
            other_dims = [-1 - other for other in range(self.axes) if other != axis]
            seen = cells.sum(other_dims) if other_dims else cells
            unseen = 1 / self.grid[axis] - seen / self.cells  # at each coordinate
            before.append((unseen * (distance < 0)).sum(-1))
            after.append((unseen * (distance > 0)).sum(-1))
        return torch.stack([*before, *after], -1)

    def _bearings(self, entries: Tensor, position: Tensor) -> Tensor:
        """Direction and closeness of each kind, zeros for those never seen: [..., B, kinds · (axes + 2)].

        For each kind: the offset by axis, clamped to ±1, times the closeness; the closeness 1 / (1 + steps to it); and
        the flag. Near things give larger inputs than far ones; otherwise, with many entries, a network hardly learns to
        use the thing beside the agent.
        """
        flag, offset, seen_from = torch.split(entries, [1, self.axes, self.axes], -1)
        moved = (position - seen_from) * self.get_buffer("last_cell")
        cells = (offset * self.get_buffer("window") - moved) * flag
        closeness = flag / (1 + cells.abs().sum(-1, keepdim=True))
        return torch.cat([cells.clamp(-1, 1) * closeness, closeness, flag], -1).flatten(-2)
