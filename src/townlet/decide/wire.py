"""What messages of every domain have in common. What no model describes is refused; keys are in camel case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from townlet.config.scalar import shorten
from townlet.decide.domain import Malformed

LATEST: Final = 1e11  # seconds; a clock beyond counts milliseconds
KEYS: Final = 32  # of a message; more are refused before anybody looks at them

DecisionId = Annotated[str, Field(min_length=1, max_length=100, description="The name of a decision.")]
Time = Annotated[float, Field(ge=0, le=LATEST, description="Seconds by the game's clock.")]
TerritoryId = Annotated[
    str,
    Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$", description="Whose decisions belong together."),
]
Share = Annotated[float, Field(ge=0, le=1)]
Version = Annotated[int, Field(ge=0, lt=2**53)]
Reason = Annotated[str, Field(max_length=200)]


class Said(BaseModel):
    """What all messages have in common: nothing unknown, nothing half right, no NaN or infinity."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        serialize_by_alias=True,
        hide_input_in_errors=True,
    )


class Ping(Said):
    """Are you there? Answered by a pong. The game says this."""

    type: Literal["ping"] = "ping"


class OutcomeAck(Said):
    """What was reported is kept, now and after every crash. The service says this."""

    type: Literal["outcome_ack"] = "outcome_ack"
    decision_id: DecisionId


class Refused(Said):
    """What was wrong with a message: a code for programs, words for people. The service says this."""

    type: Literal["error"] = "error"
    code: str = Field(pattern="^[A-Z_]{1,40}$")
    message: str = Field(max_length=1000)


ALWAYS: Final[tuple[type[Said], ...]] = (Ping, OutcomeAck, Refused)
S = TypeVar("S", bound=Said)


def understood(model: type[S], message: Mapping[str, Any], code: str) -> S:
    """The message as this model; raises `Malformed` with the code and the first field that is wrong."""
    if len(message) > KEYS:
        raise Malformed(code, f"{len(message)} keys are too many")
    try:
        return model.model_validate(message if isinstance(message, dict) else dict(message))
    except ValidationError as error:
        raise Malformed(code, first_wrong(error)) from None


def first_wrong(error: ValidationError) -> str:
    """The first field that is wrong, and why."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = shorten(".".join(str(part) for part in found["loc"]), 80)
    return f"{field or 'message'}: {found['msg'].removeprefix('Value error, ')}"


def schemas(messages: Sequence[type[Said]]) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each message, by its `type`."""
    return {str(m.model_fields["type"].default): m.model_json_schema() for m in (*messages, *ALWAYS)}
