"""What is watched: seats side by side on a screen, or as lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from townlet.interfaces.show import Show

FRAME: Final = 0.03  # seconds between two drawings, or a little more
PAUSE: Final = 1.5  # seconds that an end stays on show
TURN: Final = 4.0  # seconds that each player is shown where the terminal has no room for all
LEAVE: Final = "q"


class Episode(NamedTuple):
    """A finished one."""

    score: float
    told: str


@dataclass
class Seat:
    """One player and what there is to see of it, episode after episode; `most` of them, if that is given."""

    name: str
    show: Show
    most: int | None = None
    ended: list[Episode] = field(default_factory=list)
    rest: int = 0  # steps that an end stays on show
    room: tuple[int, int] = (0, 0)  # columns and lines its frames have needed, so that nothing jumps

    @property
    def done(self) -> bool:
        """Whether all its episodes have ended."""
        return self.most is not None and len(self.ended) >= self.most

    def step(self, pause: int = 0, action: int | None = None) -> None:
        """One step; after an end `pause` steps of rest, then the next episode."""
        over = bool(self.show.over)
        if self.rest > 0:
            self.rest -= 1
        elif over:
            if not self.done:
                self.show.begin()
        else:
            self.show.step(action)
            self.rest = pause if self.note() else 0

    def note(self) -> bool:
        """Write the episode down, if it has just ended."""
        if self.show.over:
            self.ended.append(Episode(self.show.score, f"{self.show.told()}, {self.show.over}"))
        return bool(self.show.over)

    def caption(self) -> str:
        """What came before this moment."""
        words, now = self.show.words, len(self.ended) + (not self.show.over)
        if not self.ended:
            return f"{words.episode} {now}"
        best = max(one.score for one in self.ended)
        return f"{words.episode} {now} · last: {self.ended[-1].told} · {words.most}: {best:.6g}"


class Screen(Protocol):
    """Where seats are seen and keys are pressed: a terminal or a window."""

    def draw(self, seats: Sequence[Seat], words: str, moment: float) -> None:
        """Show all seats with a line of words; `moment` in seconds says whose turn it is where only one has room."""

    def key(self, seconds: float | None) -> str:
        """The next key, "" when none came in time; None waits as long as it takes."""


def stage(seats: Sequence[Seat], console: Console, footer: str, moment: float) -> RenderableType:
    """All seats side by side, or below each other, or one after the other, as the terminal has room."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    across, down = console.width // len(seats) - 4, console.height - 4
    frames = [Text.from_ansi(seat.show.text(across, down, not console.no_color)) for seat in seats]
    for seat, text in zip(seats, frames, strict=True):
        lines = text.split()
        seat.room = max(seat.room[0], *(line.cell_len for line in lines)), max(seat.room[1], len(lines))
    wide, high = max(seat.room[0] for seat in seats) + 4, max(seat.room[1] for seat in seats) + 2
    panels = [
        Panel(text, title=f"[bold]{seat.name}", subtitle=seat.caption(), width=wide, height=high)
        for seat, text in zip(seats, frames, strict=True)
    ]
    if wide * len(panels) <= console.width:
        grid = Table.grid()
        grid.add_row(*panels)
        return Group(grid, Text(footer))
    if high * len(panels) + 1 <= console.height:
        return Group(*panels, Text(footer))
    if wide > console.width or high >= console.height:
        footer = f"{footer} · this window is too small: {wide}×{high + 2} are needed"
    elif len(panels) > 1:
        footer = f"{footer} · in turn, as only {wide * len(panels)} columns have room for all"
    return Group(Text(footer), panels[int(moment / TURN) % len(panels)])


def watch(seats: Sequence[Seat], screen: Screen, speed: float, steps: int | None, by_step: bool = False) -> None:
    """Show `steps` steps at `speed` a second, or each after a key; ends when all seats are done, q leaves."""
    footer = "any key is a step · q leaves" if by_step else f"{speed:g} steps a second · q or Ctrl-C leaves"
    begin, drawn = time.monotonic(), 0.0
    for n in count():
        last = (steps is not None and n >= steps) or all(seat.done and not seat.rest for seat in seats)
        if last or by_step or time.monotonic() - drawn >= FRAME:
            drawn = time.monotonic()
            screen.draw(seats, footer, n / speed)
        wait = None if by_step and not last else max(0.0, begin + (n + 1) / speed - time.monotonic())
        if screen.key(wait) == LEAVE or last:
            return
        for seat in seats:
            seat.step(0 if by_step else round(PAUSE * speed))


def print_frames(seats: Sequence[Seat], console: Console, steps: int | None) -> None:
    """For a pipe: the beginning, the middle and the end of each player's episodes, where they can be written."""
    for seat in seats:
        for n in range(seat.most or 1):
            if n:
                seat.step()  # begins the next one
            _print_episode(seat, console, steps)


def _print_episode(seat: Seat, console: Console, steps: int | None) -> None:
    show = seat.show
    moments = [(show.age, show.text(0, 0, False))]
    while not show.over and (steps is None or len(moments) <= steps):
        seat.step()
        moments.append((show.age, show.text(0, 0, False)))
    for age, text in (moments[0], moments[len(moments) // 2], moments[-1]) if moments[0][1] else ():
        console.print(f"{seat.name}, step {age}", style="bold", markup=False)
        console.print(text, markup=False, soft_wrap=True)
        console.print()
    if show.over:
        number = f"{seat.name}, {show.words.episode} {len(seat.ended)}"
        console.print(f"{number}: {seat.ended[-1].told}", markup=False, soft_wrap=True)
