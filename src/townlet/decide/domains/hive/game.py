"""Simulated game of the hive: a queen disturbs a player's workers. Independent of the service.

A tick is a second. Each tick, in this order:

1. The queen gains .5 energy, up to 100.
2. A protector that detects a parasite within 5 chunks goes to the nearest one at 1.5 chunks per tick; otherwise it
   patrols the map. A parasite that is then within its kill range dies at once, before it acts. But a combat parasite
   within 2 chunks strikes first: with probability .4 the protector is down instead, and returns to the player's home
   after 30 ticks.
3. Workers within 3 chunks of a parasite flee from it for 5 ticks. An energy parasite also drains 4 % of the player's
   energy for each worker within 6 chunks.
4. The other workers go to a mining spot at 1 chunk per tick, mine a unit there for 10 ticks, and bring it home: the
   player gains .5 energy and .3 minerals. Then they choose another of the three spots, which are drawn every 100
   ticks. A worker that fled resumes its task.
5. Parasites die 20 ticks after they were spawned.

A spawn fails without enough energy, off the map, or in the chunk of a protector. So a good chunk has many workers
within 3 chunks, more within 6 and no protector within 4, and a bad one is empty or guarded.

Positions are continuous, in chunks; the center of chunk (x, z) is (x + ½, z + ½).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, hypot
from typing import Any, Final, NamedTuple

from townlet.decide.domains.hive.grid import CHUNKS, COSTS, SIDE, TYPES
from townlet.errors import TownletError
from townlet.rng import Streams

Position = tuple[float, float]


def center(chunk: int) -> Position:
    return chunk % SIDE + 0.5, chunk // SIDE + 0.5


GO_OUT, MINE, RETURN, FLEE = range(4)  # activities of a worker
WORKER_SPEED, PROTECTOR_SPEED = 1.0, 1.5  # chunks per tick
MINING_TICKS, FLEEING_TICKS = 10, 5
EDGE: Final = SIDE - 1e-6  # largest coordinate
SPOTS: Final = tuple(center(chunk) for chunk in (45, 67, 123, 189, 234, 312, 378))
HOME: Final = 210  # the chunk to which workers bring what they have mined
QUEEN_START, QUEEN_MAX, QUEEN_GAIN = 50.0, 100.0, 0.5
PLAYER_ENERGY, PLAYER_MINERALS = 100.0, 50.0
UNIT_ENERGY, UNIT_MINERALS = 0.5, 0.3  # gain of the player per mined unit
FLEE_RADIUS: Final = 3.0
DETECT_RANGE, KILL_RANGE, STRIKE_RANGE = 5.0, 2.0, 2.0  # a protector detects and kills, a combat parasite strikes
STRIKE_PROBABILITY: Final = 0.4
DOWN_TICKS: Final = 30
PARASITE_TICKS: Final = 20
DRAIN, DRAIN_REACH = 0.04, 6.0  # share of the player's energy per tick, for each worker in reach
OBSERVATION_TICKS: Final = 5  # between two observations
ACTIVE_SPOTS, SPOT_TICKS = 3, 100  # spots that are mined at a time, and for how long


class Unit:
    """A unit that moves by (dx, dz) in each of the next `ticks_left` ticks."""

    __slots__ = ("dx", "dz", "ticks_left", "x", "z")

    def __init__(self, position: Position) -> None:
        self.x, self.z = position
        self.dx = self.dz = 0.0
        self.ticks_left = 0

    @property
    def chunk(self) -> int:
        return int(self.z) * SIDE + int(self.x)

    def head_to(self, position: Position, speed: float) -> None:
        """Start moving to a position, in equal steps."""
        dx, dz = position[0] - self.x, position[1] - self.z
        self.ticks_left = max(1, ceil(hypot(dx, dz) / speed))
        self.dx, self.dz = dx / self.ticks_left, dz / self.ticks_left


class Worker(Unit):
    """Goes to a mining spot, mines a unit, brings it home, and flees from parasites."""

    __slots__ = ("activity", "home", "loaded", "spot")

    def __init__(self, home: Position) -> None:
        super().__init__(home)
        self.home = self.spot = home
        self.activity, self.loaded = RETURN, False

    def resume(self) -> None:
        self.activity = RETURN if self.loaded else GO_OUT
        self.head_to(self.home if self.loaded else self.spot, WORKER_SPEED)

    def flee(self, position: Position) -> None:
        dx, dz = self.x - position[0], self.z - position[1]
        distance = hypot(dx, dz)
        self.activity, self.ticks_left = FLEE, FLEEING_TICKS
        self.dx, self.dz = (dx / distance, dz / distance) if distance else (WORKER_SPEED, 0.0)

    def tick(self) -> bool:
        """Advance by a tick; returns whether the worker has arrived at home."""
        self.ticks_left -= 1
        if self.activity != MINE:
            self.x, self.z = self.x + self.dx, self.z + self.dz
            if self.activity == FLEE:
                self.x, self.z = min(max(self.x, 0.0), EDGE), min(max(self.z, 0.0), EDGE)
        if self.ticks_left > 0:
            return False
        if self.activity == GO_OUT:
            (self.x, self.z), self.activity, self.ticks_left = self.spot, MINE, MINING_TICKS
            return False
        if self.activity == RETURN:
            self.x, self.z = self.home
            return True
        self.loaded = self.loaded or self.activity == MINE
        self.resume()
        return False


class Protector(Unit):
    """Patrols, and hunts parasites that it detects. It is out of action for the next `down` ticks."""

    __slots__ = ("down",)

    def __init__(self, home: Position) -> None:
        super().__init__(home)
        self.down = 0

    def patrol(self) -> bool:
        """Move one step; returns whether it has arrived and needs another goal."""
        if self.ticks_left <= 0:
            return True
        self.x, self.z, self.ticks_left = self.x + self.dx, self.z + self.dz, self.ticks_left - 1
        return self.ticks_left == 0

    def hunt(self, position: Position, distance: float) -> float:
        """Move one step toward a position at this distance; returns the remaining distance."""
        share = min(1.0, PROTECTOR_SPEED / distance) if distance else 1.0
        self.x, self.z = self.x + share * (position[0] - self.x), self.z + share * (position[1] - self.z)
        self.ticks_left = 0  # the next patrol needs another goal
        return distance * (1 - share)


class Parasite(NamedTuple):
    """A parasite, which stays where it was spawned until tick `until`, or until it is killed."""

    chunk: int
    kind: str
    position: Position
    until: int


STAGES: Final = ((4, 0), (6, 2), (8, 3))  # numbers of workers and protectors, by difficulty


class HiveGame:
    """One territory. The same seed and spawns give the same game. `kill_range` may be changed at any time."""

    def __init__(
        self, seed: int, territory: str = "1", stage: int = len(STAGES) - 1, kill_range: float = KILL_RANGE
    ) -> None:
        if not 0 <= stage < len(STAGES):
            raise TownletError(f"the hive has no stage {stage}", f"name one of 0 to {len(STAGES) - 1}")
        self.territory, self.kill_range, self.time = territory, kill_range, 0
        streams = Streams(seed).child("hive").child(territory)
        self._rng = streams.numpy("game")
        self._random = self._rng.random
        self.hive = int(streams.numpy("hive").integers(CHUNKS))
        self.queen, self.energy, self.minerals = QUEEN_START, PLAYER_ENERGY, PLAYER_MINERALS
        home, (workers, protectors) = center(HOME), STAGES[stage]
        self.workers = [Worker(home) for _ in range(workers)]
        self.protectors = [Protector(home) for _ in range(protectors)]
        self.parasites: list[Parasite] = []
        self._spots = self._draw_spots()
        for worker in self.workers:
            self._send_out(worker)
        self._observed = self._amounts()

    def tick(self) -> None:
        self.time += 1
        if self.time % SPOT_TICKS == 0:
            self._spots = self._draw_spots()
        self.queen = min(QUEEN_MAX, self.queen + QUEEN_GAIN)
        for protector in self.protectors:
            self._tick_protector(protector)
        for parasite in self.parasites:
            self._tick_parasite(parasite)
        for worker in self.workers:
            if worker.tick():
                self._send_out(worker)
        if self.parasites:
            self.parasites = [parasite for parasite in self.parasites if parasite.until > self.time]

    def spawn(self, chunk: int, kind: str) -> bool:
        """Spawn a parasite of type `energy` or `combat`; returns whether that was possible."""
        if not 0 <= chunk < CHUNKS or kind not in TYPES:
            return False
        cost = COSTS[TYPES.index(kind)]
        guarded = any(protector.chunk == chunk for protector in self.protectors if not protector.down)
        if cost > self.queen or guarded:
            return False
        self.queen -= cost
        self.parasites.append(Parasite(chunk, kind, center(chunk), self.time + PARASITE_TICKS))
        return True

    def observe(self) -> dict[str, Any]:
        """The current observation as a message, with some values of the previous one."""
        start, end = self._observed, self._amounts()
        self._observed = end
        protectors = [protector for protector in self.protectors if not protector.down]
        return {
            "type": "observation_data",
            "timestamp": self.time,
            "territoryId": self.territory,
            "miningWorkers": [worker.chunk for worker in self.workers if worker.activity == MINE],
            "workersPresent": [worker.chunk for worker in self.workers if worker.activity != MINE],
            "protectors": [{"x": unit.x, "z": unit.z, "chunkId": unit.chunk} for unit in protectors],
            "parasitesStart": start["parasites"],
            "parasitesEnd": end["parasites"],
            "queenEnergy": {"current": self.queen, "max": QUEEN_MAX},
            "playerEnergy": {"start": start["energy"], "end": end["energy"]},
            "playerMinerals": {"start": start["minerals"], "end": end["minerals"]},
            "hiveChunk": self.hive,
        }

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out a decision and report whether that was possible; any other reply means waiting."""
        if reply["type"] != "spawn_decision":
            return []
        success = self.spawn(reply["spawnChunk"], reply["spawnType"])
        reason = "" if success else "too little energy, or a protector is in that chunk"
        return [{"type": "spawn_result", "decisionId": reply["decisionId"], "success": success, "reason": reason}]

    def advance(self) -> list[dict[str, Any]]:
        """Advance to the next observation; there is nothing to report."""
        for _ in range(OBSERVATION_TICKS):
            self.tick()
        return []

    def _amounts(self) -> dict[str, Any]:
        parasites = [{"chunkId": parasite.chunk, "type": parasite.kind} for parasite in self.parasites]
        return {"energy": self.energy, "minerals": self.minerals, "parasites": parasites}

    def _send_out(self, worker: Worker) -> None:
        """Unload a worker that has arrived at home, and send it to a mining spot."""
        if worker.loaded:
            self.energy += UNIT_ENERGY
            self.minerals += UNIT_MINERALS
        worker.loaded, worker.spot = False, self._spots[int(self._random() * ACTIVE_SPOTS)]
        worker.resume()

    def _draw_spots(self) -> list[Position]:
        return [SPOTS[number] for number in self._rng.permutation(len(SPOTS))[:ACTIVE_SPOTS]]

    def _tick_protector(self, protector: Protector) -> None:
        if protector.down:
            protector.down -= 1
            return
        x, z = protector.x, protector.z
        distances = [(hypot(p.position[0] - x, p.position[1] - z), n) for n, p in enumerate(self.parasites)]
        distance, number = min(distances, default=(DETECT_RANGE, 0))
        if distance >= DETECT_RANGE:
            if protector.patrol():
                protector.head_to(center(int(CHUNKS * self._random())), PROTECTOR_SPEED)
            return
        prey = self.parasites[number]
        if distance >= self.kill_range:
            distance = protector.hunt(prey.position, distance)
        if distance >= self.kill_range:
            return
        if prey.kind == "combat" and distance < STRIKE_RANGE and self._random() < STRIKE_PROBABILITY:
            protector.down, protector.ticks_left = DOWN_TICKS, 0
            protector.x, protector.z = center(HOME)
        else:
            del self.parasites[number]

    def _tick_parasite(self, parasite: Parasite) -> None:
        x, z = parasite.position
        drains = parasite.kind == "energy"
        for worker in self.workers:
            distance = hypot(worker.x - x, worker.z - z)
            if drains and distance < DRAIN_REACH:
                self.energy = floor(100 * (1 - DRAIN) * self.energy) / 100  # so that it can reach 0
            if distance < FLEE_RADIUS and worker.activity != FLEE:
                worker.flee(parasite.position)
