"""The Python API: `townlet.train`, `make`, `load` and `open_run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Final

from townlet.config.merge import apply_overrides, format_overrides
from townlet.config.validate import validate_model
from townlet.config.yaml import Node
from townlet.distributed import launched_with_others
from townlet.errors import SourceLocation, TownletError, did_you_mean, nearest
from townlet.gym.make import make_vec
from townlet.gym.settings import GYM_ID, GymSettings
from townlet.gym.sources import EnvMaker, register_object
from townlet.interfaces.vec_env import VecEnv
from townlet.recipes.catalog import DEFAULT_VARIANT, RecipeName, parse_recipe_name, with_variant
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.tasks.experiment import load_experiment
from townlet.town.env import Town
from townlet.town.world.load import load as load_world
from townlet.town.world.tables import World
from townlet.train.callbacks import Callback, callback_errors
from townlet.train.multi_seed import MakeHooks, train_seeds
from townlet.train.policies import TrainedPolicy, Which, load_policy
from townlet.train.seed_processes import train_seeds_in_parallel
from townlet.train.session import create_session
from townlet.train.trained_run import (
    Overrides,
    TrainedRun,
    make_hooks,
    raise_interrupt,
    require_count,
    seeds_progress,
)
from townlet.train.trained_runs import TrainedRuns, as_trained_runs

# Arguments of `train` that are no keys of recipes.
ARGUMENTS: Final = ("algorithm", "steps", "seeds", "jobs", "callbacks", "overrides", "root", "progress")


def load(
    run: str | Path | Run, which: Which = "best", *, root: str | Path = "runs", seed: int | None = None
) -> TrainedPolicy:
    """The policy of a run, given as a path, a name below `root`, "latest", ENV:VARIANT, or a `Run`."""
    return load_policy(run if isinstance(run, Run) else Run.open(run, Path(root), for_policy=True), which, seed)


def open_run(run: str | Path, root: str | Path = "runs") -> TrainedRun:
    """A run on disk, given as a path, a name below `root`, or "latest"."""
    return TrainedRun(Run.open(run, Path(root)).path)


def train(
    env: str | Path | EnvMaker = "town",
    algorithm: str | None = None,
    *,
    steps: float | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    callbacks: Sequence[Callback] = (),
    overrides: Overrides = (),
    root: str | Path = "runs",
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRun | TrainedRuns:
    """Train an agent from scratch; see `townlet.train`. Ctrl-C saves the run and then interrupts the program."""
    if launched_with_others():
        what = "townlet.train() supports only one process"
        raise TownletError(what, "start it without torchrun, or run torchrun … -m townlet train")
    require_count("jobs", jobs)
    for name in settings:
        near = nearest(name, [*ARGUMENTS, *Recipe.model_fields])
        if name not in Recipe.model_fields and near in ARGUMENTS:
            raise TownletError(f"train() has no argument '{name}'", f"did you mean '{near}'?")
    if seeds is not None:
        require_count("seeds", seeds)
    if jobs > 1 and seeds is None:
        raise TownletError(f"jobs={jobs} trains several seeds at a time, but there is only one", "add seeds=5")
    if jobs > 1 and callbacks:
        raise TownletError("callbacks are not sent to other processes", f"leave out jobs={jobs}, or the callbacks")
    changes = [*format_overrides(overrides), *format_overrides(settings)]
    changes += [] if steps is None else [f"budget.env_steps={steps}"]
    changes += [] if seed is None else [f"seed={seed}"]
    recipe, hooks_of = recipe_name(env, algorithm), make_hooks(callbacks, progress)
    with callback_errors():
        if seeds is None:
            return _train_one(recipe, changes, Path(root), hooks_of)
        if jobs > 1:
            show = seeds_progress(progress)
            result = train_seeds_in_parallel(recipe, changes, Path(root), seeds, min(jobs, seeds), show)
        else:
            result = train_seeds(recipe, changes, Path(root), seeds, hooks_of)
    return as_trained_runs(result)


def _train_one(recipe: str, changes: Sequence[str], root: Path, hooks_of: MakeHooks) -> TrainedRun:
    session = create_session(load_experiment(recipe, changes), root)
    with Lock(session.run.path) as lock:
        sinks, stop_reason = hooks_of(session.run, session.loaded.recipe)
        raise_interrupt(session.train(lock, sinks, stop_reason=stop_reason))
    return TrainedRun(session.run.path)


def recipe_name(env: str | Path | EnvMaker, algorithm: str | None = None) -> str:
    """ENV:VARIANT of an environment given by name, as a recipe, or as a class or function of the calling program."""
    if isinstance(env, str | Path):
        return with_variant(str(env), algorithm)
    return ":".join((*register_object(env), algorithm or DEFAULT_VARIANT))


def make(env: str | Path | World | EnvMaker = "town", rows: int | None = None, **settings: Any) -> VecEnv:
    """A batched environment; see `townlet.make`."""
    if rows is not None:
        require_count("rows", rows)
    if isinstance(env, World):
        return _make_town(env, rows, settings)
    name = parse_recipe_name(str(env)) if isinstance(env, str | Path) else RecipeName(*register_object(env), None)
    if name.variant is not None:
        changes = [*format_overrides(settings), *([] if rows is None else [f"rows={rows}"])]
        loaded = load_experiment(str(env), changes)
        return loaded.task.make_env(loaded.recipe, loaded.recipe.thread_count)
    if name.source is None and not GYM_ID.fullmatch(name.env):
        return _make_town(load_world(name.env), rows, settings)
    source = [] if name.source is None else [f"source={json.dumps(name.source)}"]
    layer = apply_overrides(Node({}, SourceLocation("townlet.make")), [*source, *format_overrides(settings)])
    return make_vec(name.env, validate_model(GymSettings, layer), rows or 1)


def _make_town(world: World, rows: int | None, settings: Mapping[str, Any]) -> Town:
    known = [name for name in signature(Town).parameters if name not in ("world", "rows")]
    for name in settings:
        if name not in known:
            raise TownletError(f"a town has no setting '{name}'", did_you_mean(name, known))
    return Town(world, rows or 1, **settings)
