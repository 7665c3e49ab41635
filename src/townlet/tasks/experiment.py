"""An experiment: a recipe together with the task it trains in, loaded from files or from a run's folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from townlet.agents.agent import Agent
from townlet.agents.registry import entries, entry
from townlet.config.yaml import Node
from townlet.curriculum.curriculum import Curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError
from townlet.interfaces.counters import Counters
from townlet.interfaces.task import RenderedEnv, Task
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete, VecEnv
from townlet.recipes.catalog import GENERIC_GYM
from townlet.recipes.load import LoadedRecipe, load_recipe
from townlet.recipes.schema import Recipe
from townlet.runs import provenance
from townlet.runs.folder import Run
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.env_metrics import EnvMetrics
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult, TrainingSummary
from townlet.tasks.town import TownTask, Worlds, load_worlds, with_overrides
from townlet.town.world.load import load as load_world
from townlet.town.world.tables import World

ACTIONS: Final[dict[type[Actions], str]] = {Discrete: "discrete", Binary: "binary", Continuous: "continuous"}
LAYOUTS: Final = {
    "fixed": ("map.layout=fixed",),
    "shuffled": ("map.layout=shuffled", "map.allow_hidden_layout=true"),
}
# Keys that may change when a run is resumed, without invalidating its results so far. The name of a section stands
# for all of its keys.
RESUMABLE_KEYS: Final = (
    "budget", "agent.lr", "checkpoints", "metrics", "video", "evaluation.every", "evaluation.episodes", "threads",
    "device",
)  # fmt: skip


class TrainingTask(Task, Protocol):
    """A task with everything that is needed for training and evaluation."""

    @property
    def notes(self) -> Sequence[str]:
        """What is allowed but probably a mistake, in sentences."""

    def make_env(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> VecEnv:
        """The training environment with the rows of this process, before its reset."""

    def make_curriculum(self, recipe: Recipe) -> Curriculum | None:
        """The curriculum of the recipe; None if it has none."""

    def make_metrics(
        self, recipe: Recipe, env: VecEnv, agent: Agent, counters: Counters, curriculum: Curriculum | None,
        store: MetricsStore,
    ) -> EnvMetrics:  # fmt: skip
        """The metrics of this kind of environment."""

    def evaluate(self, policy: ActingPolicy, recipe: Recipe, check_interrupt: Callable[[], None]) -> EvaluationResult:
        """Evaluate a policy as the recipe specifies."""

    def render(self, policy: ActingPolicy, recipe: Recipe, device: str = "cpu") -> RenderedEnv:
        """Episodes of an evaluation as images, with the policy's network on `device`; raises if there are none."""

    def summarize(
        self, policy: ActingPolicy, recipe: Recipe, random: EvaluationResult, trained: EvaluationResult,
        best: BestCheckpoint | None,
    ) -> TrainingSummary:  # fmt: skip
        """The result of a training run; may make further evaluations of the policy."""


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment(LoadedRecipe):
    """A valid recipe and its task."""

    task: TrainingTask

    @property
    def worlds(self) -> Worlds:
        """The worlds of a town; raises TownletError for any other environment."""
        if not isinstance(self.task, TownTask):
            raise TownletError(f"{self.recipe.env} is not a town", "this works for runs in towns only")
        return self.task.worlds

    @property
    def is_local(self) -> bool:
        """Whether the environment exists only in the program that passed it to `townlet.train`."""
        return self.recipe.gym is not None and self.recipe.gym.is_local

    def fingerprint(self) -> dict[str, Any]:
        """Values that must be equal in a checkpoint and in the run that resumes from it."""
        recipe = self.recipe
        return {"env": recipe.env, "agent": recipe.agent.name, "rows": recipe.row_count, **self.task.fingerprint()}


def load_experiment(name: str, overrides: Sequence[str] = (), worlds: Worlds | None = None) -> LoadedExperiment:
    """Load a recipe and build its task; raises ConfigError with everything that is wrong.

    `worlds` replaces the worlds that the recipe names, for example by the copies that a run keeps.
    """
    loaded = load_recipe(name, overrides)
    diagnostics, recipe, node = list(loaded.diagnostics), loaded.recipe, loaded.node
    try:
        task = make_task(recipe, node, worlds)
    except ConfigError as error:
        raise ConfigError([*diagnostics, *error.diagnostics]) from None
    diagnostics += check_task(recipe, node, task, loaded.repaired)
    if diagnostics:
        raise ConfigError(diagnostics)
    recipe = with_goal(recipe, task, node)
    notes = (*loaded.notes, *task.notes)
    return LoadedExperiment(loaded.name, loaded.overrides, recipe, node, notes, task=task)


