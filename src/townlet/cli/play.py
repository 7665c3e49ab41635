"""`townlet play`: watch players live in a town, or live there yourself; ends with how long each lives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import typer

from townlet.cli.console import err, out
from townlet.cli.keyboard import Keyboard
from townlet.errors import TownletError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console, RenderableType

    from townlet.sim.engines import Engine
    from townlet.sim.feasibility import Survival
    from townlet.sim.players import Player
    from townlet.sim.scene import Scene
    from townlet.world.tables import World

LONGEST: Final = 5000  # steps at which the lives behind the table are stopped where a world allows more
FRAME: Final = 0.03  # seconds between two drawings, or a little more
PAUSE: Final = 1.5  # seconds that a death stays on show
TURN: Final = 4.0  # seconds that each player is shown where the terminal has no room for all

MOVES: Final = {
    "up": "UP", "down": "DOWN", "left": "LEFT", "right": "RIGHT",
    "w": "UP", "s": "DOWN", "a": "LEFT", "d": "RIGHT",
    "<": "BELOW", ">": "ABOVE", " ": "INTERACT", "e": "INTERACT", ".": "WAIT",
}  # fmt: skip
# Without a map every place has a key of its own, in the order of the world's affordances.
PLACES: Final = "1234567890abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-*"


class Mode(StrEnum):
    """Who plays."""

    RANDOM = "random"
    PLANNER = "planner"
    HUMAN = "human"


@dataclass
class Human:
    """Plays the key that was pressed."""

    name: str = "you"
    action: int = 0

    def act(self, engine: Engine) -> NDArray[np.int64]:
        """The chosen action, in every row."""
        return np.full(engine.rows, self.action, np.int64)


@dataclass
class Seat:
    """One player in a town of its own, life after life."""

    player: Player
    engine: Engine
    scene: Scene
    ages: list[int] = field(default_factory=list)  # of finished lives
    last: str = ""  # how the last one ended
    rest: int = 0  # steps that its end stays on show
    room: tuple[int, int] = (0, 0)  # columns and lines its frames have needed, so that nothing jumps

    @classmethod
    def at(cls, world: World, player: Player, seed: int) -> Seat:
        from townlet.sim.engines import make_engine

        engine = make_engine(world, 1, autoreset=False)
        engine.reset(seed)
        return cls(player, engine, engine.scene(0))

    def step(self, pause: int = 0) -> None:
        """One step; after an end `pause` steps of rest, then the next life."""
        if self.rest > 0:
            self.rest -= 1
        elif self.scene.ended:
            self.engine.reset_rows(np.ones(1, bool))
            self.scene = self.engine.scene(0)
        else:
            action = self.player.act(self.engine)
            self.engine.step(action)
            self.scene = self.engine.scene(0, int(action[0]))
            if self.scene.ended:
                self.ages.append(self.scene.age)
                self.last, self.rest = self.scene.ended, pause

    def caption(self) -> str:
        """What came before this moment."""
        life = len(self.ages) + (not self.scene.ended)
        if not self.ages:
            return f"life {life}"
        return f"life {life} · last: {self.ages[-1]} steps, {self.last} · longest: {max(self.ages)}"


def stage(seats: Sequence[Seat], console: Console, footer: str, moment: float) -> RenderableType:
    """All towns side by side, or below each other, or one after the other, as the terminal has room."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from townlet.envs.ansi import frame

    frames = [Text.from_ansi(frame(seat.scene, colour=not console.no_color)) for seat in seats]
    for seat, text in zip(seats, frames, strict=True):
        lines = text.split()
        seat.room = max(seat.room[0], *(line.cell_len for line in lines)), max(seat.room[1], len(lines))
    wide, high = max(seat.room[0] for seat in seats) + 4, max(seat.room[1] for seat in seats) + 2
    panels = [
        Panel(text, title=f"[bold]{seat.player.name}", subtitle=seat.caption(), width=wide, height=high)
        for seat, text in zip(seats, frames, strict=True)
    ]
    if wide * len(panels) <= console.width:
        grid = Table.grid()
        grid.add_row(*panels)
        return Group(grid, Text(footer))
    if high * len(panels) + 1 <= console.height:
        return Group(*panels, Text(footer))
    if wide > console.width or high >= console.height:
        footer = f"{footer} · this window is too small: the town needs {wide}×{high + 2}"
    elif len(panels) > 1:
        footer = f"{footer} · in turn, as only {wide * len(panels)} columns have room for all"
    return Group(Text(footer), panels[int(moment / TURN) % len(panels)])


def watch(seats: Sequence[Seat], console: Console, speed: float, steps: int) -> None:
    """Show `steps` steps at `speed` a second; q leaves."""
    from contextlib import nullcontext

    from rich.live import Live

    footer = f"{speed:g} steps a second · q or Ctrl-C leaves"
    keys = Keyboard() if Keyboard.available() else None
    with keys or nullcontext(), Live(console=console, screen=True, auto_refresh=False) as live:
        begin = drawn = time.monotonic()
        for n in range(steps + 1):
            if n in (0, steps) or time.monotonic() - drawn >= FRAME:
                drawn = time.monotonic()
                live.update(stage(seats, console, footer, n / speed), refresh=True)
            left = max(0.0, begin + (n + 1) / speed - time.monotonic())
            if keys is None:
                time.sleep(left)
            elif keys.key(left) == "q":
                return
            for seat in seats:
                seat.step(round(PAUSE * speed))


