"""A smoke test of recipes: each is trained for a moment, to see whether it works on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from townlet.agents.registry import entry
from townlet.config.merge import format_overrides
from townlet.errors import TownletError
from townlet.gym import extras
from townlet.recipes.catalog import GENERIC_GYM
from townlet.recipes.render import RecipeSummary
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start

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
