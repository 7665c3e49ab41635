"""Something that can be watched: one row, step by step, as text and as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Words(NamedTuple):
    """How to speak of what is watched."""

    episode: str  # a life, an episode
    most: str  # what the best of them is called


class Show(Protocol):
    """One row and whoever plays in it, episode after episode."""

    rate: int  # moments in a second that suit it
    words: Words

    @property
    def age(self) -> int:
        """Steps of this episode so far."""

    @property
    def score(self) -> float:
        """What counts in this episode so far: steps lived, or what was won."""

    @property
    def over(self) -> str:
        """Why the episode is over; "" while it goes on."""

    def told(self) -> str:
        """How far it came, in a few words."""

    def step(self, action: int | None = None) -> None:
        """One step: the player's, or this action."""

    def begin(self) -> None:
        """The next episode."""

    def text(self, columns: int, lines: int, colour: bool) -> str:
        """This moment for a terminal with that much room, with its control codes only in colour; "" where there is
        nothing to show that way."""

    def picture(self) -> NDArray[np.uint8] | None:
        """This moment as a picture [height, width, 3]."""

    def close(self) -> None:
        """Give back what it holds."""
