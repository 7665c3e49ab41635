"""The map: coordinates, moves, windows and distances of a small grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Grid:
    """A grid with one kind of boundary; flat cells count x first."""

    size: tuple[int, ...]
    boundary: str

    @property
    def cells(self) -> int:
        count = 1
        for n in self.size:
            count *= n
        return count

    def coordinates(self, cell: int) -> list[int]:
        """x, y, z of a flat cell."""
        out = []
        for n in self.size:
            out.append(cell % n)
            cell //= n
        return out

    def flat(self, place: list[int]) -> int:
        """The flat cell of x, y, z."""
        cell = 0
        for n, at in zip(reversed(self.size), reversed(place), strict=True):
            cell = cell * n + at
        return cell

    def inside(self, place: list[int]) -> bool:
        return all(0 <= at < n for at, n in zip(place, self.size, strict=True))

    def moves(self) -> list[tuple[int, int]]:
        """(axis, direction) of the move actions: last axis first, minus before plus."""
        return [(axis, by) for axis in reversed(range(len(self.size))) for by in (-1, 1)]

    def at_edge(self, cell: int, axis: int, by: int) -> bool:
        """Whether the move leads off the map."""
        return not 0 <= self.coordinates(cell)[axis] + by < self.size[axis]

    def moved(self, cell: int, axis: int, by: int) -> int:
        """Where the move ends."""
        place, n = self.coordinates(cell), self.size[axis]
        target = place[axis] + by
        if not 0 <= target < n:
            if self.boundary == "wrap":
                target %= n
            elif self.boundary == "bounce" and n > 1:
                target = 1 if target < 0 else n - 2
            else:
                target = place[axis]
        place[axis] = target
        return self.flat(place)

    def window(self, cell: int, side: int) -> list[int | None]:
        """Cells seen around a cell on its level, row by row; None is outside."""
        reach = range(-(side // 2), side // 2 + 1)
        seen: list[int | None] = []
        for offsets in product(reach, repeat=min(2, len(self.size))):
            place = self.coordinates(cell)
            for axis, by in enumerate(reversed(offsets)):
                place[axis] += by
            if self.boundary == "wrap":
                place = [at % n for at, n in zip(place, self.size, strict=True)]
            seen.append(self.flat(place) if self.inside(place) else None)
        return seen

    def steps(self, start: int, goal: int) -> int:
        """Moves from one cell to another."""
        total = 0
        for a, b, n in zip(self.coordinates(start), self.coordinates(goal), self.size, strict=True):
            apart = abs(a - b)
            total += min(apart, n - apart) if self.boundary == "wrap" else apart
        return total

    def longest(self) -> int:
        """Moves between the two cells farthest apart."""
        return sum(n // 2 if self.boundary == "wrap" else n - 1 for n in self.size)
