"""One row of a town as people see it: what renderers, players and pages draw from."""

from __future__ import annotations

from dataclasses import dataclass

from townlet.town.world.tables import World


@dataclass(frozen=True)
class Scene:
    """The state of one row at one moment, with what led to it."""

    world: World
    cell: int
    meters: tuple[float, ...]
    hour: int
    age: int
    progress: int  # ticks done of the session under way
    using: int  # its affordance, or len(affordances)
    here: int  # affordance the agent stands on, or len(affordances)
    cell_of: tuple[int, ...]  # where each affordance stands
    mask: tuple[bool, ...]
    action: int | None = None  # that led here; None after a reset
    reward: float = 0.0
    components: tuple[float, ...] = ()
    ended: str = ""  # "" while it lives, else why the episode is over

    def coordinates(self, cell: int) -> tuple[int, ...]:
        """x, y, z of a flat cell."""
        out: list[int] = []
        for n in self.world.size:
            out.append(cell % n)
            cell //= n
        return tuple(out)

    @property
    def dollars(self) -> float:
        """What the agent owns, for people; 0 in a world without currency."""
        if self.world.spec.currency is None:
            return 0.0
        return self.meters[self.world.tables.currency] * self.world.spec.dollars
