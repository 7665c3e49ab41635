"""The hive as the service sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.config.model import Model
from townlet.decide.domain import (
    Baseline,
    Choice,
    Column,
    Domain,
    Following,
    PolicyKind,
    Report,
    Row,
    Scene,
    Sight,
    Verdicts,
)
from townlet.decide.domains.hive import gate, outcome, wire
from townlet.decide.domains.hive.baselines import BASELINES
from townlet.decide.domains.hive.chunks import ACTIONS, CHUNKS, COUNTS, NEVER, SIDE, TYPES
from townlet.decide.domains.hive.game import Game
from townlet.decide.domains.hive.networks import POLICIES
from townlet.decide.wire import schemas

AMOUNTS: Final = (
    "queen_energy", "queen_energy_max", "player_energy_start", "player_energy_end", "minerals_start", "minerals_end",
)  # fmt: skip


class Hive:
    """A domain whose outcomes come with the next observation; it carries over when each chunk was last spawned in."""

    name = "hive"
    observation = "observation_data"
    report = "spawn_result"
    actions = ACTIONS
    columns: Mapping[str, Column] = {
        **dict.fromkeys(COUNTS, Column((CHUNKS,), "uint8")),
        **dict.fromkeys(AMOUNTS, Column((), "float64")),
        "hive": Column((), "int64"),
        "spawned": Column((CHUNKS,), "float64"),
    }
    reasons: tuple[str, ...] = gate.REASONS
    components: tuple[str, ...] = gate.COMPONENTS
    gate_settings: type[Model] = gate.GateSettings
    policies: Mapping[str, PolicyKind] = POLICIES
    baselines: Mapping[str, Baseline] = BASELINES
    failed: float = outcome.FAILED

    @property
    def following(self) -> Following:
        """The next observation of a territory tells what came of a decision."""
        return outcome.outcome

    @property
    def game(self) -> Callable[[int, str, int], Game]:
        """A simulated one: of a seed, a territory, and a stage from 0 on."""
        return Game

    def fresh(self) -> Row:
        """Nothing was ever spawned."""
        return {"spawned": np.full(CHUNKS, NEVER)}

    def read(self, message: Mapping[str, Any]) -> Sight:
        """An `observation_data` message; raises `Malformed` with the first wrong field."""
        return wire.read(message)

    def read_report(self, message: Mapping[str, Any]) -> Report:
        """A `spawn_result` message; raises `Malformed` with the first wrong field."""
        return wire.read_report(message)

    def remember(self, known: Row, action: int, time: float) -> Row:
        """The same, with something spawned in the action's chunk at this time."""
        spawned = known["spawned"].copy()
        spawned[action % CHUNKS] = time
        return {"spawned": spawned}

    def forget(self, known: Row, before: Row, action: int, time: float) -> Row:
        """The last spawn in that chunk is the one before, unless another came since."""
        spawned, chunk = known["spawned"].copy(), action % CHUNKS
        if spawned[chunk] == time:
            spawned[chunk] = before["spawned"][chunk]
        return {"spawned": spawned}

    def confidence(self, chances: NDArray[np.float64]) -> NDArray[np.float64]:
        """The highest probability of a chunk."""
        highest: NDArray[np.float64] = wire.by_chunk(chances).max(-1).clip(max=1.0)  # sums may end a little above 1
        return highest

    def gate(
        self, scene: Scene, time: NDArray[np.float64], settings: Model, actions: NDArray[np.int64] | None = None
    ) -> Verdicts:
        """Estimate and approve all actions, or one for each observation."""
        if not isinstance(settings, gate.GateSettings):
            raise TypeError(f"the gate of the hive has GateSettings, not {type(settings).__name__}")
        return gate.gate(scene, time, settings, actions)

    def reply(self, choice: Choice) -> dict[str, Any]:
        """A `spawn_decision`, or an `observation_ack` that says why not."""
        return wire.reply(choice)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of every message, by its type."""
        return schemas(wire.MESSAGES)

    def chart(self, actions: NDArray[np.int64]) -> dict[str, Any]:
        """How often each chunk was decided for, in rows from the north, and each type."""
        by_type = actions.reshape(len(TYPES), CHUNKS)
        return {
            "kind": "map",
            "values": by_type.sum(0).reshape(SIDE, SIDE).tolist(),
            "types": dict(zip(TYPES, by_type.sum(1).tolist(), strict=True)),
        }


DOMAIN: Final[Domain] = Hive()
