"""WebSocket protocol of the page: one Pydantic model per message; anything else is refused.

Each message is a JSON object with a `type`. Increase `VERSION` when an older page would misread a newer server.
"""

from __future__ import annotations

import json
from html import escape
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo

VERSION: Final = 2
FRAME_RATE: Final = 5.0  # frames per second
MAX_MESSAGE_BYTES: Final = 1 << 17  # from a client; a longer message closes the connection with 1009

RunName = Annotated[str, Field(min_length=1, max_length=200, description="Name of a run.")]
Speed = Annotated[float, Field(ge=0.2, le=200, allow_inf_nan=False, description="Steps per second.")]
Side = Annotated[Literal[0, 1], Field(description="Which of two towns side by side; 0 is the left or only one.")]
CheckpointName = Annotated[str, Field(min_length=1, max_length=60, description="latest, best, or a checkpoint's name.")]


class Message(BaseModel):
    """Base of all messages: strict types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# Client to server


class Subscribe(Message):
    """Watch a run in its own world. Replaces the previous subscription."""

    type: Literal["subscribe"] = "subscribe"
    run: RunName
    source: Literal["training", "checkpoint", "recording", "none"] = Field(
        description="Episodes of training as they end, episodes of a checkpoint, a recorded episode, or metrics only "
        "(the only choice for Gymnasium runs)."
    )
    rows: int = Field(0, ge=0, le=64, description="Number of training rows in the overview of small towns.")
    rate: float = Field(
        FRAME_RATE, ge=0.2, le=FRAME_RATE, allow_inf_nan=False,
        description="Frames per second; at lower rates each frame contains more timesteps.",
    )  # fmt: skip


class Play(Message):
    """Resume playback."""

    type: Literal["play"] = "play"


class Pause(Message):
    """Pause playback."""

    type: Literal["pause"] = "pause"


class StepBy(Message):
    """Pause, and move by a number of steps."""

    type: Literal["step"] = "step"
    by: int = Field(1, ge=-1000, le=1000, description="Steps; negative to go back.")


class Seek(Message):
    """Move to a timestep of the current episode."""

    type: Literal["seek"] = "seek"
    timestep: int = Field(ge=0, le=10**7, description="Steps since the start of the episode.")


class SetSpeed(Message):
    """Set the playback speed."""

    type: Literal["set_speed"] = "set_speed"
    speed: Speed


class Select(Message):
    """Show the latest episode of a training row, or a recorded episode."""

    type: Literal["select"] = "select"
    row: int | None = Field(None, ge=0, le=2**22, description="Training row whose latest episodes are shown.")
    recording: int | None = Field(None, ge=0, description="Number of a recording.")


class Reset(Message):
    """Start another episode."""

    type: Literal["reset"] = "reset"
    seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of the town; null: the next one.")


class LoadCheckpoint(Message):
    """Show episodes of this checkpoint."""

    type: Literal["load_checkpoint"] = "load_checkpoint"
    checkpoint: CheckpointName
    side: Side = 0
    epsilon: float = Field(
        0.0, ge=0, le=1, allow_inf_nan=False, description="Probability of a random action, on both sides; 0 is greedy."
    )


class Compare(Message):
    """Show two checkpoints side by side in the same town, or only one again."""

    type: Literal["compare"] = "compare"
    checkpoint: CheckpointName | None = Field(description="Checkpoint on the right; null ends the comparison.")


class EditWorld(Message):
    """Check the text of a world; with `preview`, show the current checkpoint in it."""

    type: Literal["edit_world"] = "edit_world"
    text: str = Field(max_length=MAX_MESSAGE_BYTES - 1000)
    number: int = Field(0, ge=0, description="Returned with the answer, to match it to its text.")
    preview: bool = False


ClientMessage = Annotated[
    Subscribe | Play | Pause | StepBy | Seek | SetSpeed | Select | Reset | LoadCheckpoint | Compare | EditWorld,
    Field(discriminator="type"),
]
CLIENT_MESSAGE: Final[TypeAdapter[ClientMessage]] = TypeAdapter(ClientMessage)


# Server to client


class Hello(Message):
    """First message of a connection."""

    type: Literal["hello"] = "hello"
    protocol: int = VERSION
    version: str = Field(description="Version of Townlet.")
    run: str | None = Field(description="The run that the server was started for.")
    program: str = Field(description="Command that runs Townlet where the server was started.")
    role: str = Field("operator", description="Role of the link: operator, or viewer, which cannot save worlds.")


class RunStatus(Message):
    """State and progress of a run; the first message about it."""

    type: Literal["run_status"] = "run_status"
    run: str
    kind: Literal["town", "gym"] = Field(
        description="Environment of the run. Episodes of a gym (a Gymnasium environment) are served under /api."
    )
    state: Literal["running", "finished", "stopped", "interrupted", "diverged", "published"]
    env_steps: int
    budget: int = Field(description="Budget in env_steps; 0 if they are not limited.")
    episodes: int
    summary: list[str] = Field(description="Result of the run, in sentences.")


class EpisodeStart(Message):
    """An episode starts; its frames follow."""

    type: Literal["episode_start"] = "episode_start"
    source: str
    side: Side = 0
    episode: int = Field(description="Number of the episode, which its frames repeat.")
    row: int
    env_steps: int = Field(description="Training progress when the episode ended, or of the checkpoint.")
    length: int | None = Field(description="Steps, if the episode is complete.")
    label: str = Field(description="What is shown: row 2 of training, best checkpoint, …")
    cell_of: list[int] = Field(description="Cell of each affordance in this episode.")
    output_kind: Literal["values", "probabilities"]


class Frame(Message):
    """Timesteps of one episode as columns of equal length; an episode's first timestep has no transition (null)."""

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
    why: list[str | None] = Field(description="Explanation of the action.")
    sent: float = Field(description="Unix time, to measure the delay.")


