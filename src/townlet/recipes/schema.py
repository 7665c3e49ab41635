"""What may stand in a recipe: one frozen model per part, each key with its meaning."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from townlet.agents.registry import entry, settings_models
from townlet.agents.settings import AgentSettings
from townlet.config.models import RegistryUnion, SearchRange, StrictModel
from townlet.curriculum.spec import CurriculumSpec
from townlet.explore.spec import ExploreSpec
from townlet.gym.spec import EnvSpec
from townlet.nets.spec import MlpSpec, NetworkSpec
from townlet.rng import MAX_SEED
from townlet.town.state import StartsSpec

LEAST_BETWEEN: Final = 1000  # env_steps between evaluations that are given as a share
DEVICE: Final = r"^(cpu|cuda(:\d+)?)$"
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Every = Annotated[float, Field(gt=0)]


class Result(StrictModel):
    """What is known of a recipe, and how it was found."""

    what: str = Field(
        min_length=1,
        max_length=78,
        pattern=r"^[^\n]*$",
        description="What was measured, in one line of words and figures.",
    )
    command: str = Field("", max_length=400, description="The command that gives it again.")


class Budget(StrictModel):
    """When a run ends: at whichever of these comes first."""

    env_steps: int | None = Field(
        None,
        ge=1,
        description="Steps of all rows together. Raise it to learn longer; schedules go by these alone and stretch.",
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Time on the clock, a limit and nothing else: what is learned until then does not depend on it, "
        "but where a run ends does. Raise it to let slower machines reach env_steps.",
    )
    episodes: int | None = Field(None, ge=1, description="Finished episodes of all rows together.")
    threshold: Literal[True] | float | None = Field(
        None,
        description="Stop at the first evaluation that reaches this; true is the environment's own. Raise it to ask "
        "for a better agent.",
    )
    train_threshold: Literal[True] | float | None = Field(
        None,
        description="Stop when the mean of the last 100 episodes of training reaches this, exploration and rewards "
        "that wrappers add included; true as above. Raise it to ask for a better agent.",
    )

    @model_validator(mode="after")
    def _ends(self) -> Budget:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(f"nothing ends this run; give one of {', '.join(type(self).model_fields)}")
        return self


class Evaluation(StrictModel):
    """How a run measures itself: on towns of its own, without exploring and without exploring starts."""

    every: Every = Field(
        0.1,
        description="Up to 1 a share of the budget but no less than 1000 env_steps, above it env_steps. Lower it for "
        "a finer curve that costs more. The end of a run is always evaluated.",
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description="Nothing is evaluated before: up to 1 a share of the budget, above it env_steps. Raise it where "
        "the beginning is slow to measure and says little.",
    )
    episodes: int = Field(100, ge=1, le=100_000, description="Raise it for a surer mean that takes longer.")
    metric: Literal["auto", "length", "return"] = Field(
        "auto",
        description="What makes an evaluation the best and what `budget.threshold` is compared with; auto is length in "
        "towns and return elsewhere.",
    )
    deterministic: bool = Field(True, description="The best action always; false draws from the policy.")
    change: dict[str, Any] = Field(
        default_factory=dict, description="Further changes of the world for evaluation only, as in `change`."
    )
    seed: Seed = Field(10_001, description="Another number gives other towns to be measured on.")


class PlateauSpec(StrictModel):
    """Another value of a setting of the agent, where the score of evaluations makes no progress."""

    key: str = Field(
        min_length=1, max_length=80, description="The setting of the agent that is changed, one of those in tune.yaml."
    )
    patience: Annotated[float, Field(gt=0)] = Field(
        0.2,
        description="Without progress for this long the setting is changed, and again after as long: up to 1 a share "
        "of the budget, above it env_steps. Raise it to wait longer.",
    )
    least: float = Field(
        0.0, ge=0, description="Progress is a score this much above the best. Raise it to call less of it progress."
    )
    multiply: float | None = Field(None, ge=0, description="Factor on the value. Further from 1 it changes more.")
    add: float | None = Field(None, description="Added to the value, if nothing is multiplied or set.")
    set: float | None = Field(None, description="The new value, if nothing is multiplied or added.")
    low: float | None = Field(None, description="It never falls below this. Raise it to stop lowering sooner.")
    high: float | None = Field(None, description="It never rises above this. Lower it to stop raising sooner.")
    revert: bool = Field(False, description="Put the value from before back as soon as there is progress again.")

    @model_validator(mode="after")
    def _makes_sense(self) -> PlateauSpec:
        if sum(way is not None for way in (self.multiply, self.add, self.set)) != 1:
            raise ValueError("give one of multiply, add and set")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` ({self.low:g}) is above `high` ({self.high:g})")
        return self

    def after(self, value: float | None) -> float:
        """What becomes of a value; without one only `set` has an answer. Whole numbers stay whole."""
        if self.set is not None or value is None:
            new = self.set or 0.0
        else:
            new = value * self.multiply if self.multiply is not None else value + (self.add or 0.0)
        new = new if self.low is None else max(self.low, new)
        new = new if self.high is None else min(self.high, new)
        return round(new) if isinstance(value, int) else new


class Checkpoints(StrictModel):
    """When a run is saved; also at a new best evaluation and at the end."""

    minutes: float = Field(2.0, gt=0, description="Raise it to save less often and to lose more when killed.")
    every_episodes: int | None = Field(None, ge=1, description="Save after this many episodes as well.")
    keep_every: int | None = Field(
        None, ge=1, description="Keep a checkpoint each time this many env_steps went by; else only last and best."
    )


class Metrics(StrictModel):
    """What a run writes down about itself."""

    every: Every = Field(
        0.01,
        description="Up to 1 a share of the budget, above it env_steps. Lower it for finer curves in larger files.",
    )
    whole_episodes: int = Field(
        20, ge=0, description="Episodes kept whole in each interval; of the others only counts, means and quantiles."
    )
    tensorboard: bool = Field(True, description="Write for TensorBoard as well.")
    report: bool = Field(
        True, description="Write report.md and report.html at the end. Without, it ends a few seconds sooner."
    )
    wandb: bool = Field(
        False,
        description="Send it to Weights & Biases as well, by `pip install 'townlet[wandb]'`; with WANDB_MODE=offline "
        "it stays in the run's folder.",
    )


class Filming(StrictModel):
    """Videos of evaluation episodes: at the start, at every best evaluation and at the end."""

    episodes: int = Field(
        0, ge=0, le=100, description="Episodes in each video; 0 films nothing. Raise it to see more; it costs time."
    )
    steps: int = Field(
        1000, ge=1, le=100_000, description="Steps of an episode after which the film ends. Lower it to save time."
    )


def _as_results(given: Any) -> Any:
    """A text stands for one result without a command."""
    return ({"what": given},) if isinstance(given, str) else given


def _as_list(given: Any) -> Any:
    """A mapping stands for a list with nothing else in it."""
    return (given,) if isinstance(given, dict) else given


def _known_device(name: str) -> str:
    if not re.match(DEVICE, name):
        raise ValueError(f"there is no device '{name[:40]}'; write cpu, cuda or cuda:1")
    return name


class Recipe(StrictModel):
    """One experiment, whole: after inheritance, variant and command line."""

    env: str = Field(
        min_length=1, max_length=80, description="The environment: a shipped world or a name of one's own."
    )
    variant: str = Field("", max_length=80, description="Which variant of the recipe this is; set when it is loaded.")
    world: str | None = Field(
        None, min_length=1, description="A shipped world, or a world's file seen from the recipe's; `env` by default."
    )
    gym: EnvSpec | None = Field(
        None, description="How the Gymnasium environment `env` is made and seen; left out, `env` is a town."
    )
    change: dict[str, Any] = Field(
        default_factory=dict,
        description="Changes of the world: {max_steps: 1000, affordances: {Bed: {price: .02}}}. Lists are replaced.",
    )
    potential: float = Field(
        0.0,
        ge=0,
        description="Weight of the potential of all needs, beside the world's own rewards: guidance that keeps what is "
        "best. Raise it for more guidance; 0 is none. A world that names this reward itself keeps its own.",
    )
    reward_threshold: float | None = Field(
        None, description="The mean return from which on it counts as solved; the environment's own by default."
    )
    description: str = Field("", max_length=400, description="One or two sentences for people.")
    tuned: bool = Field(False, description="Whether its settings were searched for rather than taken from a textbook.")
    result: Annotated[
        tuple[Result, ...], BeforeValidator(_as_results, json_schema_input_type=str | tuple[Result, ...])
    ] = Field((), description="What is known of its result; a text, or a list of {what, command}.")

    rows: Literal["auto"] | Annotated[int, Field(ge=1, le=2**22)] = Field(
        "auto", description="Towns that live side by side. Raise it for smoother updates and more speed, less often."
    )
    seed: Seed = Field(0, description="Another number gives another run of the same experiment.")
    engine: Literal["auto", "numba", "torch", "compiled"] = Field("auto", description="What steps the town.")
    device: Annotated[str, AfterValidator(_known_device)] = Field(
        "cpu", json_schema_extra={"pattern": DEVICE}, description="Where tensors live: cpu, cuda or cuda:1."
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = Field(
        "auto",
        description="Threads of torch; auto is one where updates are small, else one for each core. Another number may "
        "give other last bits, so a run writes down the number that it was.",
    )
    starts: StartsSpec | None = Field(None, description="Exploring starts, in training only; off by default.")

    agent: Annotated[AgentSettings, RegistryUnion(settings_models)] = Field(
        description="The algorithm by `name` and its settings."
    )
    network: NetworkSpec = Field(default_factory=lambda: MlpSpec(name="mlp"), description="The network by `name`.")
    explore: ExploreSpec = Field(
        default_factory=ExploreSpec,
        description="How actions are tried (`choose`) and novelty is paid (`bonus`, `weight`).",
    )
    curriculum: CurriculumSpec | None = Field(None, description="Stages of difficulty by row; off by default.")
    init_from: str | None = Field(None, min_length=1, description="A run whose weights to begin with.")

    budget: Budget = Field(description="When the run ends.")
    evaluation: Evaluation = Field(default_factory=Evaluation, description="How the run measures itself.")
    plateau: Annotated[
        tuple[PlateauSpec, ...],
        BeforeValidator(_as_list, json_schema_input_type=PlateauSpec | tuple[PlateauSpec, ...]),
    ] = Field((), description="Settings that change where evaluations make no progress; one mapping, or a list.")
    checkpoints: Checkpoints = Field(default_factory=Checkpoints, description="When the run is saved.")
    metrics: Metrics = Field(default_factory=Metrics, description="What is written down.")
    video: Filming = Field(default_factory=Filming, description="What is filmed; nothing by default.")
    sweep: dict[str, SearchRange] = Field(
        default_factory=dict,
        description="What `townlet sweep` searches, by path: {agent.lr: {low: 1e-5, high: 1e-2}}. Left out, what is "
        "known to matter for the agent.",
    )

    @property
    def title(self) -> str:
        """What people call it: ENV:VARIANT."""
        return f"{self.env}:{self.variant}" if self.variant else self.env

    @property
    def metric(self) -> Literal["length", "return"]:
        """What makes an evaluation the best, also where the recipe says auto."""
        if self.evaluation.metric == "auto":
            return "length" if self.gym is None else "return"
        return self.evaluation.metric

    @property
    def own_files(self) -> list[str]:
        """Python files of the user's own that it needs: of wrappers and of its agent."""
        wrappers = self.gym.own_files if self.gym else []
        return wrappers if self.agent.file is None else [*wrappers, self.agent.file]

    @property
    def row_count(self) -> int:
        """The number of rows, also where the recipe says auto."""
        return entry(self.agent.name).rows if self.rows == "auto" else self.rows

    @property
    def thread_count(self) -> int:
        """The number of threads, also where the recipe says auto."""
        if self.threads != "auto":
            return self.threads
        if self.device.startswith("cuda"):
            return 1  # host threads that wait for each other by spinning make some processes four times slower
        return self.agent.threads(self.network) or os.cpu_count() or 1

    def settled(self) -> Recipe:
        """The same with numbers for all that `auto` or a share leaves open: for the run's own file."""
        agent = self.agent.resolved(self.row_count)
        return self.model_copy(update={"rows": self.row_count, "threads": self.thread_count, "agent": agent})

    @property
    def evaluate_every(self) -> int:
        """Env_steps between evaluations; shares of a tiny budget would measure more than they train."""
        every = self.evaluation.every
        return max(self.in_steps(every), LEAST_BETWEEN if every <= 1 else 1)

    def in_steps(self, every: float) -> int:
        """A moment or interval in env_steps: up to 1 it is a share of the budget."""
        return max(1, round(every * (self.budget.env_steps or 0) if every <= 1 else every))
