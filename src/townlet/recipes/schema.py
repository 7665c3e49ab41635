"""Schema of a recipe: one frozen model per section, with a description of every key."""

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
from townlet.gym.settings import GymSettings
from townlet.nets.spec import MlpSpec, NetworkSpec
from townlet.rng import MAX_SEED
from townlet.town.state import StartsSpec

MIN_EVALUATION_INTERVAL: Final = 1000  # env_steps, if the interval is given as a fraction
DEVICE_PATTERN: Final = r"^(cpu|cuda(:\d+)?)$"
INTERVAL_UNIT: Final = "a fraction of the budget if at most 1, else env_steps"
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Interval = Annotated[float, Field(gt=0)]


class KnownResult(StrictModel):
    """A measured result of a recipe, and the command that reproduces it."""

    what: str = Field(min_length=1, max_length=78, pattern=r"^[^\n]*$", description="The result in one line of text.")
    command: str = Field("", max_length=400, description="The command that reproduces it.")


class Budget(StrictModel):
    """When a run ends: at the first of these limits."""

    env_steps: int | None = Field(
        None,
        ge=1,
        description="Steps of all rows together. Raise it to train longer; schedules depend on it and stretch with it.",
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Wall-clock limit. It only decides when a run ends, not what is learned before. Raise it so that "
        "slower machines reach env_steps.",
    )
    episodes: int | None = Field(
        None, ge=1, description="Finished episodes of all rows together. Raise it to train longer."
    )
    threshold: Literal[True] | float | None = Field(
        None,
        description="Stop at the first evaluation that reaches this score; true means the goal of the recipe. "
        "Raise it to require a better agent.",
    )
    train_threshold: Literal[True] | float | None = Field(
        None,
        description="Stop when the mean of the last 100 training episodes reaches this score, with exploration and "
        "rewards that wrappers add; true as in `threshold`. Raise it to require a better agent.",
    )

    @model_validator(mode="after")
    def _check(self) -> Budget:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(f"nothing ends this run; set one of {', '.join(type(self).model_fields)}")
        return self


class EvaluationSettings(StrictModel):
    """How a run is evaluated: in separate environments, without exploration or exploring starts."""

    every: Interval = Field(
        0.1,
        description=f"Interval between evaluations: {INTERVAL_UNIT}; a fraction means at least 1000 env_steps. Lower "
        "it for a finer curve at a higher cost. The end of a run is always evaluated.",
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description=f"No evaluation before this point: {INTERVAL_UNIT}. Raise it if early evaluations are slow and "
        "uninformative.",
    )
    episodes: int = Field(
        100,
        ge=1,
        le=100_000,
        description="Episodes per evaluation. Raise it for a more precise mean that takes longer.",
    )
    metric: Literal["auto", "length", "return"] = Field(
        "auto",
        description="The score that selects the best checkpoint and is compared with `budget.threshold`; auto means "
        "length in towns and return elsewhere.",
    )
    deterministic: bool = Field(True, description="Always take the best action; false samples from the policy.")
    change: dict[str, Any] = Field(
        default_factory=dict, description="Further changes to the world, for evaluation only; see `change`."
    )
    seed: Seed = Field(10_001, description="Seed of the evaluation episodes. Change it to evaluate in others.")


class CheckpointSettings(StrictModel):
    """When checkpoints are saved; a new best evaluation and the end of the run always save one."""

    minutes: float = Field(
        2.0, gt=0, description="Minutes between checkpoints. Raise it to save less often; a crash then loses more."
    )
    every_episodes: int | None = Field(
        None, ge=1, description="Save after this many episodes as well. Lower it to save more often."
    )
    keep_every: int | None = Field(
        None,
        ge=1,
        description="Save and keep a checkpoint each time this many more env_steps are complete; by default only the "
        "last and the best are kept. Lower it to keep more.",
    )
    snapshots: int = Field(
        10,
        ge=0,
        le=50,
        description="Policy snapshots (without optimizer and buffers): at step 0, at the end, and at budget.env_steps "
        "divided by 2, 4, 8, … Raise it to see earlier stages of learning; 0 saves none.",
    )


