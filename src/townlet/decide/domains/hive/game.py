"""The game, simulated: a queen disturbs a player's workers. It knows nothing of the service.

A tick is a second. What happens in each, in this order:

1. The queen gains .5 energy, up to 100.
2. A protector who detects a parasite within 5 chunks goes to the nearest one at 1.5 chunks a tick, else anywhere on
   the map. What is then within his kill range dies at once, before it does anything. A combat parasite within 2 of
   him strikes first: with a chance of .4 he is down instead, and comes back to the player's home after 30 ticks.
3. Workers within 3 chunks of a parasite flee from it for 5 ticks. An energy parasite also drains 4 % of the
   player's energy for each worker within 6.
4. The other workers go to a mining spot at 1 chunk a tick, mine a unit there for 10 ticks, and bring it home: the
   player gains .5 energy and .3 minerals. Then they choose a spot again, of three that the player names every 100
   ticks. Whoever fled goes on where he was.
5. Parasites die 20 ticks after they were spawned.

A spawn fails without the energy for it, off the map, or in a chunk where a protector stands. So a good place has many
workers within 3 chunks, more within 6 and no protector within 4, and a bad one is empty or guarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, hypot
from typing import Any, Final, NamedTuple

from townlet.decide.domains.hive.chunks import CHUNKS, COSTS, TYPES
from townlet.decide.domains.hive.units import FLEE, MINE, PROTECTOR_SPEED, Parasite, Place, Protector, Worker, middle
from townlet.errors import TownletError
from townlet.rng import Streams

SPOTS: Final = tuple(middle(chunk) for chunk in (45, 67, 123, 189, 234, 312, 378))
HOME: Final = 210  # where the player's workers bring what they mine
QUEEN_START, QUEEN_MOST, QUEEN_GAIN = 50.0, 100.0, 0.5
PLAYER_ENERGY, PLAYER_MINERALS = 100.0, 50.0
UNIT_ENERGY, UNIT_MINERALS = 0.5, 0.3
FLEE_RADIUS: Final = 3.0
DETECT, KILL, STRIKE = 5.0, 2.0, 2.0  # ranges: a protector detects and kills, a combat parasite strikes
STRIKES: Final = 0.4  # how often it strikes home
DOWN: Final = 30  # ticks
LIFE: Final = 20  # ticks
DRAIN, DRAIN_REACH = 0.04, 6.0  # share of the player's energy, for each worker in reach in each tick
EVERY: Final = 5  # ticks between observations
NAMED, NAMING = 3, 100  # spots that are mined at a time, and for how many ticks


class Stage(NamedTuple):
    """How many the player has."""

    workers: int
    protectors: int


STAGES: Final = (Stage(4, 0), Stage(6, 2), Stage(8, 3))


class Game:
    """One territory. The same seed and the same spawns give the same game. `kill_range` may be changed at any time."""

    def __init__(self, seed: int, territory: str = "1", stage: int = len(STAGES) - 1, kill_range: float = KILL) -> None:
        if not 0 <= stage < len(STAGES):
            raise TownletError(f"the hive has no stage {stage}", f"name one of 0 to {len(STAGES) - 1}")
        self.territory, self.kill_range, self.time = territory, kill_range, 0
        streams = Streams(seed).child("hive").child(territory)
        self._rng = streams.numpy("game")
        self._random = self._rng.random
        self.hive = int(streams.numpy("hive").integers(CHUNKS))
        self.queen, self.energy, self.minerals = QUEEN_START, PLAYER_ENERGY, PLAYER_MINERALS
        home = middle(HOME)
        self.workers = [Worker(home) for _ in range(STAGES[stage].workers)]
        self.protectors = [Protector(home) for _ in range(STAGES[stage].protectors)]
        self.parasites: list[Parasite] = []
        self._spots = self._name_spots()
        for worker in self.workers:
            self._send_out(worker)
        self._seen = self._now()

    def tick(self) -> None:
        """One second more."""
        self.time += 1
        if self.time % NAMING == 0:
            self._spots = self._name_spots()
        self.queen = min(QUEEN_MOST, self.queen + QUEEN_GAIN)
        for protector in self.protectors:
            self._guard(protector)
        for parasite in self.parasites:
            self._disturb(parasite)
        for worker in self.workers:
            if worker.tick():
                self._send_out(worker)
        if self.parasites:
            self.parasites = [p for p in self.parasites if p.until > self.time]

    def spawn(self, chunk: int, kind: str) -> bool:
        """Spawn a parasite of the type `energy` or `combat`; whether that was possible."""
        if not 0 <= chunk < CHUNKS or kind not in TYPES:
            return False
        cost = COSTS[TYPES.index(kind)]
        guarded = any(p.chunk == chunk for p in self.protectors if not p.down)
        if cost > self.queen or guarded:
            return False
        self.queen -= cost
        self.parasites.append(Parasite(chunk, kind, self.time + LIFE))
        return True

    def observe(self) -> dict[str, Any]:
        """What the queen sees, as a message; what it tells of changes begins at the last one."""
        start, self._seen = self._seen, self._now()
        end = self._seen
        return {
            "type": "observation_data",
            "timestamp": self.time,
            "territoryId": self.territory,
            "miningWorkers": [w.chunk for w in self.workers if w.doing == MINE],
            "workersPresent": [w.chunk for w in self.workers if w.doing != MINE],
            "protectors": [{"x": p.x, "z": p.z, "chunkId": p.chunk} for p in self.protectors if not p.down],
            "parasitesStart": start["parasites"],
            "parasitesEnd": end["parasites"],
            "queenEnergy": {"current": self.queen, "max": QUEEN_MOST},
            "playerEnergy": {"start": start["energy"], "end": end["energy"]},
            "playerMinerals": {"start": start["minerals"], "end": end["minerals"]},
            "hiveChunk": self.hive,
        }

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out a decision, and report whether that was possible; all other answers mean to wait."""
        if reply["type"] != "spawn_decision":
            return []
        done = self.spawn(reply["spawnChunk"], reply["spawnType"])
        reason = "" if done else "the queen cannot pay for it, or a protector stands there"
        return [{"type": "spawn_result", "decisionId": reply["decisionId"], "success": done, "reason": reason}]

    def advance(self) -> list[dict[str, Any]]:
        """The seconds until the next observation; there is nothing to report."""
        for _ in range(EVERY):
            self.tick()
        return []

    def _now(self) -> dict[str, Any]:
        parasites = [{"chunkId": p.chunk, "type": p.kind} for p in self.parasites]
        return {"energy": self.energy, "minerals": self.minerals, "parasites": parasites}

    def _send_out(self, worker: Worker) -> None:
        """Take what a worker brought, and give him a spot."""
        if worker.loaded:
            self.energy += UNIT_ENERGY
            self.minerals += UNIT_MINERALS
        worker.loaded, worker.spot = False, self._spots[int(self._random() * NAMED)]
        worker.go_on()

    def _name_spots(self) -> list[Place]:
        return [SPOTS[number] for number in self._rng.permutation(len(SPOTS))[:NAMED]]

    def _guard(self, protector: Protector) -> None:
        """A protector's tick: he is down, hunts, or patrols."""
        if protector.down:
            protector.down -= 1
            return
        x, z = protector.x, protector.z
        near = [(hypot(p.place[0] - x, p.place[1] - z), n) for n, p in enumerate(self.parasites)]
        far, number = min(near, default=(DETECT, 0))
        if far >= DETECT:
            if protector.patrol():
                protector.head(middle(int(CHUNKS * self._random())), PROTECTOR_SPEED)
            return
        prey = self.parasites[number]
        if far >= self.kill_range:
            far = protector.hunt(prey.place, far)
        if far >= self.kill_range:
            return
        if prey.kind == "combat" and far < STRIKE and self._random() < STRIKES:
            protector.down, protector.left = DOWN, 0
            protector.x, protector.z = middle(HOME)
        else:
            del self.parasites[number]

    def _disturb(self, parasite: Parasite) -> None:
        """A parasite's tick."""
        x, z = parasite.place
        drains = parasite.kind == "energy"
        for worker in self.workers:
            far = hypot(worker.x - x, worker.z - z)
            if drains and far < DRAIN_REACH:
                self.energy = floor(100 * (1 - DRAIN) * self.energy) / 100  # so that it can end at nothing
            if far < FLEE_RADIUS and worker.doing != FLEE:
                worker.flee(parasite.place)
