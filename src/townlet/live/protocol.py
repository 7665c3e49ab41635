"""Every message between a page and the server, as models: what is not described here is refused.

A message is one JSON object with a `type`. `VERSION` goes up when an older page would misread a newer server.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

VERSION: Final = 1
RATE: Final = 5.0  # frames a second
LARGEST: Final = 1 << 17  # bytes of one message of a client; a longer one closes the connection (1009)

Run = Annotated[str, Field(min_length=1, max_length=200, description="The name of a run.")]
Speed = Annotated[float, Field(ge=0.2, le=200, allow_inf_nan=False, description="Steps shown in a second.")]
Side = Annotated[Literal[0, 1], Field(description="Which of two towns side by side; 0 is the only one or the left.")]
Checkpoint = Annotated[str, Field(min_length=1, max_length=60, description="latest, best, or the name of one.")]


class Said(BaseModel):
    """What all messages have in common: nothing unknown, nothing half right."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# From the page


class Subscribe(Said):
    """Show me this, in the run's own world. Whatever was shown before ends."""

    type: Literal["subscribe"] = "subscribe"
    run: Run
    source: Literal["training", "checkpoint", "recording", "none"] = Field(
        description="Lives of training as they end; a checkpoint that plays for me; a life that was kept; only "
        "figures, which is all that there is of a run that is no town."
    )
    rows: int = Field(0, ge=0, le=64, description="So many rows of training as a wall of small towns, beside the town.")
    rate: float = Field(
        RATE, ge=0.2, le=RATE, allow_inf_nan=False, description="Frames in a second; of fewer each holds more moments."
    )


class Play(Said):
    """Go on."""

    type: Literal["play"] = "play"


class Pause(Said):
    """Stop where it is; nothing is lost."""

    type: Literal["pause"] = "pause"


class Step(Said):
    """One step further, or back where the life is known."""

    type: Literal["step"] = "step"
    by: int = Field(1, ge=-1000, le=1000, description="Steps.")


class Seek(Said):
    """Go to this moment of the life that is shown."""

    type: Literal["seek"] = "seek"
    moment: int = Field(ge=0, le=10**7, description="Steps since its first moment.")


class SetSpeed(Said):
    """Steps shown in a second."""

    type: Literal["set_speed"] = "set_speed"
    speed: Speed


class Select(Said):
    """Another row of training, or another life that was kept."""

    type: Literal["select"] = "select"
    row: int | None = Field(None, ge=0, le=2**22, description="A row that is watched.")
    recording: int | None = Field(None, ge=0, description="The number of a recording.")


class Reset(Said):
    """Begin another life."""

    type: Literal["reset"] = "reset"
    seed: int | None = Field(None, ge=0, lt=2**63, description="Which one; null: the next.")


class LoadCheckpoint(Said):
    """Who plays."""

    type: Literal["load_checkpoint"] = "load_checkpoint"
    checkpoint: Checkpoint
    side: Side = 0
    epsilon: float = Field(
        0.0, ge=0, le=1, allow_inf_nan=False, description="Share of random actions on both sides; 0 is greedy."
    )


class Compare(Said):
    """Two checkpoints in the same town side by side, or one again."""

    type: Literal["compare"] = "compare"
    checkpoint: Checkpoint | None = Field(description="Who plays on the right; null: nobody.")


class EditWorld(Said):
    """The text of a world: checked at once, and with `preview` played by the present agent."""

    type: Literal["edit_world"] = "edit_world"
    text: str = Field(max_length=LARGEST - 1000)
    number: int = Field(0, ge=0, description="Comes back with the answer, so that a page knows which text it is about.")
    preview: bool = False


FromPage = Annotated[
    Subscribe | Play | Pause | Step | Seek | SetSpeed | Select | Reset | LoadCheckpoint | Compare | EditWorld,
    Field(discriminator="type"),
]
FROM_PAGE: Final[TypeAdapter[FromPage]] = TypeAdapter(FromPage)


# From the server


class Hello(Said):
    """The first message."""

    type: Literal["hello"] = "hello"
    protocol: int = VERSION
    version: str = Field(description="Of Townlet.")
    run: str | None = Field(description="The run that the server was started for.")
    program: str = Field(description="What to type for `townlet` where the server was started.")
    role: str = Field("operator", description="Role of the link: operator, or viewer, which cannot save worlds.")


class RunStatus(Said):
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


class EpisodeStart(Said):
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


class Frame(Said):
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


class Wall(Said):
    """Many rows of training at this moment, as columns."""

    type: Literal["wall"] = "wall"
    env_steps: int
    cell: list[int]
    age: list[int]
    alive: list[float] = Field(description="The lowest lethal meter of each.")
    stage: list[int] | None = Field(description="Of the curriculum, where there is one.")
    sent: float


class Lived(Said):
    """A life of training has just ended. It is shown when the one on show is over, or at once if it is selected."""

    type: Literal["lived"] = "lived"
    run: str
    row: int
    env_steps: int
    length: int
    cause: str
    ended: float = Field(description="Seconds since 1970.")


class EpisodeEnd(Said):
    """A life that was shown is over."""

    type: Literal["episode_end"] = "episode_end"
    side: Side = 0
    episode: int
    length: int
    cause: str = Field(description="The meter that was empty, or time.")
    reward: float
    certificate: list[str] = Field(description="How it came to that, in sentences.")


class Metrics(Said):
    """Figures since the last such message."""

    type: Literal["metrics"] = "metrics"
    run: str
    series: dict[str, list[tuple[int, float]]]
    evaluations: list[dict[str, Any]]


class StageChange(Said):
    """A row of the curriculum went on or back."""

    type: Literal["stage_change"] = "stage_change"
    run: str
    env_steps: int
    row: int
    from_stage: int
    to_stage: int
    reason: str


class Alert(Said):
    """Something that a person should look at."""

    type: Literal["alert"] = "alert"
    run: str
    env_steps: int
    name: str
    message: str
    tip: str


class NewCheckpoint(Said):
    """A run was saved."""

    type: Literal["checkpoint"] = "checkpoint"
    run: str
    name: str
    env_steps: int
    score: float | None
    best: bool = Field(description="The best one now; no other is.")
    gone: list[str] = Field(description="Checkpoints that are no longer kept.")


class Checked(Said):
    """What is wrong with the text of a world; nothing, when it can be played."""

    type: Literal["checked"] = "checked"
    number: int
    mistakes: list[dict[str, Any]] = Field(description="Each: line, column, what, fix.")
    world: dict[str, Any] | None = Field(None, description="What is drawn, of a world that is played from now on.")


class Error(Said):
    """A message was refused, or something failed; the connection stays."""

    type: Literal["error"] = "error"
    what: str
    fix: str = ""


FromServer = (
    Hello | RunStatus | EpisodeStart | Frame | Wall | Lived | EpisodeEnd | Metrics | StageChange | Alert
    | NewCheckpoint | Checked | Error
)  # fmt: skip


def messages(union: Any) -> list[type[BaseModel]]:
    """The models of one direction, in the order in which they stand here."""
    return list(get_args(get_args(union)[0] if get_origin(union) is Annotated else union))


def documentation() -> dict[str, Any]:
    """Both directions as JSON Schema, for programs."""
    server: TypeAdapter[Any] = TypeAdapter(Annotated[FromServer, Field(discriminator="type")])
    return {
        "version": VERSION,
        "where": "a WebSocket at /ws; every message is one JSON object with a `type`",
        "largest": LARGEST,
        "from_page": FROM_PAGE.json_schema(),
        "from_server": server.json_schema(mode="serialization"),
    }
