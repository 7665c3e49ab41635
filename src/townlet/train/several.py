"""The same recipe with several seeds, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from townlet.rng import Streams
from townlet.train.launch import Outcome, start
from townlet.train.load import load
from townlet.train.recipe import Recipe
from townlet.train.sinks import Sink

RESAMPLES: Final = 2000
LEVEL: Final = 0.95


def iqm(scores: Sequence[float]) -> float:
    """The interquartile mean: the mean of the middle half, each score weighted by how much of it lies there."""
    values = np.sort(np.asarray(scores, np.float64))
    n = len(values)
    edges = np.arange(n + 1) / n
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return float((values * share).sum() / share.sum())


def interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The bootstrap interval of the IQM (Agarwal et al. 2021): drawn again from the scores, with repetition."""
    draws = Streams(seed).numpy("bootstrap").choice(np.asarray(scores, np.float64), (RESAMPLES, len(scores)))
    low, high = np.quantile([iqm(draw) for draw in draws], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Several:
    """Runs that differ in their seed alone."""

    metric: str
    outcomes: tuple[Outcome, ...]

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped it on the way."""
        return any(outcome.ending.why == "interrupted" for outcome in self.outcomes)

    @property
    def scores(self) -> list[float]:
        """The last evaluation of each finished run."""
        return [o.ending.last.score(self.metric) for o in self.outcomes if o.ending.last is not None]

    def in_words(self) -> str:
        """The IQM with its interval."""
        if not self.scores:
            return "no seed was finished"
        low, high = interval(self.scores)
        count = f"{len(self.scores)} seed" + "s" * (len(self.scores) != 1)
        return f"IQM of {self.metric} over {count}: {iqm(self.scores):.1f}, 95 % interval {low:.1f} to {high:.1f}"


def several(
    asked: str, overrides: Sequence[str], root: Path, seeds: int, sink: Callable[[Recipe], Sink] | None = None
) -> Several:
    """Train the recipe with its seed and the next ones; an interruption ends the row of them."""
    first = load(asked, overrides).recipe
    done: list[Outcome] = []
    for number in range(seeds):
        loaded = load(asked, [*overrides, f"seed={first.seed + number}"])
        done.append(start(loaded, root, sinks=[sink(loaded.recipe)] if sink else ()))
        if not done[-1].ending.finished:
            break
    return Several(first.evaluation.metric, tuple(done))
