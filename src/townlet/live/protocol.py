"""Every message between a page and the server, as models: what is not described here is refused.

A message is one JSON object with a `type`. `VERSION` goes up when an older page would misread a newer server.
"""

from __future__ import annotations

import json
from html import escape
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

VERSION: Final = 1
FRAME_RATE: Final = 5.0  # frames a second
MAX_MESSAGE_BYTES: Final = 1 << 17  # bytes of one message of a client; a longer one closes the connection (1009)

Run = Annotated[str, Field(min_length=1, max_length=200, description="The name of a run.")]
Speed = Annotated[float, Field(ge=0.2, le=200, allow_inf_nan=False, description="Steps shown in a second.")]
Side = Annotated[Literal[0, 1], Field(description="Which of two towns side by side; 0 is the only one or the left.")]
Checkpoint = Annotated[str, Field(min_length=1, max_length=60, description="latest, best, or the name of one.")]


class Message(BaseModel):
    """What all messages have in common: nothing unknown, nothing half right."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# From the page


class Subscribe(Message):
    """Show me this, in the run's own world. Whatever was shown before ends."""

    type: Literal["subscribe"] = "subscribe"
    run: Run
    source: Literal["training", "checkpoint", "recording", "none"] = Field(
        description="Lives of training as they end; a checkpoint that plays for me; a life that was kept; only "
        "figures, which is all that there is of a run that is no town."
    )
    rows: int = Field(0, ge=0, le=64, description="So many rows of training as a wall of small towns, beside the town.")
    rate: float = Field(
        FRAME_RATE,
        ge=0.2,
        le=FRAME_RATE,
        allow_inf_nan=False,
        description="Frames in a second; of fewer each holds more moments.",
    )


class Play(Message):
    """Go on."""

    type: Literal["play"] = "play"


class Pause(Message):
    """Stop where it is; nothing is lost."""

    type: Literal["pause"] = "pause"


class StepBy(Message):
    """One step further, or back where the life is known."""

    type: Literal["step"] = "step"
    by: int = Field(1, ge=-1000, le=1000, description="Steps.")


class Seek(Message):
    """Go to this moment of the life that is shown."""

    type: Literal["seek"] = "seek"
    moment: int = Field(ge=0, le=10**7, description="Steps since its first moment.")


class SetSpeed(Message):
    """Steps shown in a second."""

    type: Literal["set_speed"] = "set_speed"
    speed: Speed


class Select(Message):
    """Another row of training, or another life that was kept."""

    type: Literal["select"] = "select"
    row: int | None = Field(None, ge=0, le=2**22, description="A row that is watched.")
    recording: int | None = Field(None, ge=0, description="The number of a recording.")


class Reset(Message):
    """Begin another life."""

    type: Literal["reset"] = "reset"
    seed: int | None = Field(None, ge=0, lt=2**63, description="Which one; null: the next.")


class LoadCheckpoint(Message):
    """Who plays."""

    type: Literal["load_checkpoint"] = "load_checkpoint"
    checkpoint: Checkpoint
    side: Side = 0
    epsilon: float = Field(
        0.0, ge=0, le=1, allow_inf_nan=False, description="Share of random actions on both sides; 0 is greedy."
    )


class Compare(Message):
    """Two checkpoints in the same town side by side, or one again."""

    type: Literal["compare"] = "compare"
    checkpoint: Checkpoint | None = Field(description="Who plays on the right; null: nobody.")


class EditWorld(Message):
    """The text of a world: checked at once, and with `preview` played by the present agent."""

    type: Literal["edit_world"] = "edit_world"
    text: str = Field(max_length=MAX_MESSAGE_BYTES - 1000)
    number: int = Field(0, ge=0, description="Comes back with the answer, so that a page knows which text it is about.")
    preview: bool = False


ClientMessage = Annotated[
    Subscribe | Play | Pause | StepBy | Seek | SetSpeed | Select | Reset | LoadCheckpoint | Compare | EditWorld,
    Field(discriminator="type"),
]
CLIENT_MESSAGE: Final[TypeAdapter[ClientMessage]] = TypeAdapter(ClientMessage)


