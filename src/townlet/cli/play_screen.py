"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from townlet.interfaces.show import Show

try:
    import termios
    import tty
except ImportError:  # Windows: towns can be watched there, not played by hand
    TERMINALS = False
else:
    TERMINALS = True

ARROW_KEYS: Final = {"A": "up", "B": "down", "C": "right", "D": "left"}
# An arrow, any other sequence that a special key sends, or one character.
KEY_PATTERN: Final = re.compile(r"\x1b[\[O]([ABCD])|\x1b[\[O][0-9;]*[A-Za-z~]|[\s\S]")


def parse_keys(text: str) -> list[str]:
    """The keys behind what a terminal sent: "up", "down", "left", "right" or the character typed."""
    return [ARROW_KEYS[m[1]] if m[1] else m[0] for m in KEY_PATTERN.finditer(text)]


class Keyboard:
    """Inside `with`, keys arrive as they are pressed and are not shown; Ctrl-C still interrupts."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._in = sys.stdin.fileno() if descriptor is None else descriptor
        self._waiting: deque[str] = deque()
        self._before: list[Any] = []

    @staticmethod
    def available() -> bool:
        """Whether someone can press keys here."""
        return TERMINALS and sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        return self

    def __exit__(self, *error: object) -> None:
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def key(self, timeout: float | None) -> str:
        """The next key, or "" when none came in time (seconds; None waits as long as it takes)."""
        if not self._waiting and select.select([self._in], [], [], timeout)[0]:
            sent = os.read(self._in, 64)
            if not sent:  # the terminal is gone
                raise KeyboardInterrupt
            self._waiting.extend(parse_keys(sent.decode(errors="ignore")))
        return self._waiting.popleft() if self._waiting else ""


FRAME: Final = 0.03  # seconds between two drawings, or a little more
PAUSE: Final = 1.5  # seconds that an end stays on show
TURN: Final = 4.0  # seconds that each player is shown where the terminal has no room for all
LEAVE: Final = "q"


class FinishedEpisode(NamedTuple):
    """A finished one."""

    score: float
    told: str


@dataclass
class PlayerView:
    """One player and what there is to see of it, episode after episode; `most` of them, if that is given."""

    name: str
    show: Show
    most: int | None = None
    ended: list[FinishedEpisode] = field(default_factory=list)
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
            self.ended.append(FinishedEpisode(self.show.score, f"{self.show.told()}, {self.show.over}"))
        return bool(self.show.over)

    def caption(self) -> str:
        """What came before this moment."""
        words, now = self.show.words, len(self.ended) + (not self.show.over)
        if not self.ended:
            return f"{words.episode} {now}"
        best = max(one.score for one in self.ended)
        return f"{words.episode} {now} · last: {self.ended[-1].told} · {words.most}: {best:.6g}"


class Display(Protocol):
    """Where seats are seen and keys are pressed: a terminal or a window."""

    def draw(self, seats: Sequence[PlayerView], words: str, moment: float) -> None:
        """Show all seats with a line of words; `moment` in seconds says whose turn it is where only one has room."""

    def key(self, seconds: float | None) -> str:
        """The next key, "" when none came in time; None waits as long as it takes."""


def render_players(seats: Sequence[PlayerView], console: Console, footer: str, moment: float) -> RenderableType:
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


def watch(seats: Sequence[PlayerView], screen: Display, speed: float, steps: int | None, by_step: bool = False) -> None:
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


def print_frames(seats: Sequence[PlayerView], console: Console, steps: int | None) -> None:
    """For a pipe: the beginning, the middle and the end of each player's episodes, where they can be written."""
    for seat in seats:
        for n in range(seat.most or 1):
            if n:
                seat.step()  # begins the next one
            _print_episode(seat, console, steps)


def _print_episode(seat: PlayerView, console: Console, steps: int | None) -> None:
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


class KeyBindings(Protocol):
    """Which key does what, and why a key cannot be followed."""

    def legend(self) -> str:
        """Which keys do what."""

    def choose(self, key: str) -> int | str:
        """The action behind a key, or why it cannot be taken now."""

    def wasted(self, action: int) -> str:
        """Why an action that can be taken will do nothing; "" where it will."""


def play_by_hand(seats: Sequence[PlayerView], yours: PlayerView, hands: KeyBindings, screen: Display) -> None:
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


def _ending(seat: PlayerView) -> str:
    """What came of an episode, and how to go on."""
    then = "leaves" if seat.done else f"begins a new {seat.show.words.episode} · q leaves"
    return f"{seat.show.over} after {seat.show.age} steps · any key {then}"


class TerminalDisplay:
    """The whole terminal, inside `with`; keys are heard where there is a keyboard."""

    def __init__(self, console: Console) -> None:
        self._console, self._open = console, ExitStack()
        self._keys: Keyboard | None = None
        self._live: Live | None = None

    def __enter__(self) -> TerminalDisplay:
        from rich.live import Live

        self._keys = self._open.enter_context(Keyboard()) if Keyboard.available() else None
        self._live = self._open.enter_context(Live(console=self._console, screen=True, auto_refresh=False))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def draw(self, seats: Sequence[PlayerView], words: str, moment: float) -> None:
        """All seats, as there is room."""
        assert self._live is not None
        self._live.update(render_players(seats, self._console, words, moment), refresh=True)

    def key(self, seconds: float | None) -> str:
        """The next key; without a keyboard only time goes by."""
        if self._keys is not None:
            return self._keys.key(seconds)
        time.sleep(seconds or 0)
        return ""


class WindowDisplay:
    """A window of its own, inside `with`; needs pygame, a screen, and something that draws pictures."""

    def __init__(self, title: str) -> None:
        from townlet.window import Window, has_screen

        if not has_screen():
            fix = "watch in the terminal (leave out --window), or write a video: --video episode.mp4"
            raise TownletError("there is no screen to open a window on", fix)
        self._window = Window(title, 0)

    def __enter__(self) -> WindowDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        self._window.close()

    def draw(self, seats: Sequence[PlayerView], words: str, moment: float) -> None:
        """The pictures of all seats side by side; the words are its title."""
        from townlet.runs.videos import side_by_side

        self._window.show(side_by_side([seat.show for seat in seats]))
        self._window.title(" · ".join(f"{seat.name}: {seat.show.told()}" for seat in seats) + f" · {words}")

    def key(self, seconds: float | None) -> str:
        """The next key; closing the window is one as well."""
        return self._window.key(seconds)