class PlateauSpec(StrictModel):
    """A change of one agent setting when evaluation scores stop improving."""

    key: str = Field(min_length=1, max_length=80, description="The agent setting to change, one of those in tune.yaml.")
    patience: Interval = Field(
        0.2,
        description=f"Change the setting after this long without progress, and again after as long: {INTERVAL_UNIT}. "
        "Raise it to wait longer.",
    )
    min_delta: float = Field(
        0.0,
        ge=0,
        description="Minimum gain over the best score that counts as progress. Raise it to ignore small gains.",
    )
    multiply: float | None = Field(None, ge=0, description="Factor. The further from 1, the larger the change.")
    add: float | None = Field(None, description="Amount to add. The further from 0, the larger the change.")
    set: float | None = Field(None, description="The new value.")
    low: float | None = Field(None, description="Lower bound of the value. Raise it to stop lowering sooner.")
    high: float | None = Field(None, description="Upper bound of the value. Lower it to stop raising sooner.")
    revert: bool = Field(False, description="Restore the previous value as soon as scores improve again.")

    @model_validator(mode="after")
    def _check(self) -> PlateauSpec:
        if sum(change is not None for change in (self.multiply, self.add, self.set)) != 1:
            raise ValueError("give exactly one of multiply, add and set")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` ({self.low:g}) is above `high` ({self.high:g})")
        return self

    def after(self, value: float | None) -> float:
        """The changed value; integers stay integers. Without a value, only `set` can change it."""
        if self.set is not None or value is None:
            new = self.set or 0.0
        else:
            new = value * self.multiply if self.multiply is not None else value + (self.add or 0.0)
        new = new if self.low is None else max(self.low, new)
        new = new if self.high is None else min(self.high, new)
        return round(new) if isinstance(value, int) else new


class MetricsSettings(StrictModel):
    """What a run records about itself."""

    every: Interval = Field(
        0.01, description=f"Recording interval: {INTERVAL_UNIT}. Lower it for finer curves in larger files."
    )
    whole_episodes: int = Field(
        20,
        ge=0,
        description="Episodes stored individually per interval; the others only as counts, means and quantiles. Raise "
        "it for more detail in larger files.",
    )
    csv: bool = Field(
        True,
        description="Write metrics.csv as well: one row per env_steps with a record, one column per metric.",
    )
    tensorboard: bool = Field(True, description="Write TensorBoard event files as well.")
    report: bool = Field(
        True, description="Write report.md and report.html at the end; false ends the run a few seconds sooner."
    )
    wandb: bool = Field(
        False,
        description="Log to Weights & Biases as well (pip install 'townlet[wandb]'); with WANDB_MODE=offline the data "
        "stays in the run's folder.",
    )


class VideoSettings(StrictModel):
    """Videos of evaluation episodes: at the start, at every best evaluation and at the end."""

    episodes: int = Field(
        0, ge=0, le=100, description="Episodes per video; 0 records none. Raise it to see more at a higher cost."
    )
    steps: int = Field(
        1000, ge=1, le=100_000, description="Maximum recorded steps of an episode. Lower it to save time."
    )


def _as_results(value: Any) -> Any:
    """A string is short for one result without a command."""
    return ({"what": value},) if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    """A mapping is short for a list of one entry."""
    return (value,) if isinstance(value, dict) else value


def _check_device(name: str) -> str:
    if not re.match(DEVICE_PATTERN, name):
        raise ValueError(f"there is no device '{name[:40]}'; write cpu, cuda or cuda:1")
    return name


class Recipe(StrictModel):
    """A complete experiment, after inheritance, variant and overrides."""

    env: str = Field(
        min_length=1,
        max_length=80,
        description="The environment: a shipped world, a Gymnasium id, or any name if `world` is given.",
    )
    variant: str = Field("", max_length=80, description="The variant of the recipe file; set when loading.")
    world: str | None = Field(
        None,
        min_length=1,
        description="A shipped world, or the path of a world file relative to the recipe file; `env` by default.",
    )
    gym: GymSettings | None = Field(
        None, description="How the Gymnasium environment `env` is created and wrapped; if left out, `env` is a town."
    )
    change: dict[str, Any] = Field(
        default_factory=dict,
        description="Changes to the world: {max_steps: 1000, affordances: {Bed: {price: .02}}}. Lists are replaced.",
    )
    potential: float = Field(
        0.0,
        ge=0,
        description="Weight of potential-based reward shaping over all meters, added to the world's rewards; it keeps "
        "the optimal policy. Raise it for more guidance; 0 is off. A world with this reward keeps its own weight.",
    )
    bootstrap_at: Literal["truncation", "none", "every_end"] = Field(
        "truncation",
        description="Ends of episodes at which learning bootstraps from the value of the final state. none: the time "
        "limit counts as death. every_end: death counts as the time limit. Only truncation is correct (Pardo et al. "
        "2018); the others show what goes wrong.",
    )
    reward_threshold: float | None = Field(
        None,
        description="Goal of this recipe: the mean return that it aims for. By default that at which Gymnasium "
        "considers the environment solved.",
    )
    description: str = Field("", max_length=400, description="One or two sentences for readers.")
    tuned: bool = Field(False, description="Whether the settings come from a search rather than from a textbook.")
    result: Annotated[
        tuple[KnownResult, ...], BeforeValidator(_as_results, json_schema_input_type=str | tuple[KnownResult, ...])
    ] = Field((), description="Known results: a string, or a list of {what, command}.")

    rows: Literal["auto"] | Annotated[int, Field(ge=1, le=2**22)] = Field(
        "auto",
        description="Parallel environments. Raise it for speed and smoother, but fewer, updates per env_step.",
    )
    seed: Seed = Field(0, description="Random seed. Change it for another run of the same experiment.")
    engine: Literal["auto", "numba", "torch", "compiled"] = Field("auto", description="The engine that steps the town.")
    device: Annotated[str, AfterValidator(_check_device)] = Field(
        "cpu", json_schema_extra={"pattern": DEVICE_PATTERN}, description="Device of the tensors: cpu, cuda or cuda:1."
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = Field(
        "auto",
        description="Threads of torch; auto means one if updates are small, else one per core. Another number may "
        "change the last bits of results, so the run records it.",
    )
    starts: StartsSpec | None = Field(None, description="Exploring starts, in training only; off by default.")

    agent: Annotated[AgentSettings, RegistryUnion(settings_models)] = Field(
        description="The algorithm, by `name`, and its settings."
    )
    network: NetworkSpec = Field(default_factory=lambda: MlpSpec(name="mlp"), description="The network, by `name`.")
    explore: ExploreSpec = Field(
        default_factory=ExploreSpec,
        description="Exploration: choice of actions (`action_selection`) and novelty rewards (`bonus`, `weight`).",
    )
    curriculum: CurriculumSpec | None = Field(None, description="Difficulty stages per row; off by default.")
    init_from: str | None = Field(None, min_length=1, description="A run whose weights to start from.")

    budget: Budget = Field(description="When the run ends.")
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings, description="How the run is evaluated.")
    plateau: Annotated[
        tuple[PlateauSpec, ...],
        BeforeValidator(_as_list, json_schema_input_type=PlateauSpec | tuple[PlateauSpec, ...]),
    ] = Field((), description="Settings to change when evaluations stop improving; one mapping or a list.")
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="When checkpoints are saved."
    )
    metrics: MetricsSettings = Field(default_factory=MetricsSettings, description="What is recorded.")
    video: VideoSettings = Field(default_factory=VideoSettings, description="Videos of evaluations; off by default.")
    sweep: dict[str, SearchRange] = Field(
        default_factory=dict,
        description="What `townlet sweep` searches, by path: {agent.lr: {low: 1e-5, high: 1e-2}}. If left out, the "
        "agent's most influential settings.",
    )

    @property
    def title(self) -> str:
        """ENV:VARIANT."""
        return f"{self.env}:{self.variant}" if self.variant else self.env

    @property
    def metric(self) -> Literal["length", "return"]:
        """The score of evaluations, with `auto` resolved."""
        if self.evaluation.metric == "auto":
            return "length" if self.gym is None else "return"
        return self.evaluation.metric

    @property
    def user_files(self) -> list[str]:
        """The Python files of user-defined wrappers and of a user-defined agent."""
        wrappers = self.gym.user_files if self.gym else []
        return wrappers if self.agent.file is None else [*wrappers, self.agent.file]

    @property
    def runs_code(self) -> bool:
        """Whether it runs Python code of users, which must be permitted."""
        return bool(self.user_files) or (self.gym is not None and self.gym.source is not None)

    @property
    def row_count(self) -> int:
        """The number of rows, with `auto` resolved."""
        return entry(self.agent.name).rows if self.rows == "auto" else self.rows

    @property
    def thread_count(self) -> int:
        """The number of threads, with `auto` resolved."""
        if self.threads != "auto":
            return self.threads
        if self.device.startswith("cuda"):
            return 1  # more threads would only spin, which makes some processes four times slower
        return self.agent.resolved(self.row_count).threads(self.network) or os.cpu_count() or 1

    def resolved(self) -> Recipe:
        """The same recipe with numbers in place of `auto` and fractions of the rows, for resolved.yaml."""
        agent = self.agent.resolved(self.row_count)
        return self.model_copy(update={"rows": self.row_count, "threads": self.thread_count, "agent": agent})

    @property
    def evaluation_interval(self) -> int:
        """Env_steps between evaluations. The minimum keeps evaluations of a tiny budget from outweighing training."""
        every = self.evaluation.every
        return max(self.to_env_steps(every), MIN_EVALUATION_INTERVAL if every <= 1 else 1)

    def to_env_steps(self, interval: float) -> int:
        """An interval in env_steps; if it is at most 1, it is a fraction of the budget."""
        return max(1, round(interval * (self.budget.env_steps or 0) if interval <= 1 else interval))
