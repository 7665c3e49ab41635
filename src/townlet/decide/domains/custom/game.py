"""The simulated game of a custom domain's file, as `townlet decide simulate` plays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import numpy as np

from townlet.decide.domains.custom.definition import Definition
from townlet.decide.domains.custom.messages import OBSERVATION_KEYS, OUTCOME_KEYS
from townlet.decide.domains.custom.source import SIMULATION
from townlet.errors import TownletError
from townlet.rng import Streams

TRIAL: Final = 20  # observations for which a file is tried when it is loaded


class CustomGame:
    """One game. Every observation is one second after the one before it, and outcomes are reported at once."""

    def __init__(self, definition: Definition, seed: int, territory: str) -> None:
        self._definition, self._territory, self._time = definition, territory, 0.0
        self._game = definition.simulate(Streams(seed).numpy(f"game of {territory}"))

    def observe(self) -> dict[str, Any]:
        definition = self._definition
        fields = definition.read_observation(definition.source.call(self._game.observe), SIMULATION)
        return {"type": "observation", "timestamp": self._time, "territoryId": self._territory, **fields}

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out an action; a decision to wait and an error leave the game unchanged."""
        definition = self._definition
        if reply["type"] != "decision":
            return []
        outcome = definition.source.call(self._game.act, reply["action"])
        if definition.messages.outcome is None or outcome is None:
            return []
        fields = definition.read_outcome(outcome, SIMULATION)
        return [{"type": "outcome", "decisionId": reply["decisionId"], **fields}]

    def advance(self) -> list[dict[str, Any]]:
        self._time += 1.0
        return []


def try_game(definition: Definition) -> None:
    """Play a few rounds, so that mistakes in the file are found before a service starts."""
    game, before, reported = CustomGame(definition, 0, "trial"), None, definition.observed
    for turn in range(TRIAL):
        observation = _without(game.observe(), OBSERVATION_KEYS)
        if definition.observed and before is not None:
            definition.reward(*map(definition.scalar_fields, (before, observation)))
        before = deepcopy(observation)
        definition.features(deepcopy(observation))
        possible = np.flatnonzero(definition.allowed(observation))
        if len(possible):
            action = definition.actions[possible[turn % len(possible)]]
            reply = {"type": "decision", "decisionId": "trial", "action": action}
            for report in game.apply(reply):
                definition.reward(_without(report, OUTCOME_KEYS))
                reported = True
    if not reported:
        what, where = f"`{SIMULATION}.act` returned no outcome in {TRIAL} rounds", definition.source.line(SIMULATION)
        raise TownletError(what, "return what the game reports, with the fields of `outcome`", where)


def _without(message: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in keys}