def play_by_hand(seats: Sequence[Seat], human: Human, console: Console) -> None:
    """Let a person choose each step of every town on show; q leaves."""
    from rich.live import Live

    yours = next(seat for seat in seats if seat.player is human)
    world = yours.engine.world
    words = legend(world)
    with Keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(stage(seats, console, words, seats.index(yours) * TURN), refresh=True)
            key = keys.key(None)
            if key == "q":
                return
            choice = 0 if yours.scene.ended else choose(world, yours.scene, key)
            words = choice if isinstance(choice, str) else legend(world)
            if isinstance(choice, int):
                words = unpaid(yours.scene, choice) or words
                human.action = choice
                for seat in seats:
                    seat.step()
                if yours.scene.ended:
                    words = f"{yours.scene.ended} after {yours.scene.age} steps · any key begins a new life · q leaves"


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


def print_frames(seats: Sequence[Seat], console: Console, steps: int) -> None:
    """For a pipe: the beginning, the middle and the end of each player's first life."""
    from townlet.envs.ansi import frame

    for seat in seats:
        scenes = [seat.scene]
        while not seat.scene.ended and len(scenes) <= steps:
            seat.step()
            scenes.append(seat.scene)
        for scene in (scenes[0], scenes[len(scenes) // 2], scenes[-1]):
            console.print(f"{seat.player.name}, step {scene.age}", style="bold", markup=False)
            console.print(frame(scene, colour=False), markup=False, soft_wrap=True)
            console.print()


def meaning(world: World, lives: Sequence[Survival]) -> str:
    """One sentence on what the table says."""
    means = {s.player: s for s in lives}
    begin = f"A random agent lives about {means['random'].mean:.0f} steps in {world.name}"
    if "planner" not in means:
        return f"{begin}: a learning agent has to beat that."
    best = means["planner"]
    if best.mean <= means["random"].mean:
        return f"{begin}, and planning ahead does not help: this world is too hard, or needs no care."
    return (
        f"{begin}; one that knows every rule lives {best.mean:.0f} (the limit is {best.limit}). "
        "What lies between the two is what a learning agent has to find out by itself."
    )


def play(
    world: Annotated[str, typer.Argument(metavar="WORLD", help="A shipped world or the path of a YAML file.")] = "town",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to the world, as in max_steps=1000")
    ] = None,
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Who plays; may be given again. By default random and planner.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Steps shown in a second.")] = 20.0,
    steps: Annotated[int, typer.Option(min=1, help="Steps to show.")] = 500,
    lives: Annotated[int, typer.Option(min=1, max=100_000, help="Lives behind each line of the table.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Another number gives other lives.")] = 0,
) -> None:
    """Watch a random and a planning agent live in a town side by side, or live there yourself.

    [bold]Examples[/bold]

    $ townlet play

    $ townlet play town-l3 --mode planner --speed 10

    $ townlet play town --mode human --mode planner

    $ townlet play town affordances.Bed.price=0.05 --steps 100
    """
    from townlet.rng import Streams
    from townlet.sim.feasibility import measure, survival_table
    from townlet.sim.players import make_player
    from townlet.world.load import load

    modes = list(dict.fromkeys(mode or [Mode.RANDOM, Mode.PLANNER]))
    console = out()
    if Mode.HUMAN in modes and not (console.is_terminal and Keyboard.available()):
        raise TownletError("--mode human needs a terminal with a keyboard", "use --mode random or --mode planner here")
    compiled = load(world, overrides or ())
    human = Human()
    streams = Streams(seed)
    with err().status("preparing the town"):
        players = [human if m is Mode.HUMAN else make_player(m, compiled, streams.numpy(m)) for m in modes]
        seats = [Seat.at(compiled, player, streams.key("towns")) for player in players]
    if Mode.HUMAN in modes:
        play_by_hand(seats, human, console)
    elif console.is_terminal:
        watch(seats, console, speed, steps)
    else:
        print_frames(seats, console, steps)

    limit = min(int(compiled.tables.max_steps), LONGEST)
    with err().status(f"{lives} lives each"):
        measured = streams.child("table")
        yardsticks = [make_player(m, compiled, measured.numpy(m)) for m in _yardsticks(modes)]
        found = [measure(compiled, player, lives, measured.key("towns"), limit) for player in yardsticks]
    console.print(survival_table(f"{compiled.name}: how long each lives", found))
    if human_ages := next((seat.ages for seat in seats if seat.player is human), []):
        console.print(f"You lived {', '.join(map(str, human_ages))} steps.")
    console.print(meaning(compiled, found))


def _yardsticks(modes: Sequence[Mode]) -> list[str]:
    """Players of the table: those asked for, always a random one to compare with."""
    asked = [Mode.RANDOM, Mode.PLANNER] if Mode.HUMAN in modes else modes
    return list(dict.fromkeys([Mode.RANDOM, *asked]))
