"""Training and loading for programs of one's own: `townlet.train` and `townlet.load`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from townlet.distributed import launched_with_others
from townlet.errors import TownletError
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.policies import TrainedPolicy, Which, load_policy
from townlet.train.session import Outcome, start
from townlet.train.sinks import on_console

Overrides = Mapping[str, Any] | Sequence[str] | str


@dataclass(frozen=True)
class TrainedRun(Run):
    """A run with what came of it."""

    score: float | None  # of the evaluation at its end, by the recipe's metric
    outcome: Outcome = field(repr=False, compare=False)

    @property
    def summary(self) -> list[str]:
        """What was learned and what was not, in sentences."""
        return self.outcome.summary.sentences() if self.outcome.summary else []

    def load(self, which: Which = "best") -> TrainedPolicy:
        """What it learned."""
        return load_policy(self, which)


def load(
    run: str | Path | Run, which: Which = "best", *, root: str | Path = "runs", seed: int | None = None
) -> TrainedPolicy:
    """The policy of a run: by path, by name below `root`, as "latest", or the run itself."""
    return load_policy(run if isinstance(run, Run) else Run.open(run, Path(root)), which, seed)


def train(
    recipe: str = "town",
    *,
    seed: int | None = None,
    overrides: Overrides = (),
    root: str | Path = "runs",
    progress: bool = False,
) -> TrainedRun:
    """Train a recipe from nothing. Ctrl-C saves the run and then interrupts the program as usual."""
    if launched_with_others():
        what = "a program of one's own trains in one process"
        raise TownletError(what, "start it without torchrun, or type torchrun … -m townlet train")
    words = as_words(overrides)
    if seed is not None:
        words.append(f"seed={seed}")
    loaded = load_experiment(recipe, words)
    outcome = start(loaded, Path(root), sinks=[on_console(Console(stderr=True), loaded.recipe)] if progress else ())
    if outcome.ending.why == "interrupted":
        raise KeyboardInterrupt
    last = outcome.ending.last
    score = None if last is None else last.score(loaded.recipe.metric)
    return TrainedRun(outcome.run.path, score, outcome)


def as_words(overrides: Overrides) -> list[str]:
    """`key=value` of each change; a mapping may have any value that JSON can write."""
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value, default=_plain, ensure_ascii=False)}" for key, value in overrides.items()]
    return list(overrides)


def _plain(value: Any) -> Any:
    """Numbers of NumPy and torch as Python's, paths as text."""
    return value.item() if hasattr(value, "item") else str(value)
