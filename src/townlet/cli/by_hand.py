"""A person plays: one key, one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from townlet.cli.stage import LEAVE, TURN, Screen, Seat


class Hands(Protocol):
    """Which key does what, and why a key cannot be followed."""

    def legend(self) -> str:
        """Which keys do what."""

    def choose(self, key: str) -> int | str:
        """The action behind a key, or why it cannot be taken now."""

    def wasted(self, action: int) -> str:
        """Why an action that can be taken will do nothing; "" where it will."""


def play_by_hand(seats: Sequence[Seat], yours: Seat, hands: Hands, screen: Screen) -> None:
    """Let a person choose each step of all that is on show; q leaves."""
    words = hands.legend()
    while True:
        screen.draw(seats, words, seats.index(yours) * TURN)
        key = screen.key(None)
        if key == LEAVE or (yours.done and yours.show.over):
            return
        choice = 0 if yours.show.over else hands.choose(key)
        words = choice if isinstance(choice, str) else hands.legend()
        if isinstance(choice, int):
            words = "" if yours.show.over else hands.wasted(choice)
            words = words or hands.legend()
            for seat in seats:
                seat.step(action=choice if seat is yours else None)
            if yours.show.over:
                words = _ending(yours)


def _ending(seat: Seat) -> str:
    """What came of an episode, and how to go on."""
    then = "leaves" if seat.done else f"begins a new {seat.show.words.episode} · q leaves"
    return f"{seat.show.over} after {seat.show.age} steps · any key {then}"