class RowsOverview(Message):
    """Current state of many training rows, as columns."""

    type: Literal["rows_overview"] = "rows_overview"
    env_steps: int
    cell: list[int]
    age: list[int]
    lowest_meter: list[float] = Field(description="Lowest lethal meter of each row.")
    stage: list[int] | None = Field(description="Curriculum stage of each row, if there is a curriculum.")
    sent: float


class TrainingEpisode(Message):
    """An episode of training has just ended."""

    type: Literal["training_episode"] = "training_episode"
    run: str
    row: int
    env_steps: int
    length: int
    cause: str
    ended: float = Field(description="Unix time.")


class EpisodeEnd(Message):
    """The episode on screen has ended."""

    type: Literal["episode_end"] = "episode_end"
    side: Side = 0
    episode: int
    length: int
    cause: str = Field(description='The meter that was empty, or "time" if the step limit was reached.')
    reward: float = Field(description="Sum of the rewards.")
    certificate: list[str] = Field(description="Causes of the end, in sentences.")


class MetricsUpdate(Message):
    """Metrics recorded since the last such message."""

    type: Literal["metrics"] = "metrics"
    run: str
    series: dict[str, list[tuple[int, float]]]
    evaluations: list[dict[str, Any]]


class RowStageChange(Message):
    """A training row moved to another curriculum stage."""

    type: Literal["stage_change"] = "stage_change"
    run: str
    env_steps: int
    row: int
    from_stage: int
    to_stage: int
    reason: str


class AlertRaised(Message):
    """A monitor raised an alert."""

    type: Literal["alert"] = "alert"
    run: str
    env_steps: int
    name: str
    message: str
    tip: str


class CheckpointSaved(Message):
    """A checkpoint of a run; sent for existing ones after subscribing."""

    type: Literal["checkpoint"] = "checkpoint"
    run: str
    name: str
    env_steps: int
    score: float | None
    best: bool = Field(description="Whether it is the best checkpoint so far.")
    removed: list[str] = Field(description="Checkpoints that were deleted.")


class WorldChecked(Message):
    """Result of checking the text of a world."""

    type: Literal["world_checked"] = "world_checked"
    number: int
    errors: list[dict[str, Any]] = Field(description="Each with line, column, what and fix; empty if valid.")
    world: dict[str, Any] | None = Field(None, description="The world, if it is now shown.")


class Error(Message):
    """A message was refused or an operation failed; the connection stays open."""

    type: Literal["error"] = "error"
    what: str
    fix: str = ""


ServerMessage = (
    Hello | RunStatus | EpisodeStart | Frame | RowsOverview | TrainingEpisode | EpisodeEnd | MetricsUpdate
    | RowStageChange | AlertRaised | CheckpointSaved | WorldChecked | Error
)  # fmt: skip


def json_schema() -> dict[str, Any]:
    """JSON Schema of the messages in both directions."""
    server: TypeAdapter[Any] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])
    return {
        "version": VERSION,
        "transport": "a WebSocket at /ws; every message is one JSON object with a `type`",
        "max_message_bytes": MAX_MESSAGE_BYTES,
        "client": CLIENT_MESSAGE.json_schema(),
        "server": server.json_schema(mode="serialization"),
    }


LIMITS: Final = {"ge": "at least", "le": "at most", "lt": "below"}
PAGE_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Townlet: live protocol</title>
<link rel="icon" href="/static/icons/townlet.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css"></head>
<body><main class="reference">"""


def protocol_page() -> str:
    """Reference of all messages as an HTML page, generated from the models."""
    client_union, *_ = get_args(ClientMessage)
    client, server = (map(_message_section, get_args(union)) for union in (client_union, ServerMessage))
    parts = [
        PAGE_HEAD,
        "<h1>Live protocol</h1>",
        f"<p>Version {VERSION}. Connect a WebSocket to <code>/ws</code>. Every message is one JSON object with a "
        f"<code>type</code>, at most {MAX_MESSAGE_BYTES:,} bytes from a client. An invalid message is answered with "
        '<code>error</code>, and the connection stays open. As JSON Schema: <a href="/docs/protocol.json">'
        "protocol.json</a>.</p>",
        "<h2>Client to server</h2>" + "\n".join(client),
        "<h2>Server to client</h2>" + "\n".join(server),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _message_section(model: type[BaseModel]) -> str:
    name = model.model_fields["type"].default
    rows = "".join(_field_row(name, field) for name, field in model.model_fields.items() if name != "type")
    table = f"<table><tr><th>field</th><th>type</th><th>description</th></tr>{rows}</table>" if rows else ""
    return f'<section id="{name}"><h3><code>{name}</code></h3><p>{escape(model.__doc__ or "")}</p>{table}</section>'


def _field_row(name: str, field: FieldInfo) -> str:
    kind = str(getattr(field.annotation, "__name__", field.annotation)).replace("typing.", "")
    limits = [f"{word} {limit}" for part in field.metadata for key, word in LIMITS.items()
              if (limit := getattr(part, key, None)) is not None]  # fmt: skip
    default = [] if field.is_required() else [f"Default: {json.dumps(field.default)}."]
    text = " ".join([field.description or "", *default])
    cells = (f"<code>{escape(name)}</code>", escape(", ".join([kind, *limits])), escape(text))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
