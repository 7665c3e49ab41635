"""The hive as a decision domain: columns, rewards, baselines and the state of a territory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.config.models import StrictModel
from townlet.decide import domain
from townlet.decide.domain import Baseline, ColumnSpec, GateResult, ObservationBatch, PolicySpec
from townlet.decide.domains.hive import gate, kernels, messages
from townlet.decide.domains.hive.game import HiveGame
from townlet.decide.domains.hive.grid import ACTIONS, CHUNKS, COMBAT, COUNTS, DISTANCE, ENERGY, SIDE, TYPES
from townlet.decide.domains.hive.policies import POLICIES
from townlet.jit import jit_if_available

AMOUNTS: Final = (
    "queen_energy", "queen_energy_max", "player_energy_start", "player_energy_end", "minerals_start", "minerals_end",
)  # fmt: skip
FAILED_OUTCOME: Final = -0.5  # outcome of a spawn that could not be carried out
GROWTH_WEIGHTS: Final = (-0.4, -0.3, -0.3)  # weights of the growth of mining, protectors and the player's energy
CLEARED_BONUS: Final = 0.2  # reward for each chunk that is no longer mined
PROTECTOR_BONUS: Final = 0.15  # reward for each protector that is gone
IDLE_PENALTY: Final = -0.1  # reward if nothing changed
NEGLIGIBLE_GROWTH: Final = 0.05  # smaller growth counts as no change

Actions = NDArray[np.int64]


def reward_from_next(before: ObservationBatch, after: ObservationBatch) -> NDArray[np.float64]:
    """Rewards [B] in [−1, 1] from two successive observations of a territory."""
    names = ("mining", "protectors", "player_energy_end")
    columns = [np.ascontiguousarray(batch[name]) for name in names for batch in (before, after)]
    rewards = np.empty(len(columns[0]))
    bonuses = (CLEARED_BONUS, PROTECTOR_BONUS, IDLE_PENALTY, NEGLIGIBLE_GROWTH)
    jit_if_available(kernels.reward)(*columns, GROWTH_WEIGHTS, *bonuses, rewards)
    return rewards


def nearest_worker(batch: ObservationBatch, gated: GateResult, rng: np.random.Generator) -> Actions:
    """Baseline: an affordable parasite at the worker nearest to the hive, or at the hive if there is no worker."""
    workers = (batch["present"] > 0) | (batch["mining"] > 0)
    nearest = np.where(workers, DISTANCE[batch["hive"]], np.inf).argmin(1)
    chunk = np.where(workers.any(1), nearest, batch["hive"])
    only_combat = gated.rated[:, COMBAT * CHUNKS] & ~gated.rated[:, ENERGY * CHUNKS]
    return (np.where(only_combat, COMBAT, ENERGY) * CHUNKS + chunk).astype(np.int64)


class Hive(domain.LastTimes):
    """Outcomes follow from the next observation; the state of a territory is the last spawn time in each chunk."""

    name = "hive"
    observation_type = "observation_data"
    report_types: tuple[str, ...] = ("spawn_result",)
    n_actions = ACTIONS
    state_column, n_targets = "spawned", CHUNKS
    columns: Mapping[str, ColumnSpec] = {
        **dict.fromkeys(COUNTS, ColumnSpec((CHUNKS,), "uint8")),
        **dict.fromkeys(AMOUNTS, ColumnSpec((), "float64")),
        "hive": ColumnSpec((), "int64"),
        "spawned": ColumnSpec((CHUNKS,), "float64"),
    }
    reasons: tuple[str, ...] = gate.REASONS
    components: tuple[str, ...] = gate.COMPONENTS
    gate_settings: type[StrictModel] = gate.HiveGateSettings
    policies: Mapping[str, PolicySpec] = POLICIES
    baselines: Mapping[str, Baseline] = {
        "random": domain.uniform_random, "nearest_worker": nearest_worker, "gate_greedy": domain.gate_greedy,
    }  # fmt: skip
    failed_outcome: float = FAILED_OUTCOME
    parse_observation = staticmethod(messages.parse_observation)
    parse_report = staticmethod(messages.parse_report)
    reply = staticmethod(messages.reply)
    gate = staticmethod(gate.gate)
    reward_from_next = staticmethod(reward_from_next)
    make_game = HiveGame

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of the most likely chunk, clipped because rounding may push a sum slightly above 1."""
        highest: NDArray[np.float64] = messages.chunk_probabilities(probabilities).max(-1).clip(max=1.0)
        return highest

    def schema(self) -> dict[str, Any]:
        return domain.message_schemas(messages.MESSAGES)

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """Map of decisions per chunk, with rows from the north, and decisions per type."""
        by_type = counts.reshape(len(TYPES), CHUNKS)
        values = by_type.sum(0).reshape(SIDE, SIDE).tolist()
        return {"kind": "map", "values": values, "types": dict(zip(TYPES, by_type.sum(1).tolist(), strict=True))}


DOMAIN: Final[domain.Domain] = Hive()
