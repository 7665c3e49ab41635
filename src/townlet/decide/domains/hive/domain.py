"""The hive as the service sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.config.models import StrictModel
from townlet.decide.domain import (
    Baseline,
    ColumnSpec,
    Decision,
    Domain,
    GateResult,
    Observation,
    ObservationBatch,
    ObservationRow,
    OutcomeReport,
    PolicySpec,
    RewardFromNext,
    message_schemas,
)
from townlet.decide.domains.hive import gate, outcome, wire
from townlet.decide.domains.hive.baselines import BASELINES
from townlet.decide.domains.hive.chunks import ACTIONS, CHUNKS, COUNTS, NEVER, SIDE, TYPES
from townlet.decide.domains.hive.game import Game
from townlet.decide.domains.hive.networks import POLICIES

AMOUNTS: Final = (
    "queen_energy", "queen_energy_max", "player_energy_start", "player_energy_end", "minerals_start", "minerals_end",
)  # fmt: skip


class Hive:
    """A domain whose outcomes come with the next observation; it carries over when each chunk was last spawned in."""

    name = "hive"
    observation_type = "observation_data"
    report_type = "spawn_result"
    n_actions = ACTIONS
    columns: Mapping[str, ColumnSpec] = {
        **dict.fromkeys(COUNTS, ColumnSpec((CHUNKS,), "uint8")),
        **dict.fromkeys(AMOUNTS, ColumnSpec((), "float64")),
        "hive": ColumnSpec((), "int64"),
        "spawned": ColumnSpec((CHUNKS,), "float64"),
    }
    reasons: tuple[str, ...] = gate.REASONS
    components: tuple[str, ...] = gate.COMPONENTS
    gate_settings: type[StrictModel] = gate.GateSettings
    policies: Mapping[str, PolicySpec] = POLICIES
    baselines: Mapping[str, Baseline] = BASELINES
    failed_outcome: float = outcome.FAILED

    @property
    def reward_from_next(self) -> RewardFromNext:
        """The next observation of a territory tells what came of a decision."""
        return outcome.outcome

    @property
    def make_game(self) -> Callable[[int, str, int], Game]:
        """A simulated one: of a seed, a territory, and a stage from 0 on."""
        return Game

    def initial_memory(self) -> ObservationRow:
        """Nothing was ever spawned."""
        return {"spawned": np.full(CHUNKS, NEVER)}

    def parse_observation(self, message: Mapping[str, Any]) -> Observation:
        """An `observation_data` message; raises `Malformed` with the first wrong field."""
        return wire.read(message)

    def parse_report(self, message: Mapping[str, Any]) -> OutcomeReport:
        """A `spawn_result` message; raises `Malformed` with the first wrong field."""
        return wire.read_report(message)

    def memory_after(self, memory: ObservationRow, action: int, time: float) -> ObservationRow:
        """The same, with something spawned in the action's chunk at this time."""
        spawned = memory["spawned"].copy()
        spawned[action % CHUNKS] = time
        return {"spawned": spawned}

    def memory_without(
        self, memory: ObservationRow, before: ObservationRow, action: int, time: float
    ) -> ObservationRow:
        """The last spawn in that chunk is the one before, unless another came since."""
        spawned, chunk = memory["spawned"].copy(), action % CHUNKS
        if spawned[chunk] == time:
            spawned[chunk] = before["spawned"][chunk]
        return {"spawned": spawned}

    def confidence(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """The highest probability of a chunk."""
        highest: NDArray[np.float64] = (
            wire.by_chunk(probabilities).max(-1).clip(max=1.0)
        )  # sums may end a little above 1
        return highest

    def gate(
        self,
        batch: ObservationBatch,
        time: NDArray[np.float64],
        settings: StrictModel,
        actions: NDArray[np.int64] | None = None,
    ) -> GateResult:
        """Estimate and approve all actions, or one for each observation."""
        if not isinstance(settings, gate.GateSettings):
            raise TypeError(f"the gate of the hive has GateSettings, not {type(settings).__name__}")
        return gate.gate(batch, time, settings, actions)

    def reply(self, decision: Decision) -> dict[str, Any]:
        """A `spawn_decision`, or an `observation_ack` that says why not."""
        return wire.reply(decision)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of every message, by its type."""
        return message_schemas(wire.MESSAGES)

    def action_chart(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """How often each chunk was decided for, in rows from the north, and each type."""
        by_type = counts.reshape(len(TYPES), CHUNKS)
        return {
            "kind": "map",
            "values": by_type.sum(0).reshape(SIDE, SIDE).tolist(),
            "types": dict(zip(TYPES, by_type.sum(1).tolist(), strict=True)),
        }


DOMAIN: Final[Domain] = Hive()
