"""What `townlet eval` tells: a trained agent beside its yardsticks, as tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.train.policies import TrainedPolicy

QUARTILES: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
IN_WORDS: Final = ("min", "25 %", "median", "75 %", "max")


class Sheet(NamedTuple):
    """A table for people; the first column names its rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class Measured(Protocol):
    """Whole episodes of a trained agent and of others in the same place."""

    def sheets(self) -> list[Sheet]:
        """The figures for people."""

    def sentences(self) -> list[str]:
        """What a person should know, the best and the worst of it."""

    def figures(self) -> Mapping[str, Any]:
        """All figures by who was measured, for programs."""


def quartiles(values: NDArray[Any]) -> dict[str, float]:
    """The extremes, the quartiles and the median."""
    return dict(zip(QUARTILES, np.quantile(values, list(QUARTILES.values())).tolist(), strict=True))


def acts_greedily(trained: TrainedPolicy, sample: bool | None = None) -> bool:
    """Whether the likeliest actions are taken: as somebody asks, else as the recipe measures its agent."""
    if sample is not None:
        return not sample
    return trained.kind == "values" or trained.loaded.recipe.evaluation.deterministic


def require_chances(trained: TrainedPolicy, greedy: bool) -> None:
    """Refuse to draw actions of an agent that has no probabilities."""
    if not greedy and trained.kind == "values":
        name = trained.loaded.recipe.agent.name
        raise TownletError(f"{name} learns values and has no probabilities to draw from", "leave out --sample")