def make_task(recipe: Recipe, node: Node, worlds: Worlds | None = None) -> TrainingTask:
    """The town or Gymnasium environment of a recipe; raises ConfigError."""
    if recipe.gym is None:
        return TownTask(worlds or load_worlds(recipe, node))
    from townlet.gym.make import without_autoreset_steps  # imports Gymnasium, which towns do without
    from townlet.tasks.gym import GymTask

    if recipe.env == GENERIC_GYM:
        fix = f"name one: townlet train ID:{recipe.variant or 'VARIANT'}, or `env: ID` in a recipe"
        what = f"'{GENERIC_GYM}' is not an environment; it holds default settings for any Gymnasium environment"
        raise ConfigError([Diagnostic(what, fix, node.location_of("env"))])
    try:
        settings = without_autoreset_steps(recipe.env, recipe.gym) if recipe.network.is_recurrent else recipe.gym
        task = GymTask(recipe.env, settings, recipe.reward_threshold)
        task.check()
    except TownletError as error:
        located = [Diagnostic(d.what, d.fix, d.where or _gym_location(d, node)) for d in error.diagnostics]
        raise ConfigError(located) from None
    return task


def _gym_location(diagnostic: Diagnostic, node: Node) -> SourceLocation:
    """Location of the `gym` key that a diagnostic mentions, else of one on the command line, else of the id."""
    gym, text = node.child("gym"), f"{diagnostic.what} {diagnostic.fix}"
    keys = gym.value if gym is not None and isinstance(gym.value, dict) else ()
    overridden = (key for key in keys if node.location_of("gym", key).source.startswith("command line"))
    key = next((key for key in keys if key.removesuffix("s") in text), next(overridden, None))
    return node.location_of("gym", key) if key else node.location_of("env")


def check_task(recipe: Recipe, node: Node, task: TrainingTask, repaired: Collection[str] = ()) -> list[Diagnostic]:
    """Errors in the recipe that depend on its environment; rules about `repaired` parts are skipped."""
    diagnostics: list[Diagnostic] = []
    if not {"agent", "gym"} & {*repaired}:
        diagnostics += _unsupported(recipe, node, task)
    if isinstance(task, TownTask) and not {"curriculum", "potential", "change"} & {*repaired}:
        diagnostics += _missing_rewards(recipe, node, task.worlds.training)
    return diagnostics


def _unsupported(recipe: Recipe, node: Node, task: TrainingTask) -> Iterator[Diagnostic]:
    """Actions and observations that the agent cannot learn with."""
    agent, where, layout = entry(recipe.agent.name), node.location_of("agent", "name"), task.layout
    if not isinstance(task.actions, agent.actions):
        needed = " or ".join(ACTIONS[kind] for kind in agent.actions)
        what = f"{agent.name} needs {needed} actions, but this environment's are {ACTIONS[type(task.actions)]}"
        others = [e.name for e in entries() if isinstance(task.actions, e.actions)]
        yield Diagnostic(what, f"use {' or '.join(others)}", where)
    elif agent.observations == "index" and [(b.kind, b.size) for b in layout] != [("index", 1)]:
        blocks = ", ".join(layout.names)
        what = f"{agent.name} needs a single discrete observation, but this one has the blocks {blocks}"
        others = [e.name for e in entries() if e.observations == "any" and isinstance(task.actions, e.actions)]
        yield Diagnostic(what, f"use {' or '.join(others[:3])}, or an environment with discrete observations", where)


def _missing_rewards(recipe: Recipe, node: Node, world: World) -> Iterator[Diagnostic]:
    """Rewards that the curriculum's stages use and the world does not have."""
    if recipe.curriculum is None:
        return
    weights = [stage.reward_weights(world.rewards) for stage in recipe.curriculum.stage_list]
    used = {name for stage in weights for name, weight in stage.items() if weight}
    if lacking := sorted(used - set(world.rewards)):
        has = f"{world.name} has only {', '.join(world.rewards)}"
        what = f"the curriculum's stages use the rewards {', '.join(lacking)}, but {has}"
        shaping = "potential: 1, or " if lacking == ["potential"] else ""
        fix = f"add {shaping}change: {{rewards: [{', '.join((*world.rewards, *lacking))}]}}"
        yield Diagnostic(what, fix, node.location_of("curriculum"))


