"""Towns in a terminal: players side by side, life after life."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from townlet.cli.keyboard import Keyboard

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from townlet.sim.engines import Engine
    from townlet.sim.players import Player
    from townlet.sim.scene import Scene
    from townlet.world.tables import World

FRAME: Final = 0.03  # seconds between two drawings, or a little more
PAUSE: Final = 1.5  # seconds that a death stays on show
TURN: Final = 4.0  # seconds that each player is shown where the terminal has no room for all


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
