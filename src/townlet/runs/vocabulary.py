"""What a run is about, in words: in a town lives are lived as long as possible, elsewhere returns are won."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal


@dataclass(frozen=True)
class Vocabulary:
    """How to speak of the episodes of a run, and which column of them matters."""

    metric: Literal["length", "return"]
    episodes: str
    curve: str  # title of the plot over time
    plot: str  # name of its file
    axis: str
    ends: str  # title of what ended them
    evaluated: str  # label of the figure that one looks for first

    def figure(self, value: float) -> str:
        """A score in as many digits as it is worth."""
        return f"{value:.0f}" if self.metric == "length" or abs(value) >= 100 else f"{value:.3g}"


TOWN: Final = Vocabulary(
    "length", "lives", "How long lives last", "survival", "length of a life in steps", "What ends lives",
    "lives, evaluated",
)  # fmt: skip
GYM: Final = Vocabulary(
    "return", "episodes", "What is won", "returns", "return of an episode", "What ends episodes", "return, evaluated"
)


def vocabulary(meta: Mapping[str, Any]) -> Vocabulary:
    """The words for a run, by what its meta.json says."""
    return GYM if meta.get("gym") else TOWN
