"""The Python API, `townlet.train` and `townlet.load`, and a smoke test of recipes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console

from townlet.agents.registry import entry
from townlet.distributed import launched_with_others
from townlet.errors import TownletError
from townlet.gym import extras
from townlet.recipes.catalog import GENERIC_GYM
from townlet.recipes.render import RecipeSummary
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.policies import TrainedPolicy, Which, load_policy
from townlet.train.session import TrainingOutcome, start
from townlet.train.sinks import console_sink

Overrides = Mapping[str, Any] | Sequence[str] | str


@dataclass(frozen=True)
class TrainedRun(Run):
    """A finished run with its result."""

    score: float | None  # of the final evaluation, by the recipe's metric
    outcome: TrainingOutcome = field(repr=False, compare=False)

    @property
    def summary(self) -> list[str]:
        """What the agent learned and what it did not, in sentences."""
        return self.outcome.summary.sentences() if self.outcome.summary else []

    def load(self, which: Which = "best") -> TrainedPolicy:
        return load_policy(self, which)


def load(
    run: str | Path | Run, which: Which = "best", *, root: str | Path = "runs", seed: int | None = None
) -> TrainedPolicy:
    """The policy of a run, given as a path, a name below `root`, "latest", or a `Run`."""
    return load_policy(run if isinstance(run, Run) else Run.open(run, Path(root)), which, seed)


def train(
    recipe: str = "town",
    *,
    seed: int | None = None,
    overrides: Overrides = (),
    root: str | Path = "runs",
    progress: bool = False,
) -> TrainedRun:
    """Train a recipe from scratch. Ctrl-C saves the run and then interrupts the program as usual."""
    if launched_with_others():
        what = "townlet.train() supports only one process"
        raise TownletError(what, "start it without torchrun, or run torchrun … -m townlet train")
    changes = [*format_overrides(overrides), *([] if seed is None else [f"seed={seed}"])]
    loaded = load_experiment(recipe, changes)
    outcome = start(loaded, Path(root), sinks=[console_sink(Console(stderr=True), loaded.recipe)] if progress else ())
    if outcome.ending.why == "interrupted":
        raise KeyboardInterrupt
    final = outcome.ending.evaluation
    score = None if final is None else final.score(loaded.recipe.metric)
    return TrainedRun(outcome.run.path, score, outcome)


def format_overrides(overrides: Overrides) -> list[str]:
    """Overrides as `key=value`; the values of a mapping are written as JSON."""
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={_encoder.encode(value)}" for key, value in overrides.items()]
    return list(overrides)


# NumPy and torch scalars are written as plain numbers, paths as text.
_encoder: Final = json.JSONEncoder(
    default=lambda value: value.item() if hasattr(value, "item") else str(value), ensure_ascii=False
)

# A few updates and two evaluations of short episodes, for any agent and environment.
SMOKE_OVERRIDES: Final = (
    "rows=2", "threads=1", "budget.env_steps=256", "evaluation.episodes=1", "evaluation.every=256",
    "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
SMOKE_ENV: Final = "CartPole-v1"  # for recipes that fit any environment
SMOKE_EPISODE_STEPS: Final = 32


@dataclass(frozen=True)
class SmokeResult:
    """The result of a recipe's smoke test."""

    title: str
    works: bool
    reason: str = ""  # why it does not work, in one line
    missing: bool = False  # whether a required package is not installed
    seconds: float = 0.0


def smoke_test(recipes: Sequence[RecipeSummary]) -> Iterator[SmokeResult]:
    """Train each recipe briefly in a temporary folder; one that fails does not stop the others."""
    for recipe in recipes:
        with TemporaryDirectory(prefix="townlet-smoke-") as folder:
            yield _try_recipe(recipe.title, recipe.env, Path(folder))


def _try_recipe(title: str, env: str, root: Path) -> SmokeResult:
    started = time.monotonic()
    if (missing := extras.missing(env)) is not None:
        return SmokeResult(title, False, missing, missing=True)
    try:
        outcome = start(load_experiment(title, _smoke_overrides(title)), root)
    except TownletError as error:
        return SmokeResult(title, False, str(error.diagnostics[0]))
    except Exception as error:  # a simulator may raise anything; the next recipe is still tried
        return SmokeResult(title, False, f"{type(error).__name__}: {error}".partition("\n")[0][:200])
    if outcome.summary is None:
        raise KeyboardInterrupt
    return SmokeResult(title, True, seconds=time.monotonic() - started)


def _smoke_overrides(title: str) -> list[str]:
    env = [f"env={SMOKE_ENV}"] if title.startswith(f"{GENERIC_GYM}:") else []
    recipe = load_experiment(title, env).recipe
    limits = ("change.max_steps", "evaluation.change.max_steps") if recipe.gym is None else ("gym.max_episode_steps",)
    settings = format_overrides({f"agent.{key}": value for key, value in entry(recipe.agent.name).smoke.items()})
    return [*env, *SMOKE_OVERRIDES, *settings, *(f"{limit}={SMOKE_EPISODE_STEPS}" for limit in limits)]
