"""The keys of a person who lives in a town, and why a key cannot be followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from townlet.town.render.show import TownShow
    from townlet.town.scene import Scene
    from townlet.town.world.tables import World

MOVES: Final = {
    "up": "UP", "down": "DOWN", "left": "LEFT", "right": "RIGHT",
    "w": "UP", "s": "DOWN", "a": "LEFT", "d": "RIGHT",
    "<": "BELOW", ">": "ABOVE", " ": "INTERACT", "e": "INTERACT", ".": "WAIT",
}  # fmt: skip
# Without a map every place has a key of its own, in the order of the world's affordances.
PLACES: Final = "1234567890abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-*"


@dataclass(frozen=True)
class TownHands:
    """Keys for one town, see `townlet.cli.by_hand.Hands`."""

    show: TownShow

    def legend(self) -> str:
        """Which keys do what."""
        return legend(self.show.world)

    def choose(self, key: str) -> int | str:
        """The action behind a key, or why it cannot be taken now."""
        return choose(self.show.world, self.show.scene, key)

    def wasted(self, action: int) -> str:
        """Whether the purse is too empty."""
        return unpaid(self.show.scene, action)


def choose(world: World, scene: Scene, key: str) -> int | str:
    """The action behind a key, or why it cannot be taken now."""
    action = _action(world, key)
    if key == "?":
        return " · ".join(f"{a.icon or a.name[:1]} {a.name}" for a in world.spec.affordances)
    if action is None:
        return f"{key!r} does nothing here · {legend(world)}"
    if scene.mask[action]:
        return action
    name = world.actions[action]
    if not name.startswith("INTERACT"):
        return f"{name}: the map ends here"
    place = scene.here if world.size else action
    if place >= len(world.affordances):
        return "INTERACT: there is nothing to use on this cell; walk to a place first"
    closed = not world.tables.open_at[place, scene.hour]
    return f"{world.affordances[place]} " + (
        f"is closed at hour {scene.hour}" if closed else "costs more than you have"
    )


def unpaid(scene: Scene, action: int) -> str:
    """Why an action that the mask allows will be wasted: the purse is too empty."""
    world, t = scene.world, scene.world.tables
    place = (scene.here if world.size else action) if t.first_interact <= action < t.wait else t.none
    if place == t.none or scene.meters[t.currency] >= t.price[place] - t.tolerance:
        return ""
    cost = f"${t.price[place] * world.spec.dollars:.2f}"
    return f"{world.affordances[place]} costs {cost} and you have ${scene.dollars:.2f}: the step was wasted"


def _action(world: World, key: str) -> int | None:
    if not world.size and key in PLACES[: len(world.affordances)]:
        return PLACES.index(key)
    name = MOVES.get(key, "")
    return world.actions.index(name) if name in world.actions else None


def legend(world: World) -> str:
    """Which keys do what in this world."""
    if not world.size:
        places = "  ".join(f"{key} {name}" for key, name in zip(PLACES, world.affordances, strict=False))
        return f"{places}  . wait  q leave"
    levels = "  < > levels" if "ABOVE" in world.actions else ""
    return f"arrows or wasd move{levels}  space or e use  . wait  ? places  q leave"
