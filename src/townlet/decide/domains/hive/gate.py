"""The gate: what an action is worth by rule of thumb, and whether it may be carried out.

The estimate is R = .4 · survival + .5 · disruption + .1 · location + exploration. All numbers are float64 and every
step is elementwise or exact, so that one action alone gets the very numbers that it has in the table of all.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from townlet.config.model import Model
from townlet.decide.domain import Scene, Verdicts
from townlet.decide.domains.hive.chunks import (
    ACTIONS,
    CHUNKS,
    COMBAT,
    COSTS,
    DISTANCE,
    ENERGY,
    FAR,
    NOBODY,
    Tables,
    tables,
)

REASONS: Final = ("positive_reward", "negative_reward", "insufficient_energy", "gate_disabled")
POSITIVE, NEGATIVE, INSUFFICIENT, DISABLED = range(4)
OF_SENT: Final = (np.uint8(POSITIVE), np.uint8(NEGATIVE))
COMPONENTS: Final = ("survival", "disruption", "location", "exploration")
NOWHERE: Final = -1.0  # the location of a chunk that does not exist

Numbers = NDArray[np.float64]


class GateSettings(Model):
    """What the gate believes of the game, and what it lets pass."""

    enabled: bool = Field(True, description="Judge actions. Off, whatever can be paid for is sent.")
    threshold: float = Field(
        0.6, ge=-2, le=2, description="An estimate above it is sent. Raised, the queen waits for better chances."
    )
    margin: float = Field(
        1e-9, ge=0, le=0.1, description="How far above. Raised, it hides the last digits of numbers that are equal."
    )
    survival_weight: float = Field(
        0.4, ge=0, le=2, description="Weight of the chance to survive. Raised, places near protectors are shunned more."
    )
    disruption_weight: float = Field(
        0.5, ge=0, le=2, description="Weight of who is disturbed. Raised, crowds of workers draw more spawns."
    )
    location_weight: float = Field(
        0.1, ge=0, le=2, description="Weight of the place. Raised, places far from workers and hive are shunned more."
    )
    kill_range: float = Field(
        2.0, ge=0, le=30, description="Nearer protectors kill for certain. Raised, more places count as lost."
    )
    threat_reach: float = Field(
        8.0, ge=0, le=30, description="Protectors so far away are no threat. Raised, far ones count as well."
    )
    threat_decay: float = Field(
        0.5, ge=0, le=100, description="How fast the threat fades between the two. Raised, only near ones count."
    )
    worker_reach: float = Field(
        6.0, ge=0, le=30, description="Nearer workers are disturbed by energy. Raised, the very place matters less."
    )
    protector_reach: float = Field(
        1.2, ge=0, le=30, description="Nearer protectors save workers from energy. Raised, energy disturbs less."
    )
    combat_reach: float = Field(
        7.5, ge=0, le=30, description="Whoever is nearer is disturbed by combat. Raised, combat is sent more often."
    )
    hive_weight: float = Field(
        0.3, ge=0, le=1, description="Cost of being far from the hive without workers. Raised, spawns stay at home."
    )
    nearest_weight: float = Field(
        0.4, ge=0, le=1, description="Cost of being far from the nearest worker. Raised, spawns cling to workers."
    )
    far: float = Field(
        FAR, gt=0, le=100, description="A distance that counts as all of the way. Lowered, small ways count more."
    )
    exploration: float = Field(
        0.2, ge=0, le=2, description="Bonus where nothing was spawned for long. Raised, spawns are spread out more."
    )
    exploration_seconds: float = Field(
        300.0, gt=0, le=1e6, description="After so long the bonus is whole. Raised, a chunk is left alone for longer."
    )
    energy_cost: float = Field(
        COSTS[ENERGY], ge=0, le=1e6, description="Price of an energy parasite. Raised, fewer can be paid for."
    )
    combat_cost: float = Field(
        COSTS[COMBAT], ge=0, le=1e6, description="Price of a combat parasite. Raised, fewer can be paid for."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> GateSettings:
        if self.threat_reach < self.kill_range:
            raise ValueError(f"threat_reach ({self.threat_reach:g}) must not be below kill_range ({self.kill_range:g})")
        return self


class Crowd(NamedTuple):
    """Who stands where in B observations: the chunk of each [B, n], in rising order and filled up with NOBODY."""

    chunks: NDArray[np.intp]
    many: NDArray[np.intp]  # [B]

    def fold(self, ufunc: np.ufunc, table: NDArray[Any], at: NDArray[np.int64] | None, empty: float) -> NDArray[Any]:
        """Combine what the table says of each into [B, columns]; `at` [B] is one column of each, [B, 1]."""
        if at is not None or len(self.chunks) == 1:
            said = table[self.chunks] if at is None else table[self.chunks, at[:, None]][..., None]
            return ufunc.reduce(said, 1, initial=empty)  # type: ignore[no-any-return]
        out = np.full((len(self.chunks), table.shape[1]), empty, table.dtype)
        for chunk in self.chunks.T:  # in the same order, without n tables side by side
            ufunc(out, table[chunk], out=out)
        return out


def crowd(counts: NDArray[Any], each: bool) -> Crowd:
    """Everybody of `counts` [B, 400] one by one, or with `each` off every chunk that has some."""
    row, chunk = np.nonzero(counts)
    if each:
        times = counts[row, chunk]
        row, chunk = row.repeat(times), chunk.repeat(times)
    if len(counts) == 1:
        return Crowd(chunk[None], np.array([len(chunk)]))
    many = np.bincount(row, minlength=len(counts))
    chunks = np.full((len(counts), many.max(initial=0)), NOBODY)
    chunks[row, np.arange(len(row)) - np.searchsorted(row, row)] = chunk
    return Crowd(chunks, many)


def gate(scene: Scene, time: Numbers, settings: GateSettings, actions: NDArray[np.int64] | None = None) -> Verdicts:
    """Estimate and approve all 800 actions at the times [B], or with `actions` [B] one for each observation."""
    if actions is not None and len(actions) and not 0 <= actions.min() <= actions.max() < ACTIONS:
        raise ValueError(f"actions of the hive are 0 to {ACTIONS - 1}")
    kind, chunk = (None, None) if actions is None else np.divmod(actions, CHUNKS)
    reach = _tables(settings)
    workers = crowd(scene["present"] | scene["mining"], each=False)
    protectors = crowd(scene["protectors"], each=True)
    # [B, types, chunks] for all actions, [B, 1, 1] for one each; what does not depend on the type has one type only.
    survived = protectors.fold(np.multiply, reach.survive, chunk, 1.0)[:, None]
    disrupted = _disruption(workers, protectors, reach, actions)
    located = location(workers, scene["hive"], settings, chunk)[:, None]
    explored = _exploration(scene["spawned"], time, settings, chunk)[:, None]
    expected = settings.survival_weight * survived + settings.disruption_weight * disrupted
    expected += settings.location_weight * located
    expected += explored
    costs = np.array((settings.energy_cost, settings.combat_cost))
    paid = scene["queen_energy"][:, None] >= (costs if kind is None else costs[kind][:, None])
    return _verdicts(expected, (survived, disrupted, located, explored), paid, settings, actions is None)


def _tables(settings: GateSettings) -> Tables:
    s = settings
    return tables(s.kill_range, s.threat_reach, s.threat_decay, s.worker_reach, s.protector_reach, s.combat_reach)


def _disruption(workers: Crowd, protectors: Crowd, reach: Tables, actions: NDArray[np.int64] | None) -> Numbers:
    """The share of those around who are disturbed [B, 2, 400] or [B, 1, 1]; 0 where nobody is."""
    disturbed = workers.fold(np.add, reach.workers, actions, 0.0)
    disturbed = disturbed + protectors.fold(np.add, reach.protectors, actions, 0.0)
    around = np.stack((workers.many, workers.many + protectors.many), 1)  # [B, types]
    if actions is not None:
        around = np.take_along_axis(around, actions[:, None] // CHUNKS, 1)
    columns = CHUNKS if actions is None else 1
    share: Numbers = disturbed.reshape(*around.shape, columns) / np.maximum(around, 1)[..., None]
    share[around == 0] = 0.0  # protectors without workers save nobody
    return np.maximum(share, -1.0, out=share)  # a share above 1 cannot be


def location(
    workers: Crowd, hive: NDArray[np.int64], settings: GateSettings, chunk: NDArray[np.int64] | None = None
) -> Numbers:
    """How far from the nearest worker, else from the hive [B, 400], or of one chunk each [B, 1]; −1 off the map."""
    known = None if chunk is None else np.clip(chunk, 0, CHUNKS - 1)
    distance = workers.fold(np.minimum, DISTANCE, known, np.inf)
    alone = workers.many == 0
    if alone.any():
        distance[alone] = DISTANCE[hive[alone]] if known is None else DISTANCE[hive[alone], known[alone]][:, None]
    weight = np.where(alone, -settings.hive_weight, -settings.nearest_weight)
    found: Numbers = weight[:, None] * np.minimum(distance / settings.far, 1.0)
    return found if chunk is None else np.where((chunk == known)[:, None], found, NOWHERE)


def _exploration(spawned: Numbers, time: Numbers, settings: GateSettings, chunk: NDArray[np.int64] | None) -> Numbers:
    """The bonus of chunks that were left alone [B, 400] or [B, 1]; a clock that went back counts as no time at all."""
    last = spawned if chunk is None else np.take_along_axis(spawned, chunk[:, None], 1)
    share = np.minimum((time[:, None] - last) / settings.exploration_seconds, 1.0)
    return settings.exploration * np.maximum(share, 0.0)


def _verdicts(
    expected: Numbers, parts: tuple[Numbers, ...], paid: NDArray[np.bool_], settings: GateSettings, every: bool
) -> Verdicts:
    """What is estimated, [B, types, chunks], as verdicts; what cannot be paid for has no estimate at all."""
    rated = np.repeat(paid[..., None], expected.shape[2], 2)
    components = np.empty((*expected.shape, len(parts)))
    for place, part in enumerate(parts):
        components[..., place] = part
    send = rated & (expected > settings.threshold + settings.margin) if settings.enabled else rated.copy()
    reason = np.where(send, *OF_SENT) if settings.enabled else np.full(send.shape, DISABLED, np.uint8)
    if not paid.all():
        reason[~paid], expected[~paid], components[~paid] = INSUFFICIENT, 0.0, 0.0
    shape = (len(expected), ACTIONS) if every else (len(expected),)
    return Verdicts(
        send.reshape(shape),
        reason.reshape(shape),
        rated.reshape(shape),
        expected.reshape(shape),
        components.reshape(*shape, len(parts)),
    )
