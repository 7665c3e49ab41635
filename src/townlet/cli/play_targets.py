"""The keys of a person who lives in a town, and why a key cannot be followed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from townlet.cli.console import err
from townlet.cli.play_screen import PlayerView
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console

    from townlet.rng import Streams
    from townlet.tasks.evaluation import Acting
    from townlet.tasks.gym import GymTask
    from townlet.tasks.gym_show import GymShow, Mode
    from townlet.town.feasibility import SurvivalStats
    from townlet.town.planner import Player
    from townlet.town.render.show import TownShow
    from townlet.town.scene import Scene
    from townlet.town.world.tables import World
    from townlet.train.policies import TrainedPolicy

MOVES: Final = {
    "up": "UP", "down": "DOWN", "left": "LEFT", "right": "RIGHT",
    "w": "UP", "s": "DOWN", "a": "LEFT", "d": "RIGHT",
    "<": "BELOW", ">": "ABOVE", " ": "INTERACT", "e": "INTERACT", ".": "WAIT",
}  # fmt: skip
# Without a map every place has a key of its own, in the order of the world's affordances.
PLACES: Final = "1234567890abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-*"


@dataclass(frozen=True)
class TownKeys:
    """Keys for one town, see `townlet.cli.play_screen.Hands`."""

    show: TownShow

    def legend(self) -> str:
        """Which keys do what."""
        return town_legend(self.show.world)

    def choose(self, key: str) -> int | str:
        """The action behind a key, or why it cannot be taken now."""
        return town_action(self.show.world, self.show.scene, key)

    def wasted(self, action: int) -> str:
        """Whether the purse is too empty."""
        return unaffordable(self.show.scene, action)


def town_action(world: World, scene: Scene, key: str) -> int | str:
    """The action behind a key, or why it cannot be taken now."""
    action = _action(world, key)
    if key == "?":
        return " · ".join(f"{a.icon or a.name[:1]} {a.name}" for a in world.spec.affordances)
    if action is None:
        return f"{key!r} does nothing here · {town_legend(world)}"
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


def unaffordable(scene: Scene, action: int) -> str:
    """Why an action that the mask allows will be wasted: the purse is too empty."""
    world, t = scene.world, scene.world.tables
    place = (scene.here if world.size else action) if t.first_interact <= action < t.wait else t.n_affordances
    if place == t.n_affordances or scene.meters[t.currency] >= t.price[place] - t.tolerance:
        return ""
    cost = f"${t.price[place] * world.spec.dollars:.2f}"
    return f"{world.affordances[place]} costs {cost} and you have ${scene.dollars:.2f}: the step was wasted"


def _action(world: World, key: str) -> int | None:
    if not world.size and key in PLACES[: len(world.affordances)]:
        return PLACES.index(key)
    name = MOVES.get(key, "")
    return world.actions.index(name) if name in world.actions else None


def town_legend(world: World) -> str:
    """Which keys do what in this world."""
    if not world.size:
        places = "  ".join(f"{key} {name}" for key, name in zip(PLACES, world.affordances, strict=False))
        return f"{places}  . wait  q leave"
    levels = "  < > levels" if "ABOVE" in world.actions else ""
    return f"arrows or wasd move{levels}  space or e use  . wait  ? places  q leave"


LONGEST: Final = 5000  # steps at which the lives behind the table are stopped where a world allows more
STEPS: Final = 500
LIVES: Final = 200  # behind each line of the table
SPEED: Final = 20.0


@dataclass(frozen=True)
class TownTarget:
    """One world, and the agent that was trained for it, if there is one; see `townlet.cli.play.Place`."""

    world: World
    trained: TrainedPolicy | None
    streams: Streams
    lives: int
    greedy: bool = True

    modes = ("trained", "random", "planner", "human")
    steps: int | None = STEPS
    episodes: int | None = None
    speed: float = SPEED

    @property
    def usual(self) -> list[str]:
        """Who plays when nobody is named."""
        return ["trained", "random"] if self.trained else ["random", "planner"]

    def seat(self, mode: str, drawn: str) -> PlayerView:
        """A player in a town of its own; a person needs none."""
        from townlet.town.render.show import TownShow

        player = _player("passive" if mode == "human" else mode, self, self.streams)
        return PlayerView(
            "you" if mode == "human" else player.name, TownShow(self.world, player, self.streams.key("towns"))
        )

    def hands(self, seat: PlayerView) -> TownKeys:
        """The keys of a person."""
        from townlet.town.render.show import TownShow

        assert isinstance(seat.show, TownShow)
        return TownKeys(seat.show)

    def finish(self, seats: Sequence[PlayerView], modes: Sequence[str], console: Console) -> None:
        """How long each lives, as a table and a sentence."""
        from townlet.town.feasibility import measure_survival, survival_table

        limit = min(int(self.world.tables.max_steps), LONGEST)
        with err().status(f"{self.lives} lives each"):
            measured = self.streams.child("table")
            asked = self.usual if "human" in modes else [*modes]
            yardsticks = [_player(mode, self, measured) for mode in dict.fromkeys(["random", *asked])]
            found = [
                measure_survival(self.world, player, self.lives, measured.key("towns"), limit) for player in yardsticks
            ]
        console.print(survival_table(f"{self.world.name}: how long each lives", found))
        if mine := next((seat.ended for seat in seats if seat.name == "you"), []):
            console.print(f"You lived {', '.join(f'{one.score:.0f}' for one in mine)} steps.")
        console.print(meaning(self.world, found))


def meaning(world: World, lives: Sequence[SurvivalStats]) -> str:
    """One sentence on what the table says."""
    means = {s.player: s for s in lives}
    begin = f"A random agent lives about {means['random'].mean:.0f} steps in {world.name}"
    if "trained" in means:
        planner = f", one that knows every rule {means['planner'].mean:.0f}" if "planner" in means else ""
        trained = means["trained"]
        return f"{begin}{planner}; this one lives {trained.mean:.0f} (the limit is {trained.limit})."
    if "planner" not in means:
        return f"{begin}: a learning agent has to beat that."
    best = means["planner"]
    if best.mean <= means["random"].mean:
        return f"{begin}, and planning ahead does not help: this world is too hard, or needs no care."
    return (
        f"{begin}; one that knows every rule lives {best.mean:.0f} (the limit is {best.limit}). "
        "What lies between the two is what a learning agent has to find out by itself."
    )


def _player(mode: str, place: TownTarget, streams: Streams) -> Player:
    """Who plays in that mode; a trained one has a memory of its own."""
    if mode == "trained" and place.trained is not None:
        from townlet.tasks.town_player import TrainedPlayer

        return TrainedPlayer(place.trained.policy(), place.greedy)
    from townlet.town.planner import make_player

    return make_player(mode, place.world, streams.numpy(mode))


NUMBERS: Final = "1234567890abcdefghijklmnoprstuvwxyz"  # without q, which leaves
# What the name of an action says, word by word, and the key for it.
WORD_KEYS: Final = {
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
            if (key := WORD_KEYS.get(word)) is not None:
                keys.setdefault(key, action)
    return keys


@dataclass(frozen=True)
class GymKeys:
    """Keys for one environment, see `townlet.cli.play_screen.Hands`."""

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


EPISODES: Final = 3


@dataclass(frozen=True)
class GymTarget:
    """One environment, and the agent that was trained for it, if there is one; see `townlet.cli.play.Place`."""

    task: GymTask
    trained: TrainedPolicy | None
    seed: int
    greedy: bool = True

    steps: int | None = None
    episodes: int | None = EPISODES

    @property
    def modes(self) -> list[str]:
        """Who can play here."""
        return [*(["trained"] if self.trained else []), "random", "human"]

    @property
    def usual(self) -> list[str]:
        """Who plays when nobody is named."""
        return ["trained"] if self.trained else ["random"]

    @property
    def speed(self) -> float:
        """As the environment would be shown."""
        return self.task.render_info.fps

    def seat(self, mode: str, drawn: str) -> PlayerView:
        """A player in an environment of its own; a person's is played by chance until a key is pressed."""
        from townlet.tasks.gym_show import GymShow

        how = cast("Mode | None", self._drawn(drawn))
        show = GymShow(self.task, self._player(mode), self.seed, how, greedy=self.greedy)
        return PlayerView("you" if mode == "human" else mode, show)

    def _drawn(self, where: str) -> str | None:
        """The render mode that suits: pictures for windows and videos, elsewhere text where there is one."""
        known = self.task.render_info.modes
        wanted = {"picture": ("rgb_array",), "terminal": ("ansi", "rgb_array"), "pipe": ("ansi",)}[where]
        found = next((mode for mode in wanted if mode in known), None)
        if found is None and where == "picture":
            raise TownletError(f"{self.task.name} draws no pictures", "leave out --window and --video")
        return found

    def _player(self, mode: str) -> Acting:
        from townlet.rng import Streams
        from townlet.tasks.evaluation import Uniform

        if mode == "trained" and self.trained is not None:
            return self.trained.policy()
        return Uniform(self.task.actions, Streams(self.seed).torch("random"))

    def hands(self, seat: PlayerView) -> GymKeys:
        """The keys of a person, where actions are choices."""
        from townlet.interfaces.vec_env import Discrete
        from townlet.tasks.gym_show import GymShow

        if not isinstance(self.task.actions, Discrete):
            what = f"the actions of {self.task.name} are no choices that a key could stand for"
            raise TownletError(what, "use --mode random, or --mode trained of a run")
        assert isinstance(seat.show, GymShow)
        return GymKeys(seat.show, self.task.actions.names)

    def finish(self, seats: Sequence[PlayerView], modes: Sequence[str], console: Console) -> None:
        """What each episode brought, and a sentence."""
        from townlet.tasks.gym_summary import figure

        for seat in seats:
            won = ", ".join(figure(one.score) for one in seat.ended) or "no episode ended"
            console.print(f"{seat.name}: {won}", markup=False, soft_wrap=True)
        first = seats[0]
        if first.ended:
            mean = sum(one.score for one in first.ended) / len(first.ended)
            who = "You get" if first.name == "you" else "This agent gets" if first.name == "trained" else "Chance gets"
            goal = self.task.threshold
            solved = "" if goal is None else f"; from {figure(goal)} on {self.task.name} counts as solved"
            over = f"{len(first.ended)} episode" + "s" * (len(first.ended) != 1)
            console.print(f"{who} {figure(mean)} on average of {over}{solved}.", markup=False, soft_wrap=True)
