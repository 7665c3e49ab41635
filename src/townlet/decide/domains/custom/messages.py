"""Messages of a custom domain, built from examples: the type of every field follows from the example's value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, create_model

from townlet.decide import domain
from townlet.decide.domain import MAX_KEYS, DecisionId, WireMessage

MAX_NUMBER: Final = 1e12
MAX_TEXT: Final = 1000  # characters
MAX_ITEMS: Final = 1000  # of a list
MAX_DEPTH: Final = 8  # of objects and lists in each other
OBSERVATION_KEYS: Final = ("type", "timestamp", "territoryId")
OUTCOME_KEYS: Final = ("type", "decisionId")

Fields = dict[str, Any]  # of a message, by their names as in JSON


class ObservationMessage(WireMessage):
    """What the game asks about. Sent by the game."""

    type: Literal["observation"] = "observation"
    timestamp: domain.Time
    territory_id: domain.TerritoryId


class OutcomeMessage(WireMessage):
    """The outcome of a decision. Sent by the game."""

    type: Literal["outcome"] = "outcome"
    decision_id: DecisionId


class NotExecuted(WireMessage):
    """A decision could not be carried out. Sent by the game."""

    type: Literal["not_executed"] = "not_executed"
    decision_id: DecisionId


class DecisionMessage(WireMessage):
    """Carry out this action. Sent by the service."""

    type: Literal["decision"] = "decision"
    decision_id: DecisionId
    confidence: domain.UnitInterval
    model_version: domain.Version


class Wait(WireMessage):
    """Do nothing, for this reason. Sent by the service."""

    type: Literal["wait"] = "wait"
    decision_id: DecisionId
    reason: domain.Reason


class InvalidExample(ValueError):
    """An example from which no type follows; the text says why."""


class Messages(NamedTuple):
    """The messages of one domain."""

    observation: type[WireMessage]
    outcome: type[WireMessage] | None  # None if outcomes follow from the next observation
    decision: type[WireMessage]

    @property
    def reports(self) -> tuple[type[WireMessage], ...]:
        return (NotExecuted,) if self.outcome is None else (self.outcome, NotExecuted)

    @property
    def every(self) -> tuple[type[WireMessage], ...]:
        return (self.observation, *self.reports, self.decision, Wait)


def observation_model(example: Any) -> type[WireMessage]:
    """The model of an observation; raises `InvalidExample`."""
    return _model("Observation", ObservationMessage, example, OBSERVATION_KEYS)


def outcome_model(example: Any) -> type[WireMessage]:
    """The model of the report of an outcome; raises `InvalidExample`."""
    return _model("Outcome", OutcomeMessage, example, OUTCOME_KEYS)


def decision_model(actions: Sequence[str | int]) -> type[WireMessage]:
    """The model of a decision for one of these actions."""
    action: Any = (Literal[tuple(actions)], ...)
    return create_model("Decision", __base__=DecisionMessage, __doc__=DecisionMessage.__doc__, action=action)


def read_fields(message: WireMessage, keys: Sequence[str]) -> Fields:
    """The domain's own fields of a message, without these keys; a copy, which code of users may change."""
    fields = message.model_dump()
    for key in keys:
        del fields[key]
    return fields


def _model(name: str, base: type[WireMessage], example: Any, reserved: Sequence[str]) -> type[WireMessage]:
    if not isinstance(example, Mapping) or not example:
        raise InvalidExample("it is not a dictionary of fields")
    if taken := [key for key in reserved if key in example]:
        raise InvalidExample(f"every message has a field '{taken[0]}'; choose another name")
    if len(example) + len(reserved) > MAX_KEYS:
        raise InvalidExample(f"{len(example)} fields are too many; group some in objects: {{'player': {{...}}}}")
    return create_model(name, __base__=base, __doc__=base.__doc__, **_fields(example, "", MAX_DEPTH))


def _fields(example: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    """Fields of a model; they are numbered, because a key of JSON need not be a name in Python."""
    if named := [key for key in example if not isinstance(key, str) or not key]:
        raise InvalidExample(f"the key {named[0]!r} is not a text")
    return {
        f"field{number}": (_type(value, f"{path}{key}", depth), Field(alias=key, examples=[value]))
        for number, (key, value) in enumerate(example.items())
    }


def _type(value: Any, path: str, depth: int) -> Any:
    if not depth:
        raise InvalidExample(f"'{path[:60]}…' is nested too deeply")
    for kind, build in TYPES.items():
        if isinstance(value, kind):
            return build(value, path, depth - 1)
    fix = "use a number, True or False, a text, a list or a dictionary"
    raise InvalidExample(f"'{path}' is {value!r:.40}, from which no type follows; {fix}")


def _list(value: Sequence[Any], path: str, depth: int) -> Any:
    if not value:
        raise InvalidExample(f"the list '{path}' is empty; show one item, from which its type follows")
    item: Any = _type(value[0], f"{path}[0]", depth)
    return Annotated[list[item], Field(max_length=MAX_ITEMS)]


def _number(value: float, path: str, _: int) -> Any:
    if not abs(value) <= MAX_NUMBER:
        raise InvalidExample(f"'{path}' is {value}; numbers lie between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    return Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


def _object(value: Mapping[Any, Any], path: str, depth: int) -> Any:
    return create_model("Object", __base__=WireMessage, **_fields(value, f"{path}.", depth))


TYPES: Final[Mapping[type | tuple[type, ...], Callable[[Any, str, int], Any]]] = {  # in this order: a bool is an int
    bool: lambda *_: bool,
    (int, float): _number,
    str: lambda *_: Annotated[str, Field(max_length=MAX_TEXT)],
    (list, tuple): _list,
    Mapping: _object,
}
