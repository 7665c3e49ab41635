"""The keys of a person who plays a Gymnasium environment: a number for each action, arrows where names say so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from townlet.tasks.gym_show import GymShow

NUMBERS: Final = "1234567890abcdefghijklmnoprstuvwxyz"  # without q, which leaves
# What the name of an action says, word by word, and the key for it.
ARROWS: Final = {
    "up": "up", "north": "up", "down": "down", "south": "down", "left": "left", "west": "left", "right": "right",
    "east": "right", "fire": " ", "main": " ", "interact": " ", "pick": " ",
    "none": ".", "noop": ".", "nothing": ".", "wait": ".",
}  # fmt: skip
SIGNS: Final = {"up": "↑", "down": "↓", "left": "←", "right": "→", " ": "space"}


def keys_for(names: Sequence[str]) -> dict[str, int]:
    """Which key is which action: numbers in order, and the first action whose name has the word of an arrow."""
    keys = dict(zip(NUMBERS, range(len(names)), strict=False))
    for action, name in enumerate(names):
        for word in re.findall(r"[a-z]+", name.lower()):
            if (key := ARROWS.get(word)) is not None:
                keys.setdefault(key, action)
    return keys


@dataclass(frozen=True)
class GymHands:
    """Keys for one environment, see `townlet.cli.by_hand.Hands`."""

    show: GymShow
    names: Sequence[str]

    @property
    def keys(self) -> Mapping[str, int]:
        """Which key is which action."""
        return keys_for(self.names)

    def legend(self) -> str:
        """Which keys do what."""
        by_action: dict[int, list[str]] = {}
        for key, action in self.keys.items():
            by_action.setdefault(action, []).append(SIGNS.get(key, key))
        return "  ".join([*(f"{' '.join(by)} {self.names[a]}" for a, by in by_action.items()), "q leave"])

    def choose(self, key: str) -> int | str:
        """The action behind a key, or why it cannot be taken now."""
        action = self.keys.get(key)
        if action is None:
            return f"{key!r} does nothing here · {self.legend()}"
        allowed = self.show.rollout.moments[-1].mask
        return action if allowed[action] else f"{self.names[action]} makes no sense now · {self.legend()}"

    def wasted(self, action: int) -> str:
        """Nobody knows."""
        return ""