# From the server


class Hello(Message):
    """The first message."""

    type: Literal["hello"] = "hello"
    protocol: int = VERSION
    version: str = Field(description="Of Townlet.")
    run: str | None = Field(description="The run that the server was started for.")
    program: str = Field(description="What to type for `townlet` where the server was started.")
    role: str = Field("operator", description="Role of the link: operator, or viewer, which cannot save worlds.")


class RunStatus(Message):
    """How a run goes; the first message about it."""

    type: Literal["run_status"] = "run_status"
    run: str
    kind: Literal["town", "gym"] = Field(
        description="What it trains in. Of a gym, a Gymnasium environment, there are figures; episodes are at /api."
    )
    state: Literal["running", "finished", "interrupted", "diverged", "published"]
    env_steps: int
    budget: int = Field(description="In env_steps; 0 where time alone limits it.")
    episodes: int
    told: list[str] = Field(description="What it came to, in sentences.")


class EpisodeStart(Message):
    """A life begins; frames of it follow. Cells of a layout that varies come with it."""

    type: Literal["episode_start"] = "episode_start"
    source: str
    side: Side = 0
    episode: int = Field(description="Counts up; frames name it.")
    row: int
    env_steps: int = Field(description="How far training was when it ended; of a checkpoint, how far that was.")
    length: int | None = Field(description="Steps, where the life is over already.")
    who: str = Field(description="In words: row 2 of training, the best checkpoint, …")
    cell_of: list[int] = Field(description="Where each place stands.")
    outputs_are: Literal["values", "probabilities"]


class Frame(Message):
    """Moments of one life, as columns of equal length; what led to the first moment of a life is null."""

    type: Literal["frame"] = "frame"
    side: Side = 0
    episode: int
    age: list[int]
    cell: list[int]
    hour: list[int]
    progress: list[int]
    using: list[int]
    meters: list[list[float]]
    action: list[int | None]
    outputs: list[list[float] | None]
    mask: list[list[bool] | None]
    reward: list[float | None]
    components: list[list[float] | None]
    why: list[str | None] = Field(description="One sentence on the action.")
    sent: float = Field(description="Seconds since 1970, to know how old it is.")


class RowsOverview(Message):
    """Many rows of training at this moment, as columns."""

    type: Literal["wall"] = "wall"
    env_steps: int
    cell: list[int]
    age: list[int]
    alive: list[float] = Field(description="The lowest lethal meter of each.")
    stage: list[int] | None = Field(description="Of the curriculum, where there is one.")
    sent: float


class TrainingEpisode(Message):
    """A life of training has just ended. It is shown when the one on show is over, or at once if it is selected."""

    type: Literal["lived"] = "lived"
    run: str
    row: int
    env_steps: int
    length: int
    cause: str
    ended: float = Field(description="Seconds since 1970.")


class EpisodeEnd(Message):
    """A life that was shown is over."""

    type: Literal["episode_end"] = "episode_end"
    side: Side = 0
    episode: int
    length: int
    cause: str = Field(description="The meter that was empty, or time.")
    reward: float
    certificate: list[str] = Field(description="How it came to that, in sentences.")


class MetricsUpdate(Message):
    """Figures since the last such message."""

    type: Literal["metrics"] = "metrics"
    run: str
    series: dict[str, list[tuple[int, float]]]
    evaluations: list[dict[str, Any]]


class RowStageChange(Message):
    """A row of the curriculum went on or back."""

    type: Literal["stage_change"] = "stage_change"
    run: str
    env_steps: int
    row: int
    from_stage: int
    to_stage: int
    reason: str


class AlertRaised(Message):
    """Something that a person should look at."""

    type: Literal["alert"] = "alert"
    run: str
    env_steps: int
    name: str
    message: str
    tip: str


