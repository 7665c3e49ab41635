"""The gate: what an action is worth by rule of thumb, and whether it may be carried out.

The estimate is R = .4 · survival + .5 · disruption + .1 · location + exploration. All numbers are float64 and every
step is elementwise or exact, so that one action alone gets the very numbers that it has in the table of all.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.decide.domain import GateResult, ObservationBatch
from townlet.decide.domains.hive.chunks import ACTIONS, COMBAT, COSTS, DISTANCE, ENERGY, FAR, Tables, tables
from townlet.decide.domains.hive.rating import rate_rows
from townlet.jit import jit_if_available

REASONS: Final = ("positive_reward", "negative_reward", "insufficient_energy", "gate_disabled")
POSITIVE, NEGATIVE, INSUFFICIENT, DISABLED = range(4)
# By whether an action can be paid for and is sent: neither, the first, both.
REASON: Final = np.array([INSUFFICIENT, NEGATIVE, POSITIVE], np.uint8)
REASON_DISABLED: Final = np.array([INSUFFICIENT, DISABLED, DISABLED], np.uint8)
COMPONENTS: Final = ("survival", "disruption", "location", "exploration")
READ: Final = ("present", "mining", "protectors", "hive", "spawned", "queen_energy")
ALL: Final = np.empty(0, np.int64)

Numbers = NDArray[np.float64]


class GateSettings(StrictModel):
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


def gate(
    scene: ObservationBatch, time: Numbers, settings: GateSettings, actions: NDArray[np.int64] | None = None
) -> GateResult:
    """Estimate and approve all 800 actions at the times [B], or with `actions` [B] one for each observation."""
    if actions is not None and len(actions) and not 0 <= actions.min() <= actions.max() < ACTIONS:
        raise ValueError(f"actions of the hive are 0 to {ACTIONS - 1}")
    s, reach, rows = settings, _tables(settings), len(time)
    columns = ACTIONS if actions is None else 1
    expected, components = np.zeros((rows, columns)), np.zeros((rows, columns, len(COMPONENTS)))
    rated, send = np.zeros((2, rows, columns), np.bool_)
    jit_if_available(rate_rows)(
        *(np.ascontiguousarray(scene[name]) for name in READ), np.ascontiguousarray(time, np.float64),
        ALL if actions is None else np.ascontiguousarray(actions, np.int64),
        reach.survive, reach.workers, reach.protectors, DISTANCE,
        (s.survival_weight, s.disruption_weight, s.location_weight, s.hive_weight, s.nearest_weight, s.far,
         s.exploration, s.exploration_seconds),
        (s.energy_cost, s.combat_cost), s.threshold + s.margin if s.enabled else -np.inf,
        expected, components, rated, send,
    )  # fmt: skip
    reason = (REASON if s.enabled else REASON_DISABLED)[rated.view(np.uint8) + send]
    found = GateResult(send, reason, rated, expected, components)
    return found if actions is None else found.select(np.zeros(rows, np.int64))


def _tables(settings: GateSettings) -> Tables:
    s = settings
    return tables(s.kill_range, s.threat_reach, s.threat_decay, s.worker_reach, s.protector_reach, s.combat_reach)