def with_goal(recipe: Recipe, task: TrainingTask, node: Node) -> Recipe:
    """The recipe with `true` in its budget replaced by the task's goal; raises ConfigError if there is none."""
    keys = [key for key in ("threshold", "train_threshold") if getattr(recipe.budget, key) is True]
    if not keys:
        return recipe
    if task.goal is None or recipe.metric != "return":
        meaning = "`true` means the goal of the recipe, which is a return"
        other_metric = f"{meaning}, but evaluation.metric is {recipe.metric}"
        what = f"{recipe.env} has no threshold" if task.goal is None else other_metric
        fix = "write the number to reach"
        raise ConfigError([Diagnostic(what, fix, node.location_of("budget", key)) for key in keys])
    budget = recipe.budget.model_copy(update=dict.fromkeys(keys, task.goal))
    return recipe.model_copy(update={"budget": budget})


def evaluation_world(
    loaded: LoadedExperiment, overrides: Sequence[str], name: str | None = None, layout: str | None = None
) -> World:
    """The world to evaluate in: that of the experiment, or the one of this name, with overrides."""
    overrides = [*overrides, *LAYOUTS[layout]] if layout else list(overrides)
    return with_overrides(loaded.worlds.evaluation, overrides) if name is None else load_world(name, overrides)


def reopen(run: Run, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """The experiment of a run, from its own copies of recipe and worlds, with overrides of resumable keys."""
    earlier = run.meta().get("resumed_with", ())
    provenance.require_files(run)
    copies = Worlds(*(load_world(world_file(run, role)) for role in Worlds._fields)) if run.worlds.is_dir() else None
    before = load_experiment(str(run.resolved_file), earlier, copies)
    loaded = load_experiment(str(run.resolved_file), [*earlier, *overrides], copies) if overrides else before
    _refuse_changes(run, before.recipe, loaded)
    hashes = zip(loaded.recipe.user_files, run.meta().get("code", ()), code_hashes(loaded.recipe), strict=False)
    changed = [file for file, recorded, current in hashes if recorded != current]
    code_notes = [f"{file} has changed since this run started: the new code is used from here on." for file in changed]
    if copies is None:
        return replace(loaded, notes=(*loaded.notes, *code_notes))
    name = Path(loaded.recipe.world or loaded.recipe.env).stem  # a copy is not named after its file
    worlds = Worlds(*(replace(world, name=name) for world in copies))
    return replace(loaded, task=TownTask(worlds), notes=(*_changed_worlds(run, loaded), *code_notes))


def world_file(run: Run, role: str) -> Path:
    """The run's copy of its `training` or `evaluation` world."""
    return run.worlds / f"{role}.yaml"


def saved_interface(run: Run, info: Mapping[str, Any]) -> object:
    """The interface of a run: that of its copy of the world, else the hash in a checkpoint's info."""
    file = world_file(run, "training")
    return load_world(file).interface_hash if file.exists() else info.get("interface")


def _changed_worlds(run: Run, loaded: LoadedExperiment) -> tuple[str, ...]:
    """A note if the original files of the worlds have changed."""
    name = loaded.recipe.world or loaded.recipe.env
    try:
        now = load_worlds(loaded.recipe, loaded.node)
    except ConfigError:
        return (f"The world {name} is missing or cannot be read; this run has a copy in {run.worlds}.",)
    same = all(a.content_hash == b.content_hash for a, b in zip(now, loaded.worlds, strict=True))
    return () if same else (f"The world {name} has changed since the run started; its copy in {run.worlds} is used.",)


def code_hashes(recipe: Recipe) -> list[str | None]:
    """The sha256 of each user-defined Python file, in the order of `user_files`; None if it is missing."""
    files = [Path(file) for file in recipe.user_files]
    return [provenance.sha256(file) if file.is_file() else None for file in files]


def _refuse_changes(run: Run, before: Recipe, after: LoadedExperiment) -> None:
    """Refuse overrides of keys that are not resumable, in one message."""
    resumable = [tuple(key.split(".")) for key in RESUMABLE_KEYS]
    differing = _differing_paths(before.model_dump(), after.recipe.model_dump())
    changed = [path for path in differing if not any(path[: len(key)] == key for key in resumable)]
    if not changed:
        return
    sources = (after.node.location_of(*path).source.removeprefix("command line: ") for path in changed)
    what = f"these settings cannot change when a run is resumed: {', '.join(dict.fromkeys(sources))}"
    fix = f"only {', '.join(RESUMABLE_KEYS)} may change; for the rest start a new run with init_from={run.name}"
    raise TownletError(what, fix)


def _differing_paths(
    a: Mapping[str, Any], b: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for key in {**a, **b}:
        left, right = a.get(key), b.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            yield from _differing_paths(left, right, (*path, key))
        elif left != right:
            yield (*path, key)
