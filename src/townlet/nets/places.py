"""A notebook of places: for each kind of thing, where it was when it was last seen, and where was looked at all.

A gated memory must learn to write down places, to keep them and to reckon with them. Here this is given, and only
what to do with it is learned. In the spirit of the Neural Map (Parisotto and Salakhutdinov 2018), with one note for
each kind instead of one for each cell.
"""

from __future__ import annotations

from math import prod
from typing import Final

import torch
from torch import Tensor, nn

from townlet.contract.layout import Layout
from townlet.errors import TownletError
from townlet.nets.keypoints import Points
from townlet.nets.layers import Take, readers, width
from townlet.nets.spec import PlacesSpec

WINDOW: Final = "window_typed"
POSITION: Final = "position"


class Glance(nn.Module):
    """What can be seen now: obs [B, D] → [B, features], the keypoints of the window first, then the own position."""

    def __init__(self, spec: PlacesSpec, layout: Layout) -> None:
        super().__init__()
        for name in (WINDOW, POSITION):
            if name not in layout:
                what = f"network 'places' needs a block '{name}'; the observation has {', '.join(layout.names)}"
                raise TownletError(what, "use mlp, or the observation `foggy`")
        window, position = layout.block(WINDOW), layout.block(POSITION)
        self.points, self.position = Points(window), Take(position.start, position.size)
        self.kinds, self.axes = self.points.kinds - 1, position.size
        if not len(window.shape) - 1 == self.axes == len(position.grid):
            what = f"the window has {len(window.shape) - 1} axes, the position {self.axes} in a grid of {position.grid}"
            raise TownletError(f"network 'places' cannot reckon here: {what}", "use keypoints with a recurrent part")
        self.window, self.grid = self.points.sizes, position.grid
        self.readers = nn.ModuleList(readers((b for b in layout if b.name not in (WINDOW, POSITION)), spec))
        self.features = self.points.features + self.axes + sum(width(reader) for reader in self.readers)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.cat([self.points(obs, None), self.position(obs), *(read(obs) for read in self.readers)], -1)


