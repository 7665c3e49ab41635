"""The members of a custom domain's file, checked when the file is loaded, and calls of its functions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from math import isfinite
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from townlet.config.models import first_error
from townlet.decide.domain import WireMessage
from townlet.decide.domains.custom.messages import (
    OBSERVATION_KEYS,
    OUTCOME_KEYS,
    Fields,
    InvalidExample,
    Messages,
    decision_model,
    observation_model,
    outcome_model,
    read_fields,
)
from townlet.decide.domains.custom.source import SIMULATION, Source
from townlet.decide.new_domain import MAX_NAME, NAME_CHARACTERS, is_name
from townlet.errors import TownletError

REQUIRED: Final = {  # members of every file, and what they look like
    "name": 'name = "my-game"',
    "actions": 'actions = ["attack", "defend"]',
    "observation": 'observation = {"health": 0.8, "enemies": 3}',
    "features": 'def features(observation): return [observation["health"], observation["enemies"]]',
    "reward": 'def reward(outcome): return outcome["value"]',
}
GAME: Final = "class Game with __init__(self, rng), observe(self) and act(self, action)"
USUAL_OUTCOME: Final = {"value": 0.0}  # the example if the file has none
MAX_ACTIONS: Final = 1000
MAX_FEATURES: Final = 10_000
MAX_FEATURE: Final = 1e6


class UnusableValue(TownletError):
    """A function of the file returned something that cannot be used."""


class Definition:
    """The checked members of a file, and its functions; their errors are TownletErrors with the line."""

    def __init__(self, module: ModuleType, source: Source) -> None:
        self.source, self._members = source, vars(module)
        for member, example in REQUIRED.items():
            if member not in self._members:
                raise TownletError(f"`{member}` is missing", f"write for example: {example}", source.line())
        self.name = self._check_name()
        self.actions = self._check_actions()
        self._functions = {name: self._function(name) for name in ("features", "reward")}
        if "allowed" in self._members:
            self._functions["allowed"] = self._function("allowed")
        self.observed = self._reward_from_next()  # whether rewards follow from the next observation
        self.messages = Messages(
            self._model("observation", observation_model, self._members["observation"]),
            None if self.observed else self._model("outcome", outcome_model, self._outcome),
            decision_model(self.actions),
        )
        self.example = self.read_observation(self._members["observation"])
        self.scalars = [key for key, value in self.example.items() if isinstance(value, bool | float)]
        self.n_features = 0
        self.n_features = len(self.features(deepcopy(self.example)))
        self._check_functions()
        self.game: Callable[[np.random.Generator], Any] | None = self._members.get(SIMULATION)

    # The functions of the file

    def features(self, observation: Fields) -> NDArray[np.float32]:
        """The features [F] of an observation."""
        returned = self.source.call(self._functions["features"], observation)
        try:
            values = np.asarray(returned)
        except Exception:  # lists of different lengths, or an object that cannot be converted
            values = np.zeros((0, 0))
        if values.ndim != 1 or not len(values) or values.dtype.kind not in "biuf":
            self._refuse("features", f"returned {_shown(returned)}, not a list of numbers")
        if self.n_features and len(values) != self.n_features:
            what = f"returned {len(values)} numbers instead of {self.n_features}, as for the example"
            self._refuse("features", what, "return equally many for every observation")
        if len(values) > MAX_FEATURES:
            self._refuse("features", f"returned {len(values):,} numbers; the maximum is {MAX_FEATURES:,}")
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(values.astype(np.float64)) <= MAX_FEATURE)
        if wrong.any():
            index = int(wrong.argmax())
            what = f"returned {values[index]} as number {index + 1} of {len(values)}"
            self._refuse("features", what, f"every number must lie between -{MAX_FEATURE:,.0f} and {MAX_FEATURE:,.0f}")
        return values.astype(np.float32)

    def allowed(self, observation: Fields) -> NDArray[np.bool_]:
        """Which actions [K] may be sent."""
        if "allowed" not in self._functions:
            return np.ones(len(self.actions), bool)
        returned = self.source.call(self._functions["allowed"], observation)
        valid = isinstance(returned, list | tuple | set | frozenset)
        unknown = [one for one in returned if not self._is_action(one)] if valid else []
        if not valid or unknown:
            found = f"the action {_shown(unknown[0])}" if unknown else _shown(returned)
            self._refuse("allowed", f"returned {found}", "return a list of actions, as they are written in `actions`")
        return np.array([action in returned for action in self.actions])

    def _is_action(self, value: object) -> bool:
        return isinstance(value, str | int | np.integer) and not isinstance(value, bool) and value in self.actions

    def reward(self, *arguments: Fields) -> float:
        """The reward of an outcome, or between two observations; it may lie outside [−1, 1]."""
        returned = self.source.call(self._functions["reward"], *arguments)
        if not isinstance(returned, bool | int | float | np.number | np.bool_) or not _is_finite(returned):
            self._refuse("reward", f"returned {_shown(returned)}, not a number", "return a number from -1 to 1")
        return float(returned)

    def read_observation(self, fields: Any, member: str = "observation") -> Fields:
        """The fields of an observation that a member of the file contains or simulates."""
        return self._read(self.messages.observation, fields, member, OBSERVATION_KEYS)

    def read_outcome(self, fields: Any, member: str = "outcome") -> Fields:
        """The fields of an outcome that a member of the file contains or simulates."""
        assert self.messages.outcome is not None
        return self._read(self.messages.outcome, fields, member, OUTCOME_KEYS)

    def _read(self, model: type[WireMessage], fields: Any, member: str, keys: Sequence[str]) -> Fields:
        kind = str(model.model_fields["type"].default)
        usual = {"type": kind, "timestamp": 0.0, "territoryId": "example", "decisionId": "example"}
        try:
            message = {**json.loads(json.dumps(fields)), **{key: usual[key] for key in keys}}
            return read_fields(model.model_validate(message), keys)
        except ValidationError as error:
            what = f"the {kind} {_shown(fields)} differs from the example: {first_error(error.errors(), kind)}"
        except (TypeError, ValueError) as error:
            what = f"the {kind} {_shown(fields)} is not valid JSON: {error}"
        self._refuse(member, what, "give all fields of the example, and no others")

    def simulate(self, rng: np.random.Generator) -> Any:
        """A new game of the class `Game`."""
        if self.game is None:
            what = "the file has no simulated game"
            raise TownletError(what, f"connect your own game, or add a {GAME}", self.source.line())
        game = self.source.call(self.game, rng)
        if missing := [name for name in ("observe", "act") if not callable(getattr(game, name, None))]:
            raise TownletError(
                f"`{SIMULATION}` has no method {missing[0]}", f"write a {GAME}", self.source.line(SIMULATION)
            )
        return game

    # Checks when the file is loaded

    def _refuse(self, member: str, what: str, fix: str = "") -> NoReturn:
        name = f"{member} " if member in self._functions else ""
        raise UnusableValue(f"{name}{what}", fix or f"write for example: {REQUIRED[member]}", self.source.line(member))

    def _check_name(self) -> str:
        name = self._members["name"]
        if not is_name(name):
            fix = f"use at most {MAX_NAME} {NAME_CHARACTERS}: {REQUIRED['name']}"
            raise TownletError(f"`name` is {_shown(name)}", fix, self.source.line("name"))
        return str(name)

    def _check_actions(self) -> tuple[str | int, ...]:
        actions = self._members["actions"]
        listed: tuple[str | int, ...]
        if isinstance(actions, int) and not isinstance(actions, bool):
            valid, listed = 2 <= actions <= MAX_ACTIONS, tuple(range(min(actions, MAX_ACTIONS)))
        else:
            listed = tuple(actions) if isinstance(actions, list | tuple) else ()
            named = all(isinstance(action, str) and action and len(action) <= 100 for action in listed)
            valid = named and 2 <= len(listed) <= MAX_ACTIONS and len(set(listed)) == len(listed)
        if not valid:
            fix = f"write 2 to {MAX_ACTIONS} different names or a number: {REQUIRED['actions']}, or actions = 4"
            raise TownletError(f"`actions` is {_shown(actions)}", fix, self.source.line("actions"))
        return listed

    def _function(self, member: str) -> Callable[..., Any]:
        function = self._members[member]
        if not callable(function):
            fix = f"write for example: {REQUIRED.get(member, 'def allowed(observation): return actions')}"
            raise TownletError(f"`{member}` is not a function", fix, self.source.line(member))
        if not _accepts(function, 1) and member != "reward":
            raise TownletError(f"`{member}` must take one argument, the observation", "", self.source.line(member))
        return function  # type: ignore[no-any-return]

    def _reward_from_next(self) -> bool:
        function, where = self._functions["reward"], self.source.line("reward")
        if _accepts(function, 1):
            return False
        if not _accepts(function, 2):
            fix = f"write {REQUIRED['reward']}, or def reward(before, after) for two successive observations"
            raise TownletError("`reward` must take one argument or two", fix, where)
        if "outcome" in self._members:
            what = "reward(before, after) follows from the next observation, but the file also has an `outcome`"
            raise TownletError(what, "remove `outcome`, or write reward(outcome)", where)
        return True

    @property
    def _outcome(self) -> Any:
        return self._members.get("outcome", USUAL_OUTCOME)

    def _model(self, member: str, build: Callable[[Any], type[WireMessage]], example: Any) -> type[WireMessage]:
        try:
            return build(example)
        except InvalidExample as error:
            shown = REQUIRED.get(member, 'outcome = {"damage": 2.5, "won": False}')
            raise TownletError(f"`{member}`: {error}", f"for example: {shown}", self.source.line(member)) from None

    def _check_functions(self) -> None:
        """Call each function for the examples."""
        if (self.features(deepcopy(self.example)) != self.features(deepcopy(self.example))).any():
            fix = "it must depend on the observation alone, not on time or chance"
            self._refuse("features", "returned different numbers for the same observation", fix)
        self.allowed(deepcopy(self.example))
        if self.observed:
            value = self.reward(self.scalar_fields(self.example), self.scalar_fields(self.example))
        else:
            value = self.reward(self.read_outcome(self._outcome))
        if abs(value) > 1:
            self._refuse("reward", f"is {value:g} for the example", "rewards lie between -1 and 1: divide it")

    def scalar_fields(self, observation: Fields) -> Fields:
        """The numbers and truth values of an observation, which are stored for reward(before, after)."""
        return {key: observation[key] for key in self.scalars}


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return count == 1
    return True


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except (OverflowError, TypeError):  # an integer above 10³⁰⁸, a complex number
        return False


def _shown(value: Any, limit: int = 60) -> str:
    """A value in a message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # its own __repr__ failed
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