class CheckpointSaved(Message):
    """A run was saved."""

    type: Literal["checkpoint"] = "checkpoint"
    run: str
    name: str
    env_steps: int
    score: float | None
    best: bool = Field(description="The best one now; no other is.")
    gone: list[str] = Field(description="Checkpoints that are no longer kept.")


class WorldChecked(Message):
    """What is wrong with the text of a world; nothing, when it can be played."""

    type: Literal["checked"] = "checked"
    number: int
    mistakes: list[dict[str, Any]] = Field(description="Each: line, column, what, fix.")
    world: dict[str, Any] | None = Field(None, description="What is drawn, of a world that is played from now on.")


class Error(Message):
    """A message was refused, or something failed; the connection stays."""

    type: Literal["error"] = "error"
    what: str
    fix: str = ""


ServerMessage = (
    Hello | RunStatus | EpisodeStart | Frame | RowsOverview | TrainingEpisode | EpisodeEnd | MetricsUpdate
    | RowStageChange | AlertRaised | CheckpointSaved | WorldChecked | Error
)  # fmt: skip


def message_models(union: Any) -> list[type[BaseModel]]:
    """The models of one direction, in the order in which they stand here."""
    return list(get_args(get_args(union)[0] if get_origin(union) is Annotated else union))


def json_schema() -> dict[str, Any]:
    """Both directions as JSON Schema, for programs."""
    server: TypeAdapter[Any] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])
    return {
        "version": VERSION,
        "where": "a WebSocket at /ws; every message is one JSON object with a `type`",
        "largest": MAX_MESSAGE_BYTES,
        "from_page": CLIENT_MESSAGE.json_schema(),
        "from_server": server.json_schema(mode="serialization"),
    }


PAGE_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Townlet: the protocol of the live page</title>
<link rel="icon" href="/static/icons/townlet.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css"><link rel="stylesheet" href="/static/manual.css"></head>
<body><main class="manual">"""


def protocol_page() -> str:
    """Every message of both directions, with what its fields are."""
    parts = [
        PAGE_HEAD,
        "<h1>The protocol of the live page</h1>",
        f"<p>Version {VERSION}. A WebSocket at <code>/ws</code>; every message is one JSON object with a "
        f"<code>type</code>, at most {MAX_MESSAGE_BYTES:,} bytes from a client. What is not understood is answered with"
        " <code>error</code>, and the conversation goes on. The same as JSON Schema: "
        '<a href="/docs/protocol.json">protocol.json</a>.</p>',
        "<h2>From a page</h2>",
        *map(_message_section, message_models(ClientMessage)),
        "<h2>From the server</h2>",
        *map(_message_section, message_models(ServerMessage)),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _message_section(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    fields = {name: about for name, about in schema["properties"].items() if name != "type"}
    required = set(schema.get("required", ()))
    rows = "".join(_field_row(name, about, name in required) for name, about in fields.items())
    table = f"<table><tr><th>field</th><th>type</th><th>what it is</th></tr>{rows}</table>" if rows else ""
    name = str(schema["properties"]["type"]["const"])
    return f'<section id="{name}"><h3><code>{name}</code></h3><p>{escape(schema["description"])}</p>{table}</section>'


def _field_row(name: str, about: dict[str, Any], required: bool) -> str:
    said = escape(about.get("description", ""))
    if not required:
        said = f"{said} Default: {escape(_value_text(about.get('default')))}.".strip()
    return f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type_text(about))}</td><td>{said}</td></tr>"


def _type_text(about: dict[str, Any]) -> str:
    """A JSON type in words, with its limits."""
    if "anyOf" in about:
        return " or ".join(_type_text(part) for part in about["anyOf"])
    if "enum" in about:
        return ", ".join(_value_text(value) for value in about["enum"])
    kind = str(about.get("type", "anything"))
    if kind == "array":
        return f"list of {_type_text(about['items'])}" if "items" in about else "list"
    limits = [f"{words} {about[key]}" for key, words in (("minimum", "from"), ("maximum", "to")) if key in about]
    return " ".join([kind, *limits])


def _value_text(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
