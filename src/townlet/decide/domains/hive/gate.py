"""Gate of the hive: estimates the reward of an action by a heuristic, and decides whether it may be carried out.

By default the estimate is .4 · survival + .5 · disruption + .1 · location + exploration. All numbers are float64 and
every operation is elementwise or exact, so that rating one action gives exactly the same numbers as rating all.
"""

from __future__ import annotations

from typing import Annotated, Final

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
# Reason by the number of flags set, among `rated` and `send` (which implies `rated`).
REASON: Final = np.array([INSUFFICIENT, NEGATIVE, POSITIVE], np.uint8)
REASON_DISABLED: Final = np.array([INSUFFICIENT, DISABLED, DISABLED], np.uint8)
COMPONENTS: Final = ("survival", "disruption", "location", "exploration")
COLUMNS: Final = ("present", "mining", "protectors", "hive", "spawned", "queen_energy")
ALL_ACTIONS: Final = np.empty(0, np.int64)  # an empty list makes `rate_actions` rate all actions

Weight = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Distance = Annotated[float, Field(ge=0, le=30)]  # in chunks
Price = Annotated[float, Field(ge=0, le=1e6)]


class HiveGateSettings(StrictModel):
    """The gate's model of the game, and its threshold."""

    enabled: bool = Field(True, description="Apply the threshold. Off: every affordable action is sent.")
    threshold: float = Field(
        0.6, ge=-2, le=2, description="An action is sent if its estimate exceeds this. Higher: fewer spawns."
    )
    margin: float = Field(1e-9, ge=0, le=0.1, description="Added to the threshold. Higher: tolerates larger errors.")
    survival_weight: Weight = Field(0.4, description="Weight of survival. Higher: protectors are avoided more.")
    disruption_weight: Weight = Field(0.5, description="Weight of disturbed units. Higher: crowds attract more spawns.")
    location_weight: Weight = Field(0.1, description="Weight of the location. Higher: far chunks are avoided.")
    kill_range: Distance = Field(2.0, description="Nearer protectors always kill. Higher: more chunks are avoided.")
    threat_reach: Distance = Field(8.0, description="Nearer protectors are a threat. Higher: more of them count.")
    threat_decay: float = Field(0.5, ge=0, le=100, description="Decay with distance. Higher: far ones count less.")
    worker_reach: Distance = Field(6.0, description="Energy parasites disturb nearer workers. Higher: more count.")
    protector_reach: Distance = Field(1.2, description="Nearer protectors shield workers. Higher: more shielding.")
    combat_reach: Distance = Field(7.5, description="Combat parasites disturb nearer units. Higher: more count.")
    hive_weight: Share = Field(0.3, description="Cost of distance to the hive. Higher: spawns stay near it.")
    nearest_weight: Share = Field(0.4, description="Cost of distance to the nearest worker. Higher: spawns stay near.")
    far: float = Field(DIAGONAL, gt=0, le=100, description="Distance with the full cost. Lower: distance costs more.")
    exploration: Weight = Field(0.2, description="Bonus for chunks without a recent spawn. Higher: more spread.")
    exploration_seconds: float = Field(300.0, gt=0, le=1e6, description="Time to the full bonus. Higher: later reuse.")
    energy_cost: Price = Field(COSTS[ENERGY], description="Price of an energy parasite. Higher: fewer are affordable.")
    combat_cost: Price = Field(COSTS[COMBAT], description="Price of a combat parasite. Higher: fewer are affordable.")

    @model_validator(mode="after")
    def _check_ranges(self) -> HiveGateSettings:
        if self.threat_reach < self.kill_range:
            raise ValueError(f"threat_reach ({self.threat_reach:g}) must not be below kill_range ({self.kill_range:g})")
        return self


def gate(
    batch: ObservationBatch, time: NDArray[np.float64], settings: StrictModel,
    actions: NDArray[np.int64] | None = None,
) -> GateResult:  # fmt: skip
    """Rate all actions at the times [B], or with `actions` [B] one per observation, and decide which to send."""
    assert isinstance(settings, HiveGateSettings)
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
        reach.survival, reach.workers, reach.protectors, DISTANCE,
        (s.survival_weight, s.disruption_weight, s.location_weight, s.hive_weight, s.nearest_weight, s.far,
         s.exploration, s.exploration_seconds),
        (s.energy_cost, s.combat_cost), s.threshold + s.margin if s.enabled else -np.inf,
        expected, components, rated, send,
    )  # fmt: skip
    reason = (REASON if s.enabled else REASON_DISABLED)[rated.view(np.uint8) + send]
    result = GateResult(send, reason, rated, expected, components)
    return result if actions is None else result.select(np.zeros(rows, np.int64))
