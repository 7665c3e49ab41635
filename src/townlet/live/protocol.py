"""WebSocket protocol of the page: one Pydantic model per message; anything else is refused.

Each message is a JSON object with a `type`. Increase `VERSION` when an older page would misread a newer server.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter

from townlet.live.agents import AgentChoice
from townlet.live.messages import FRAME_RATE, MAX_MESSAGE_BYTES, Message, OutputKind, RunName, Side, Speed
from townlet.live.world_editing import Change

VERSION: Final = 3


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


class Watch(Message):
    """Show episodes of these agents, one or two side by side in the same town."""

    type: Literal["watch"] = "watch"
    agents: list[AgentChoice] = Field(min_length=1, max_length=2, description="The left or only one first.")


class Act(Message):
    """The next action of a viewer who plays. Other agents on screen take a step, too."""

    type: Literal["act"] = "act"
    action: int = Field(ge=0, le=1000)


class Ask(Message):
    """Ask why the agent does not take another action, or does not use a certain affordance."""

    type: Literal["ask"] = "ask"
    number: int = Field(0, ge=0, description="Returned with the answer.")
    side: Side = 0
    timestep: int = Field(ge=0, le=10**7, description="Steps since the start of the episode.")
    action: int | None = Field(None, ge=0, le=1000)
    affordance: str | None = Field(None, max_length=40)


class EditWorld(Message):
    """Check the text of a world, after a change if one is given; with `preview`, show the current agents in it."""

    type: Literal["edit_world"] = "edit_world"
    text: str = Field(max_length=MAX_MESSAGE_BYTES - 2000)
    change: Change | None = None
    number: int = Field(0, ge=0, description="Returned with the answer, to match it to its text.")
    preview: bool = False


ClientMessage = Annotated[
    Subscribe | Play | Pause | StepBy | Seek | SetSpeed | Select | Reset | Watch | Act | Ask | EditWorld,
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
    role: str = Field(
        "operator",
        description="Role of the link: operator, or viewer, which cannot save worlds, train or start tournaments.",
    )


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
    label: str = Field(description="What is shown: town 2 of the training, best checkpoint, …")
    name: str = Field(description="First name of the agent.")
    seed: int | None = Field(description="Seed of the town, if the episode is played on request.")
    human: bool = Field(False, description="Whether the viewer chooses the actions.")
    checkpoint: str | None = Field(None, description="Name of the checkpoint that plays, if the episode is played.")
    cell_of: list[int] = Field(description="Cell of each affordance in this episode.")
    output_kind: OutputKind


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
    events: list[list[str] | None] = Field(description="What happened for the story of this life, in sentences.")
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
    errors: list[dict[str, Any]] = Field(description="Each with line, column, path, what and fix; empty if valid.")
    text: str | None = Field(None, description="The text after the change that was requested.")
    spec: dict[str, Any] | None = Field(None, description="All settings of a valid world, as in world files.")
    description: str = Field("", description="Of a valid world; a sentence about its map and places if it has none.")
    differences: list[str] = Field([], description="Why the watched agent cannot play in it, in sentences.")
    unobserved: list[str] = Field([], description="Places and meters that it does not see, if it can play.")
    missing: list[str] = Field([], description="Places of its training that do not exist here, if it can play.")
    world: dict[str, Any] | None = Field(None, description="The world, if it is now shown.")


class WorldVerdict(Message):
    """How long scripted agents survive in the text that was checked last."""

    type: Literal["world_verdict"] = "world_verdict"
    number: int
    livable: bool
    sentences: list[str]


class QuestionAnswer(Message):
    """Answer to `ask`."""

    type: Literal["answer"] = "answer"
    number: int
    question: str
    sentences: list[str]
    options: list[dict[str, Any]] = Field(
        description="What was compared: label; the chance to survive the next 100 steps and its interval of 95%, `low` "
        "to `high`, between 0 and 1; and the mean number of steps that were survived."
    )


class Error(Message):
    """A message was refused or an operation failed; the connection stays open."""

    type: Literal["error"] = "error"
    what: str
    fix: str = ""
    number: int | None = Field(None, description="Number of the `edit_world` that was refused.")


ServerMessage = (
    Hello | RunStatus | EpisodeStart | Frame | RowsOverview | TrainingEpisode | EpisodeEnd | MetricsUpdate
    | RowStageChange | AlertRaised | CheckpointSaved | WorldChecked | WorldVerdict | QuestionAnswer | Error
)  # fmt: skip
