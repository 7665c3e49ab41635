"""A notebook of places: for each kind of thing, where it was when it was last seen.

A gated memory must learn to write down places, to keep them and to reckon with them. Here this is given, and only
what to do with it is learned. In the spirit of the Neural Map (Parisotto and Salakhutdinov 2018), with one note for
each kind instead of one for each cell.
"""

from __future__ import annotations

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
        if len(window.shape) - 1 != self.axes:
            what = f"the window has {len(window.shape) - 1} axes and the position {self.axes}"
            raise TownletError(f"network 'places' cannot reckon here: {what}", "use keypoints with a recurrent part")
        self.readers = nn.ModuleList(readers((b for b in layout if b.name not in (WINDOW, POSITION)), spec))
        self.features = self.points.features + self.axes + sum(width(reader) for reader in self.readers)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.cat([self.points(obs, None), self.position(obs), *(read(obs) for read in self.readers)], -1)


class Notebook(nn.Module):
    """Remembers the last sighting of each kind: glances [.., B, E] → [.., B, features].

    A note is a flag, the offset of the thing when it was seen, and where the agent stood then. Told are the flag,
    that offset, and the way the agent has made since: together they say where the thing is from here.
    """

    def __init__(self, glance: Glance) -> None:
        super().__init__()
        self.kinds, self.axes = glance.kinds, glance.axes
        self.note = 1 + 2 * self.axes
        self.hidden = self.kinds * self.note
        self.seen, self.place = self.axes * self.kinds, glance.points.features
        self.features = glance.features + self.hidden

    def forward(self, x: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step x [B, E] or a sequence [T, B, E] from hidden [B, H] → features, hidden after the last step.

        Rows that are fresh ([B] or [T, B] bool) forget everything before that step.
        """
        before = torch.unflatten(hidden, -1, (self.kinds, self.note))
        if x.dim() == 2:
            if fresh is not None:
                before = before.masked_fill(fresh.view(-1, 1, 1), 0.0)
            notes = last = torch.where(self._flags(x).unsqueeze(-1), self._notes(x), before)
        else:
            notes = self._recall(self._notes(x), self._flags(x), before, fresh)
            last = notes[-1]
        return torch.cat([x, self._told(notes, self._position(x))], -1), last.flatten(1)

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
        steps, rows = flags.shape[:2]
        clock = torch.arange(1, steps + 1, device=notes.device).view(-1, 1, 1)
        last = (flags * clock).cummax(0).values
        known = torch.cat([before.unsqueeze(0), notes]).gather(0, last.unsqueeze(-1).expand(-1, -1, -1, self.note))
        if fresh is None:
            return known
        begun = (fresh.unsqueeze(-1) * clock).cummax(0).values.expand(steps, rows, self.kinds)
        return known.masked_fill((last < begun).unsqueeze(-1), 0.0)

    def _told(self, notes: Tensor, position: Tensor) -> Tensor:
        """Flag, offset when seen, and the way since then, of each kind [.., B, H]; zeros for what was never seen."""
        flag, offset, stood = torch.split(notes, [1, self.axes, self.axes], -1)
        return torch.cat([flag, offset, (position - stood) * flag], -1).flatten(-2)