class Notebook(nn.Module):
    """Remembers the last sighting of each kind and which cells were looked at: glances [.., B, E] → [.., B, features].

    A note is a flag, the offset of the thing when it was seen, and where the agent stood then. The keypoints of what
    is in sight give way to bearings of all that is noted, and to how much of the map is still unseen on either side.
    """

    def __init__(self, glance: Glance) -> None:
        super().__init__()
        self.kinds, self.axes = glance.kinds, glance.axes
        self.note, self.cells = 1 + 2 * self.axes, prod(glance.grid)
        self.notes = self.kinds * self.note
        self.hidden = self.notes + self.cells
        self.seen, self.place = self.axes * self.kinds, glance.points.features
        self.features = glance.features - self.place + self.kinds * (self.axes + 2) + 2 * self.axes
        self.grid, self.radius = glance.grid, [side // 2 for side in glance.window]
        self.register_buffer("window", torch.tensor(glance.window), persistent=False)
        self.register_buffer("way", torch.tensor(glance.grid) - 1.0, persistent=False)
        self.register_buffer("count", torch.arange(max(glance.grid), dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step x [B, E] or a sequence [T, B, E] from hidden [B, H] → features, hidden after the last step.

        Rows that are fresh ([B] or [T, B] bool) forget everything before that step.
        """
        sequence = x if x.dim() == 3 else x.unsqueeze(0)
        if fresh is not None:
            fresh = fresh.view(sequence.shape[:2])
        before = torch.unflatten(hidden[:, : self.notes], -1, (self.kinds, self.note))
        notes = self._recall(self._notes(sequence), self._flags(sequence), before, fresh)
        ahead = self._from_here(sequence)
        looked = self._looked(ahead, hidden[:, self.notes :], fresh)
        told = [
            self._bearings(notes, self._position(sequence)),
            self._unseen(ahead, looked),
            sequence[..., self.place :],
        ]
        features = torch.cat(told, -1)
        return features if x.dim() == 3 else features[0], torch.cat([notes[-1].flatten(1), looked[-1]], 1)

    def _flags(self, x: Tensor) -> Tensor:
        """Whether each kind is in sight [.., B, kinds]."""
        return x[..., self.seen : self.place] > 0

    def _position(self, x: Tensor) -> Tensor:
        """Where the agent stands [.., B, 1, axes], in shares of the map."""
        return x[..., self.place : self.place + self.axes].unsqueeze(-2)

    def _notes(self, x: Tensor) -> Tensor:
        """What would be noted of each kind now [.., B, kinds, note]."""
        offset = torch.unflatten(x[..., : self.seen], -1, (self.axes, self.kinds)).transpose(-1, -2)
        here = self._position(x).expand_as(offset)
        return torch.cat([torch.ones_like(offset[..., :1]), offset, here], -1)

    def _recall(self, notes: Tensor, flags: Tensor, before: Tensor, fresh: Tensor | None) -> Tensor:
        """The last note of each kind at every step [T, B, kinds, note]; what was known before is the note of time 0."""
        if len(flags) == 1:
            before = before if fresh is None else before.masked_fill(fresh.view(-1, 1, 1), 0.0)
            return torch.where(flags.unsqueeze(-1), notes, before)
        clock = torch.arange(1, len(flags) + 1, device=notes.device).view(-1, 1, 1)
        last = (flags * clock).cummax(0).values
        known = torch.cat([before.unsqueeze(0), notes]).gather(0, last.unsqueeze(-1).expand(-1, -1, -1, self.note))
        if fresh is None:
            return known
        begun = (fresh.unsqueeze(-1) * clock).cummax(0).values
        return known.masked_fill((last < begun).unsqueeze(-1), 0.0)

    def _from_here(self, x: Tensor) -> list[Tensor]:
        """How far every column of the map is from the agent, for each axis [.., B, columns]."""
        here = (self._position(x).squeeze(-2) * self.get_buffer("way")).round()
        count = self.get_buffer("count")
        return [count[:columns] - here[..., axis, None] for axis, columns in enumerate(self.grid)]

    def _looked(self, ahead: list[Tensor], before: Tensor, fresh: Tensor | None) -> Tensor:
        """1 for the cells that were in the window once, at every step [T, B, cells]."""
        sees = before.new_ones(*ahead[0].shape[:-1], 1)
        for away, radius in zip(reversed(ahead), reversed(self.radius), strict=True):  # x runs fastest
            column = (away.abs() <= radius).to(before.dtype)
            sees = (sees.unsqueeze(-1) * column.unsqueeze(-2)).flatten(-2)
        looked = []
        for step, now in enumerate(sees.unbind()):  # cummax takes many times as long, and ONNX does not have it
            before = before if fresh is None else before.masked_fill(fresh[step].unsqueeze(-1), 0.0)
            before = torch.maximum(before, now)
            looked.append(before)
        return torch.stack(looked)

    def _unseen(self, ahead: list[Tensor], looked: Tensor) -> Tensor:
        """The share of the map that was never seen, on either side of the agent by axis: [.., B, 2 axes]."""
        cells = torch.unflatten(looked, -1, self.grid[::-1])
        before, after = [], []
        for axis, away in enumerate(ahead):
            others = [-1 - other for other in range(self.axes) if other != axis]
            seen = cells.sum(others) if others else cells
            columns = 1 / self.grid[axis] - seen / self.cells  # unseen
            before.append((columns * (away < 0)).sum(-1))
            after.append((columns * (away > 0)).sum(-1))
        return torch.stack([*before, *after], -1)

    def _bearings(self, notes: Tensor, position: Tensor) -> Tensor:
        """Where each noted thing is from here, zeros for what was never seen: [.., B, kinds · (axes + 2)].

        Of each kind: the way to turn by axis and how close it is, both as 1 / (1 + steps to go), and the flag. What is
        near speaks louder than what is far, else a network that knows all places hardly hears the one it stands by.
        """
        flag, offset, stood = torch.split(notes, [1, self.axes, self.axes], -1)
        moved = (position - stood) * self.get_buffer("way")
        cells = (offset * self.get_buffer("window") - moved) * flag
        close = flag / (1 + cells.abs().sum(-1, keepdim=True))
        return torch.cat([cells.clamp(-1, 1) * close, close, flag], -1).flatten(-2)
