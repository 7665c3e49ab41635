"""Gate of the hive: estimates the reward of an action by a heuristic, and decides whether it may be carried out.

The estimate is R = .4 · survival + .5 · disruption + .1 · location + exploration. All numbers are float64 and every
step is elementwise or exact, so that a single action gets exactly the numbers that it has in the table of all.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.decide.domain import GateResult, ObservationBatch
from townlet.decide.domains.hive.grid import ACTIONS, COMBAT, COSTS, DIAGONAL, DISTANCE, ENERGY, reach_tables
from townlet.decide.domains.hive.kernels import rate_actions
from townlet.jit import jit_if_available

REASONS: Final = ("positive_reward", "negative_reward", "insufficient_energy", "gate_disabled")
POSITIVE, NEGATIVE, INSUFFICIENT, DISABLED = range(4)
# Indexed by the sum of rated and sent.
REASON: Final = np.array([INSUFFICIENT, NEGATIVE, POSITIVE], np.uint8)
REASON_DISABLED: Final = np.array([INSUFFICIENT, DISABLED, DISABLED], np.uint8)
COMPONENTS: Final = ("survival", "disruption", "location", "exploration")
COLUMNS: Final = ("present", "mining", "protectors", "hive", "spawned", "queen_energy")
ALL_ACTIONS: Final = np.empty(0, np.int64)


class HiveGateSettings(StrictModel):
    """The gate's model of the game, and its threshold."""

    enabled: bool = Field(True, description="Apply the threshold. Off: every affordable action is sent.")
    threshold: float = Field(
        0.6, ge=-2, le=2, description="Actions with a higher estimate are sent. Higher: the queen waits for more."
    )
    margin: float = Field(
        1e-9, ge=0, le=0.1, description="Added to the threshold. Higher: hides rounding errors of equal estimates."
    )
    survival_weight: float = Field(
        0.4, ge=0, le=2, description="Weight of the probability of survival. Higher: protectors are avoided more."
    )
    disruption_weight: float = Field(
        0.5, ge=0, le=2, description="Weight of disturbed units. Higher: crowds of workers attract more spawns."
    )
    location_weight: float = Field(
        0.1, ge=0, le=2, description="Weight of the location. Higher: chunks far from workers and hive are avoided."
    )
    kill_range: float = Field(
        2.0, ge=0, le=30, description="Nearer protectors kill for certain. Higher: more chunks count as lost."
    )
    threat_reach: float = Field(
        8.0, ge=0, le=30, description="Protectors beyond it are no threat. Higher: distant ones count too."
    )
    threat_decay: float = Field(
        0.5, ge=0, le=100, description="Decay of the threat between the two. Higher: only near protectors count."
    )
    worker_reach: float = Field(
        6.0, ge=0, le=30, description="Energy disturbs nearer workers. Higher: the exact chunk matters less."
    )
    protector_reach: float = Field(
        1.2, ge=0, le=30, description="Nearer protectors shield workers from energy. Higher: energy disturbs less."
    )
    combat_reach: float = Field(
        7.5, ge=0, le=30, description="Combat disturbs nearer units. Higher: combat is sent more often."
    )
    hive_weight: float = Field(
        0.3, ge=0, le=1, description="Cost of distance to the hive without workers. Higher: spawns stay near it."
    )
    nearest_weight: float = Field(
        0.4, ge=0, le=1, description="Cost of distance to the nearest worker. Higher: spawns stay near workers."
    )
    far: float = Field(
        DIAGONAL, gt=0, le=100, description="Distance with the full cost. Lower: short distances cost more."
    )
    exploration: float = Field(
        0.2, ge=0, le=2, description="Bonus of chunks without a recent spawn. Higher: spawns are spread out more."
    )
    exploration_seconds: float = Field(
        300.0, gt=0, le=1e6, description="Time until the full bonus. Higher: chunks are reused later."
    )
    energy_cost: float = Field(
        COSTS[ENERGY], ge=0, le=1e6, description="Price of an energy parasite. Higher: fewer are affordable."
    )
    combat_cost: float = Field(
        COSTS[COMBAT], ge=0, le=1e6, description="Price of a combat parasite. Higher: fewer are affordable."
    )

    @model_validator(mode="after")
    def _check_ranges(self) -> HiveGateSettings:
        if self.threat_reach < self.kill_range:
            raise ValueError(f"threat_reach ({self.threat_reach:g}) must not be below kill_range ({self.kill_range:g})")
        return self


def gate(
    batch: ObservationBatch, time: NDArray[np.float64], settings: HiveGateSettings,
    actions: NDArray[np.int64] | None = None,
) -> GateResult:  # fmt: skip
    """Rate and approve all 800 actions at the times [B], or with `actions` [B] one per observation."""
    if actions is not None and len(actions) and not 0 <= actions.min() <= actions.max() < ACTIONS:
        raise ValueError(f"actions of the hive are 0 to {ACTIONS - 1}")
    s, rows = settings, len(time)
    reach = reach_tables(
        s.kill_range, s.threat_reach, s.threat_decay, s.worker_reach, s.protector_reach, s.combat_reach
    )
    columns = ACTIONS if actions is None else 1
    expected, components = np.zeros((rows, columns)), np.zeros((rows, columns, len(COMPONENTS)))
    rated, send = np.zeros((2, rows, columns), np.bool_)
    jit_if_available(rate_actions)(
        *(np.ascontiguousarray(batch[name]) for name in COLUMNS), np.ascontiguousarray(time, np.float64),
        ALL_ACTIONS if actions is None else np.ascontiguousarray(actions, np.int64),
        reach.survive, reach.workers, reach.protectors, DISTANCE,
        (s.survival_weight, s.disruption_weight, s.location_weight, s.hive_weight, s.nearest_weight, s.far,
         s.exploration, s.exploration_seconds),
        (s.energy_cost, s.combat_cost), s.threshold + s.margin if s.enabled else -np.inf,
        expected, components, rated, send,
    )  # fmt: skip
    reason = (REASON if s.enabled else REASON_DISABLED)[rated.view(np.uint8) + send]
    result = GateResult(send, reason, rated, expected, components)
    return result if actions is None else result.select(np.zeros(rows, np.int64))
