"""Slow reference implementation of the rules of the hive, and a strategy for observations."""

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
from townlet.decide.domains.hive.gate import HiveGateSettings

law = settings(deadline=None, derandomize=True, max_examples=15, database=None)


@dataclass(frozen=True)
class Sample:
    """An observation in readable form."""

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
        """The observation as a message."""
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
        """The observation as columns, as in the service."""
        state = DOMAIN.initial_territory_state()
        for chunk, time in self.spawned:
            state = DOMAIN.territory_state_after(state, chunk, time)
        return DOMAIN.parse_observation(self.message()).row | state


def batch_of(*samples: Sample) -> ObservationBatch:
    rows = [sample.row() for sample in samples]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def times_of(*samples: Sample) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([sample.time for sample in samples])


def distance(a: int, b: int) -> float:
    return math.sqrt((a % 20 - b % 20) ** 2 + (a // 20 - b // 20) ** 2)


def rate(start: float, end: float) -> float:
    return 0.0 if start == end == 0 else max(-1.0, min(1.0, (end - start) / max(start, end)))


def survival(chunk: int, sample: Sample, s: HiveGateSettings) -> float:
    product = 1.0
    for protector in sample.protectors:
        d = distance(chunk, protector)
        if d < s.kill_range:
            threat = 1.0
        elif d < s.threat_reach:
            threat = math.exp(-s.threat_decay * (d - s.kill_range))
        else:
            threat = 0.0
        product *= 1 - threat
    return product


def disruption(chunk: int, kind: str, samples: Sample, s: HiveGateSettings) -> float:
    workers = set(samples.present) | set(samples.mining)
    if kind == "energy":
        if not workers:
            return 0.0
        near = sum(distance(chunk, w) < s.worker_reach for w in workers)
        guarded = sum(distance(chunk, p) < s.protector_reach for p in samples.protectors)
        return max(-1.0, min(1.0, (near - guarded) / len(workers)))
    units = [*workers, *samples.protectors]
    if not units:
        return 0.0
    return sum(distance(chunk, unit) < s.combat_reach for unit in units) / len(units)


def location(chunk: int, sample: Sample, s: HiveGateSettings) -> float:
    if not 0 <= chunk <= 399:
        return -1.0
    workers = set(sample.present) | set(sample.mining)
    if not workers:
        return -s.hive_weight * min(distance(chunk, sample.hive) / s.far, 1)
    return -s.nearest_weight * min(min(distance(chunk, w) for w in workers) / s.far, 1)


def exploration(chunk: int, sample: Sample, s: HiveGateSettings) -> float:
    last = dict(sample.spawned).get(chunk)
    since = math.inf if last is None else sample.time - last
    return s.exploration * min(1.0, since / s.exploration_seconds)


def rated(chunk: int, kind: str, sample: Sample, s: HiveGateSettings) -> tuple[str, float | None, tuple[float, ...]]:
    """Reason, estimate and its components."""
    if sample.queen < (s.energy_cost if kind == "energy" else s.combat_cost):
        return "insufficient_energy", None, ()
    parts = (
        survival(chunk, sample, s),
        disruption(chunk, kind, sample, s),
        location(chunk, sample, s),
        exploration(chunk, sample, s),
    )
    p, d, l, x = parts  # noqa: E741
    reward = s.survival_weight * p + s.disruption_weight * d + s.location_weight * l + x
    if not s.enabled:
        return "gate_disabled", reward, parts
    return "positive_reward" if reward > s.threshold + s.margin else "negative_reward", reward, parts


def features(samples: Sample) -> list[float]:
    workers = Counter([*samples.present, *samples.mining])
    out: list[float] = []
    for chunk in sorted(workers, key=lambda c: (-workers[c], c))[:5]:
        out += [chunk / 399, workers[chunk] / workers.total()]
        out.append(samples.protectors.count(chunk) / len(samples.protectors) if samples.protectors else 0.0)
        out += [rate(samples.start.count((chunk, t)), samples.end.count((chunk, t))) for t in ("energy", "combat")]
    out += [0.0] * (25 - len(out))
    return [
        *out,
        min(1.0, math.floor(samples.queen / 15) / 6),
        min(1.0, math.floor(samples.queen / 25) / 4),
        rate(*samples.energy),
    ]


def outcome(before: Sample, after: Sample) -> float:
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


# Mostly near each other, where ranges matter; some anywhere.
chunk = st.one_of(st.builds(lambda x, z: 20 * z + x, st.integers(6, 14), st.integers(6, 14)), st.integers(0, 399))
parasites = st.lists(st.tuples(chunk, st.sampled_from(("energy", "combat"))), max_size=6).map(tuple)
amount = st.one_of(st.sampled_from((0.0, 14.999, 15.0, 24.9, 25.0, 90.0, 100.0)), st.floats(0, 200))
spawned = st.dictionaries(chunk, st.floats(0, 1000), max_size=5).map(lambda d: tuple(d.items()))


def chunks(most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(chunk, max_size=most).map(tuple)


samples = st.builds(
    Sample, chunks(8), chunks(6), chunks(5), parasites, parasites, amount, st.tuples(amount, amount), chunk, spawned,
    st.floats(1000, 2000),
)  # fmt: skip


@st.composite
def gates(draw: st.DrawFn) -> HiveGateSettings:
    """Default settings, or random ones."""
    if draw(st.booleans()):
        return HiveGateSettings(enabled=draw(st.booleans()))
    number = st.floats(0.1, 2)
    reach = st.floats(0, 12)
    kill = draw(reach)
    return HiveGateSettings(
        enabled=draw(st.booleans()), threshold=draw(number), survival_weight=draw(number),
        disruption_weight=draw(number), location_weight=draw(number), kill_range=kill,
        threat_reach=kill + draw(reach), threat_decay=draw(number), worker_reach=draw(reach),
        protector_reach=draw(reach), combat_reach=draw(reach), hive_weight=draw(st.floats(0, 1)),
        nearest_weight=draw(st.floats(0, 1)), far=draw(st.floats(1, 40)), exploration=draw(number),
        exploration_seconds=draw(st.floats(1, 2000)), energy_cost=draw(amount), combat_cost=draw(amount),
    )  # fmt: skip
