"""Every recipe for a moment: which of them can be trained on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from townlet.agents.registry import entry
from townlet.errors import TownletError
from townlet.gym import extras
from townlet.recipes.catalogue import GENERIC_GYM
from townlet.recipes.render import RecipeSummary
from townlet.tasks.experiment import load_experiment
from townlet.train.api import as_words
from townlet.train.session import start

ROWS: Final = 2
# A few updates and two evaluations of short episodes, of whatever agent in whatever environment.
MOMENT: Final = (
    f"rows={ROWS}", "threads=1", "budget.env_steps=256", "evaluation.episodes=1", "evaluation.every=256",
    "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
ANYWHERE: Final = "CartPole-v1"  # where settings for any environment are tried
STEPS: Final = 32  # of an episode


@dataclass(frozen=True)
class Tried:
    """One recipe: whether it trained, or why not."""

    title: str
    works: bool
    said: str  # why not, in a line
    excused: bool = False  # what it needs is not installed
    seconds: float = 0.0


def smoke(recipes: Sequence[RecipeSummary]) -> Iterator[Tried]:
    """Train each for a moment in a folder that is gone afterwards; what breaks one does not stop the others."""
    for line in recipes:
        with TemporaryDirectory(prefix="townlet-smoke-") as folder:
            yield _one(line.title, line.env, Path(folder))


def _one(title: str, env: str, root: Path) -> Tried:
    begun = time.monotonic()
    if (missing := extras.missing(env)) is not None:
        return Tried(title, False, missing, excused=True)
    try:
        outcome = start(load_experiment(title, _words(title)), root)
    except TownletError as error:
        return Tried(title, False, str(error.diagnostics[0]))
    except Exception as error:  # whatever a simulator of others raises is told, and the next recipe is tried
        return Tried(title, False, f"{type(error).__name__}: {error}".partition("\n")[0][:200])
    if outcome.summary is None:
        raise KeyboardInterrupt
    return Tried(title, True, "", seconds=time.monotonic() - begun)


def _words(title: str) -> list[str]:
    """What makes a recipe short."""
    somewhere = [f"env={ANYWHERE}"] if title.startswith(f"{GENERIC_GYM}:") else []
    recipe = load_experiment(title, somewhere).recipe
    short = f"change.max_steps={STEPS}" if recipe.gym is None else f"gym.max_episode_steps={STEPS}"
    measured = () if recipe.gym is not None else (f"evaluation.change.max_steps={STEPS}",)
    settings = as_words({f"agent.{key}": value for key, value in entry(recipe.agent.name).smoke.items()})
    return [*somewhere, *MOMENT, *settings, short, *measured]
