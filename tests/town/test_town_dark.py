"""Memory decides in town-dark: scripted players that see only what an agent sees. Scores are printed (pytest -s)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.town.engines.engine import Engine
from townlet.town.feasibility import SurvivalStats, measure_survival
from townlet.town.planner import Player
from townlet.town.world.load import load
from townlet.town.world.tables import World

UP, DOWN, LEFT, RIGHT, INTERACT = range(5)
# The moves of a closed tour of all cells: along the rows, and back through the first column.
TOUR = np.array([
    [RIGHT, RIGHT, RIGHT, DOWN],
    [UP, DOWN, LEFT, LEFT],
    [UP, RIGHT, RIGHT, DOWN],
    [UP, LEFT, LEFT, LEFT],
]).ravel()  # fmt: skip
Ints = NDArray[np.int64]


class Memoryless:
    """Walks the tour. Uses what it finds if no more than `waste` is lost and the other meter lasts `reserve` moves."""

    name = "without memory"

    def __init__(self, world: World, waste: float = 0.0, reserve: float = 1.5) -> None:
        t = world.tables
        self.side, self.waste, self.reserve = world.size[0], waste, reserve
        self.per_move = float(t.decay[0] + t.action_cost[UP, 0])
        self.gain = float(t.effect[0].max() - t.decay[0])  # what a use restores in its step; equal for both

    def act(self, engine: Engine) -> Ints:
        s: dict[str, Any] = engine.peek("cell", "meters", "cell_of")
        at = s["cell"][:, None] == s["cell_of"]
        return np.where(at.any(1) & self.uses(at, s), INTERACT, self.move(at, s)).astype(np.int64)

    def uses(self, at: NDArray[np.bool_], s: dict[str, Any]) -> NDArray[np.bool_]:
        """Whether a player at an affordance uses it."""
        return self.is_useful(at, s["meters"], self.reserve)

    def is_useful(self, at: NDArray[np.bool_], meters: NDArray[np.float32], moves: Any) -> NDArray[np.bool_]:
        own, other = (meters * at).sum(1), (meters * ~at).sum(1)
        useful: NDArray[np.bool_] = (own + self.gain <= 1 + self.waste) & (other > moves * self.per_move)
        return useful

    def move(self, at: NDArray[np.bool_], s: dict[str, Any]) -> Ints:
        moves: Ints = TOUR[s["cell"]]
        return moves


class WithMemory(Memoryless):
    """Walks the tour until it has found both places, then back and forth between them."""

    name = "with memory"
    found: Ints | None = None  # the cell of each affordance [N, 2], −1 where unknown
    last: Ints  # the affordance where each row was last [N]

    def uses(self, at: NDArray[np.bool_], s: dict[str, Any]) -> NDArray[np.bool_]:
        if self.found is None:
            self.found, self.last = np.full(at.shape, -1), np.zeros(len(at), np.int64)
        self.found = np.where(at, s["cell"][:, None], self.found)
        self.last = np.where(at.any(1), at.argmax(1), self.last)
        way = np.where(self.knows_both, np.abs(self.to_other(s["cell"])).sum(0) + 2.1, self.side**2)
        return self.is_useful(at, s["meters"], way)

    @property
    def knows_both(self) -> NDArray[np.bool_]:
        assert self.found is not None
        return np.asarray((self.found >= 0).all(1))

    def to_other(self, cell: Ints) -> Ints:
        """Cells to the right and down [2, N] to the affordance that was not used last."""
        assert self.found is not None
        goal = self.found[np.arange(len(cell)), 1 - self.last]
        return np.stack([goal % self.side - cell % self.side, goal // self.side - cell // self.side])

    def move(self, at: NDArray[np.bool_], s: dict[str, Any]) -> Ints:
        right, down = self.to_other(s["cell"])
        direct = np.select([right > 0, right < 0, down > 0], [RIGHT, LEFT, DOWN], UP)
        return np.where(self.knows_both, direct, TOUR[s["cell"]])


def play(world: World, player: Player) -> SurvivalStats:
    return measure_survival(world, player, rows=500, key=3, limit=1200)


def test_only_a_player_with_memory_survives() -> None:
    world = load("town-dark")
    waste_and_reserve = product((-0.3, -0.2, -0.1, 0.0, 0.04, 0.08), (1.5, 4, 8, 12))
    best = max((play(world, Memoryless(world, *given)) for given in waste_and_reserve), key=lambda stats: stats.mean)
    remembers = play(world, WithMemory(world))
    for stats in (best, remembers):
        print(f"{stats.player}: {stats.until(300).mean:.0f} of 300, {stats.mean:.0f} of 1200")
    assert remembers.reached > 0.99
    assert best.mean < 60
