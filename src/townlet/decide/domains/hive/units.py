"""Who moves about in the simulated game: workers and protectors, and parasites, which stay where they were spawned.

Places are exact, in chunks; the middle of chunk (x, z) is (x + ½, z + ½).
"""

from __future__ import annotations

from math import ceil, hypot
from typing import Final

from townlet.decide.domains.hive.chunks import SIDE

OUT, MINE, BACK, FLEE = range(4)  # what a worker does
WORKER_SPEED, PROTECTOR_SPEED = 1.0, 1.5  # chunks a tick
MINING, FLEEING = 10, 5  # ticks
EDGE: Final = SIDE - 1e-6

Place = tuple[float, float]


def middle(chunk: int) -> Place:
    """Where exactly a chunk is."""
    return chunk % SIDE + 0.5, chunk // SIDE + 0.5


class Unit:
    """Somebody on his way: `left` ticks more, so far in each."""

    __slots__ = ("dx", "dz", "left", "x", "z")

    def __init__(self, place: Place) -> None:
        self.x, self.z = place
        self.dx = self.dz = 0.0
        self.left = 0

    @property
    def chunk(self) -> int:
        """Where he stands."""
        return int(self.z) * SIDE + int(self.x)

    def head(self, place: Place, speed: float) -> None:
        """Begin the way to a place, in equal steps."""
        dx, dz = place[0] - self.x, place[1] - self.z
        self.left = max(1, ceil(hypot(dx, dz) / speed))
        self.dx, self.dz = dx / self.left, dz / self.left


class Worker(Unit):
    """Goes out to a mining spot, mines a unit, brings it home, and flees in between."""

    __slots__ = ("doing", "home", "loaded", "spot")

    def __init__(self, home: Place) -> None:
        super().__init__(home)
        self.home = self.spot = home
        self.doing, self.loaded = BACK, False

    def go_on(self) -> None:
        """Home with what is mined, else to the spot."""
        self.doing = BACK if self.loaded else OUT
        self.head(self.home if self.loaded else self.spot, WORKER_SPEED)

    def flee(self, place: Place) -> None:
        """Run straight away from a place."""
        dx, dz = self.x - place[0], self.z - place[1]
        far = hypot(dx, dz)
        self.doing, self.left = FLEE, FLEEING
        self.dx, self.dz = (dx / far, dz / far) if far else (WORKER_SPEED, 0.0)

    def tick(self) -> bool:
        """Live for a tick; whether he is at home now, free for another way."""
        self.left -= 1
        if self.doing != MINE:
            self.x, self.z = self.x + self.dx, self.z + self.dz
            if self.doing == FLEE:
                self.x, self.z = min(max(self.x, 0.0), EDGE), min(max(self.z, 0.0), EDGE)
        if self.left > 0:
            return False
        if self.doing == OUT:
            (self.x, self.z), self.doing, self.left = self.spot, MINE, MINING
            return False
        if self.doing == BACK:
            self.x, self.z = self.home
            return True
        self.loaded = self.loaded or self.doing == MINE
        self.go_on()
        return False


class Protector(Unit):
    """Patrols, and hunts what he detects; `down` ticks more after he was killed."""

    __slots__ = ("down",)

    def __init__(self, home: Place) -> None:
        super().__init__(home)
        self.down = 0

    def patrol(self) -> bool:
        """A step on his round; whether he has arrived and needs another goal."""
        if self.left <= 0:
            return True
        self.x, self.z, self.left = self.x + self.dx, self.z + self.dz, self.left - 1
        return self.left == 0

    def hunt(self, place: Place, far: float) -> float:
        """A step towards a place that is so far away; how far it is then."""
        share = min(1.0, PROTECTOR_SPEED / far) if far else 1.0
        self.x, self.z = self.x + share * (place[0] - self.x), self.z + share * (place[1] - self.z)
        self.left = 0  # the round begins anew afterwards
        return far * (1 - share)


class Parasite:
    """Lives where it was spawned until a tick, or until it is killed."""

    __slots__ = ("chunk", "kind", "place", "until")

    def __init__(self, chunk: int, kind: str, until: int) -> None:
        self.chunk, self.kind, self.place, self.until = chunk, kind, middle(chunk), until
