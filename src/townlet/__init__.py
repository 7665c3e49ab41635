"""Townlet: a deep-reinforcement-learning laboratory that you can watch.

Importing it registers Gymnasium environments with lazy entry points; torch and Numba are not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from gymnasium.envs.registration import register, registry

from townlet._version import __version__
from townlet.town.ids import IDS

if TYPE_CHECKING:
    from townlet.gym.sources import EnvMaker
    from townlet.interfaces.vec_env import VecEnv
    from townlet.runs.folder import Run
    from townlet.runs.plots import NotebookFigure
    from townlet.town.env import Town
    from townlet.town.world.tables import World
    from townlet.train.callbacks import Callback
    from townlet.train.policies import TrainedPolicy
    from townlet.train.trained_run import TrainedRun
    from townlet.train.trained_runs import RunsGiven, TrainedRuns

__all__ = ["IDS", "__version__", "allow_code", "load", "load_world", "make", "open_run", "plot", "train"]

BANDIT = "Bandit-v0"
ROULETTE = "Roulette-v0"
T_MAZE = "TMaze-v0"
NOISY_TV = "NoisyTV-v0"


def allow_code() -> None:
    """Allow recipes and runs to execute the Python files and modules they name, and to name files to environments.

    This holds in this process. Review these files first: they can do anything. It is `--allow-code` of the command
    line.
    """
    from townlet.config import user_code

    user_code.permit()


def load_world(name_or_path: str | Path, overrides: Sequence[str] = ()) -> World:
    """Load, check and compile a world.

    Args:
        name_or_path: a shipped world, such as `"town"`, or a YAML file.
        overrides: changes to the world, such as `["max_steps=1000"]`.

    Raises:
        TownletError: if the world is invalid; the message lists every problem with its line.
    """
    from townlet.town.world.load import load

    return load(name_or_path, overrides)


@overload
def make(env: World, rows: int | None = None, **settings: Any) -> Town: ...


@overload
def make(env: str | Path | EnvMaker = "town", rows: int | None = None, **settings: Any) -> VecEnv: ...


def make(env: str | Path | World | EnvMaker = "town", rows: int | None = None, **settings: Any) -> VecEnv:
    """Make the batched environment that agents are trained in: it steps `rows` copies and returns tensors.

    Args:
        env: a world, a Gymnasium id, an environment class or a function that returns an environment, or a recipe
            ENV:VARIANT.
        rows: the number of copies; by default 1, or that of the recipe.
        settings: for a world, `engine`, `device`, `threads` and `starts` of `townlet.town.env.Town`; for a Gymnasium
            environment, the keys under `gym` of a recipe; for a recipe, its keys, as in `townlet.train`.

    Raises:
        TownletError: if an argument or a setting is invalid.
    """
    from townlet.train.api import make

    return make(env, rows, **settings)


@overload
def train(
    env: str | Path | EnvMaker = "town",
    algorithm: str | None = None,
    *,
    steps: float | None = None,
    seed: int | None = None,
    seeds: None = None,
    callbacks: Sequence[Callback] = (),
    overrides: Mapping[str, Any] | Sequence[str] | str = (),
    root: str | Path = "runs",
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRun: ...


@overload
def train(
    env: str | Path | EnvMaker = "town",
    algorithm: str | None = None,
    *,
    steps: float | None = None,
    seed: int | None = None,
    seeds: int,
    jobs: int = 1,
    callbacks: Sequence[Callback] = (),
    overrides: Mapping[str, Any] | Sequence[str] | str = (),
    root: str | Path = "runs",
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRuns: ...


def train(
    env: str | Path | EnvMaker = "town",
    algorithm: str | None = None,
    *,
    steps: float | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    callbacks: Sequence[Callback] = (),
    overrides: Mapping[str, Any] | Sequence[str] | str = (),
    root: str | Path = "runs",
    progress: bool | None = None,
    **settings: Any,
) -> TrainedRun | TrainedRuns:
    """Train an agent from scratch and return the run, or several runs that differ in their seed.

        run = townlet.train("CartPole-v1", "ppo", steps=1e5, seed=1)
        runs = townlet.train(MyEnv, "ppo", steps=1e5, seeds=5, jobs=2)

    Ctrl-C saves the run and then raises `KeyboardInterrupt`.

    Args:
        env: a recipe (ENV or ENV:VARIANT), a world file, a Gymnasium id, an environment class, or a function that
            returns an environment.
        algorithm: the variant of the recipe; by default the recipe's default variant, or `"ppo"` if it has none.
        steps: the budget in env_steps, summed over all rows.
        seed: the random seed; with `seeds`, that of the first run.
        seeds: train with this many seeds, and return a `TrainedRuns`.
        jobs: how many seeds train at a time, each in its own process.
        callbacks: functions called with a `RunProgress` after every metrics interval and every evaluation. One that
            returns False saves the run and stops it.
        overrides: keys of the recipe: `{"agent.lr": 1e-3}` or `["agent.lr=1e-3"]`.
        root: the folder in which the folder of the run is created.
        progress: whether to show progress; by default it is shown in notebooks only.
        settings: keys of the recipe as keyword arguments: `agent={"lr": 1e-3}, rows=16`.

    Raises:
        TownletError: if an argument or a setting is invalid.
    """
    from townlet.train.api import train

    return train(
        env, algorithm, steps=steps, seed=seed, seeds=seeds, jobs=jobs, callbacks=callbacks, overrides=overrides,
        root=root, progress=progress, **settings,
    )  # fmt: skip


def plot(runs: RunsGiven | Mapping[str, RunsGiven], root: str | Path = "runs") -> NotebookFigure:
    """Plot the learning curves of several runs: their evaluations over env_steps, as a matplotlib figure.

    Runs that differ only in their seed become one curve: the interquartile mean with its 95% bootstrap interval.

    Args:
        runs: runs or their names, or `{label: runs}`, where the runs of each label become one curve.
        root: the folder in which runs are looked up by name.
    """
    from townlet.train.trained_runs import plot

    return plot(runs, root)


def open_run(run: str | Path = "latest", root: str | Path = "runs") -> TrainedRun:
    """Open an existing run, to evaluate, resume or plot it.

    Args:
        run: a name below `root`, a path, ENV:VARIANT for the newest run of a recipe, or `"latest"`.
        root: the folder of the runs.

    Raises:
        TownletError: if there is no such run; the message names similar ones.
    """
    from townlet.train.api import open_run

    return open_run(run, root)


def load(
    run: str | Path | Run, which: Literal["best", "last"] | float = "best", *, root: str | Path = "runs", seed: int = 0
) -> TrainedPolicy:
    """Load the policy of a run: `townlet.load("latest").act(obs, mask)`.

    Args:
        run: a name below `root`, a path, ENV:VARIANT for the newest run of a recipe, `"latest"`, or a run. The newest
            run is one that has a checkpoint.
        which: the best checkpoint, the last one, or a step, which selects the checkpoint or snapshot saved nearest to
            it: 0 is the untrained agent.
        root: the folder of the runs.
        seed: determines sampled actions.

    Raises:
        TownletError: if there is no such run, or if its environment has changed since.
    """
    from townlet.train.api import load

    return load(run, which, root=root, seed=seed)


def _register() -> None:
    """Register the Gymnasium ids. They need no time limit: worlds truncate their own episodes."""
    for name, world in IDS.items():
        if name not in registry:
            register(
                id=name,
                entry_point="townlet.town.gymnasium:TownEnv",
                vector_entry_point="townlet.town.gymnasium:TownVectorEnv",
                kwargs={"world": world},
            )
    for name, entry_point in (
        (BANDIT, "townlet.gym.bandit:Bandit"),
        (ROULETTE, "townlet.gym.roulette:Roulette"),
        (T_MAZE, "townlet.gym.t_maze:TMaze"),
        (NOISY_TV, "townlet.gym.noisy_tv:NoisyTV"),
    ):
        if name not in registry:
            register(id=name, entry_point=entry_point)


_register()
