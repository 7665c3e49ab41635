"""The rules of the hive once more, slowly, as the description has them; and observations to try them on."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from townlet.decide.domain import ObservationBatch, ObservationRow
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import GateSettings

law = settings(deadline=None, derandomize=True, max_examples=15, database=None)


@dataclass(frozen=True)
class Seen:
    """What the queen sees, as a person would write it down."""

    present: tuple[int, ...] = ()
    mining: tuple[int, ...] = ()
    protectors: tuple[int, ...] = ()
    start: tuple[tuple[int, str], ...] = ()  # parasites
    end: tuple[tuple[int, str], ...] = ()
    queen: float = 50.0
    energy: tuple[float, float] = (100.0, 100.0)
    hive: int = 210
    spawned: tuple[tuple[int, float], ...] = ()  # (chunk, time)
    time: float = 0.0

    def message(self) -> dict[str, Any]:
        """The same on the wire."""
        return {
            "type": "observation_data",
            "timestamp": self.time,
            "territoryId": "north",
            "miningWorkers": list(self.mining),
            "workersPresent": list(self.present),
            "protectors": [{"x": c % 20, "z": c // 20, "chunkId": c} for c in self.protectors],
            "parasitesStart": [{"chunkId": c, "type": t} for c, t in self.start],
            "parasitesEnd": [{"chunkId": c, "type": t} for c, t in self.end],
            "queenEnergy": {"current": self.queen, "max": 100.0},
            "playerEnergy": dict(zip(("start", "end"), self.energy, strict=True)),
            "playerMinerals": {"start": 50.0, "end": 50.0},
            "hiveChunk": self.hive,
        }

    def row(self) -> ObservationRow:
        """The same as columns, as the service puts them together."""
        known = DOMAIN.initial_memory()
        for chunk, time in self.spawned:
            known = DOMAIN.memory_after(known, chunk, time)
        return DOMAIN.parse_observation(self.message()).row | known


def scene_of(*seen: Seen) -> ObservationBatch:
    rows = [one.row() for one in seen]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def times_of(*seen: Seen) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([one.time for one in seen])


def distance(a: int, b: int) -> float:
    return math.sqrt((a % 20 - b % 20) ** 2 + (a // 20 - b // 20) ** 2)


def rate(start: float, end: float) -> float:
    return 0.0 if start == end == 0 else max(-1.0, min(1.0, (end - start) / max(start, end)))


def survival(chunk: int, seen: Seen, s: GateSettings) -> float:
    product = 1.0
    for protector in seen.protectors:
        d = distance(chunk, protector)
        if d < s.kill_range:
            threat = 1.0
        elif d < s.threat_reach:
            threat = math.exp(-s.threat_decay * (d - s.kill_range))
        else:
            threat = 0.0
        product *= 1 - threat
    return product


def disruption(chunk: int, kind: str, seen: Seen, s: GateSettings) -> float:
    workers = set(seen.present) | set(seen.mining)
    if kind == "energy":
        if not workers:
            return 0.0
        near = sum(distance(chunk, w) < s.worker_reach for w in workers)
        guarded = sum(distance(chunk, p) < s.protector_reach for p in seen.protectors)
        return max(-1.0, min(1.0, (near - guarded) / len(workers)))
    everybody = [*workers, *seen.protectors]
    if not everybody:
        return 0.0
    return sum(distance(chunk, one) < s.combat_reach for one in everybody) / len(everybody)


def location(chunk: int, seen: Seen, s: GateSettings) -> float:
    if not 0 <= chunk <= 399:
        return -1.0
    workers = set(seen.present) | set(seen.mining)
    if not workers:
        return -s.hive_weight * min(distance(chunk, seen.hive) / s.far, 1)
    return -s.nearest_weight * min(min(distance(chunk, w) for w in workers) / s.far, 1)


def exploration(chunk: int, seen: Seen, s: GateSettings) -> float:
    last = dict(seen.spawned).get(chunk)
    since = math.inf if last is None else seen.time - last
    return s.exploration * min(1.0, since / s.exploration_seconds)


def judged(chunk: int, kind: str, seen: Seen, s: GateSettings) -> tuple[str, float | None, tuple[float, ...]]:
    """The reason, the estimate and its parts."""
    if seen.queen < (s.energy_cost if kind == "energy" else s.combat_cost):
        return "insufficient_energy", None, ()
    parts = (
        survival(chunk, seen, s),
        disruption(chunk, kind, seen, s),
        location(chunk, seen, s),
        exploration(chunk, seen, s),
    )
    p, d, l, x = parts  # noqa: E741
    reward = s.survival_weight * p + s.disruption_weight * d + s.location_weight * l + x
    if not s.enabled:
        return "gate_disabled", reward, parts
    return "positive_reward" if reward > s.threshold + s.margin else "negative_reward", reward, parts


def features(seen: Seen) -> list[float]:
    workers = Counter([*seen.present, *seen.mining])
    out: list[float] = []
    for chunk in sorted(workers, key=lambda c: (-workers[c], c))[:5]:
        out += [chunk / 399, workers[chunk] / workers.total()]
        out.append(seen.protectors.count(chunk) / len(seen.protectors) if seen.protectors else 0.0)
        out += [rate(seen.start.count((chunk, t)), seen.end.count((chunk, t))) for t in ("energy", "combat")]
    out += [0.0] * (25 - len(out))
    return [
        *out,
        min(1.0, math.floor(seen.queen / 15) / 6),
        min(1.0, math.floor(seen.queen / 25) / 4),
        rate(*seen.energy),
    ]


def outcome(before: Seen, after: Seen) -> float:
    rates = (
        rate(len(before.mining), len(after.mining)),
        rate(len(before.protectors), len(after.protectors)),
        rate(before.energy[1], after.energy[1]),
    )
    reward = -0.4 * rates[0] - 0.3 * rates[1] - 0.3 * rates[2]
    reward += 0.2 * len(set(before.mining) - set(after.mining))
    reward += 0.15 * max(0, len(before.protectors) - len(after.protectors))
    if all(abs(r) < 0.05 for r in rates):
        reward -= 0.1
    return max(-1.0, min(1.0, reward))


# Most stand near each other, where ranges matter; some anywhere.
chunk = st.one_of(st.builds(lambda x, z: 20 * z + x, st.integers(6, 14), st.integers(6, 14)), st.integers(0, 399))
parasites = st.lists(st.tuples(chunk, st.sampled_from(("energy", "combat"))), max_size=6).map(tuple)
amount = st.one_of(st.sampled_from((0.0, 14.999, 15.0, 24.9, 25.0, 90.0, 100.0)), st.floats(0, 200))
spawned = st.dictionaries(chunk, st.floats(0, 1000), max_size=5).map(lambda d: tuple(d.items()))


def chunks(most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(chunk, max_size=most).map(tuple)


sights = st.builds(
    Seen, chunks(8), chunks(6), chunks(5), parasites, parasites, amount, st.tuples(amount, amount), chunk, spawned,
    st.floats(1000, 2000),
)  # fmt: skip


@st.composite
def gates(draw: st.DrawFn) -> GateSettings:
    """The usual gate, or one with other numbers everywhere."""
    if draw(st.booleans()):
        return GateSettings(enabled=draw(st.booleans()))
    number = st.floats(0.1, 2)
    reach = st.floats(0, 12)
    kill = draw(reach)
    return GateSettings(
        enabled=draw(st.booleans()), threshold=draw(number), survival_weight=draw(number),
        disruption_weight=draw(number), location_weight=draw(number), kill_range=kill,
        threat_reach=kill + draw(reach), threat_decay=draw(number), worker_reach=draw(reach),
        protector_reach=draw(reach), combat_reach=draw(reach), hive_weight=draw(st.floats(0, 1)),
        nearest_weight=draw(st.floats(0, 1)), far=draw(st.floats(1, 40)), exploration=draw(number),
        exploration_seconds=draw(st.floats(1, 2000)), energy_cost=draw(amount), combat_cost=draw(amount),
    )  # fmt: skip
