"""Output and keyboard input of `townlet play`: a full-screen terminal, a window, or plain text for pipes."""

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

from townlet.cli.console import echo, out
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from townlet.interfaces.task import RenderedEnv

try:
    import termios
    import tty
except ImportError:  # on Windows: no single keys, so people cannot play
    HAS_TERMIOS = False
else:
    HAS_TERMIOS = True

ARROW_KEYS: Final = {"A": "up", "B": "down", "C": "right", "D": "left"}
# An arrow key, another escape sequence, or one character.
KEY_PATTERN: Final = re.compile(r"\x1b[\[O]([ABCD])|\x1b[\[O][0-9;]*[A-Za-z~]|[\s\S]")
FRAME_SECONDS: Final = 0.03  # minimum time between two frames
END_SECONDS: Final = 1.5  # how long the end of an episode is shown
TURN_SECONDS: Final = 4.0  # how long each player is shown if they do not fit side by side
QUIT: Final = "q"


def parse_keys(text: str) -> list[str]:
    """The keys in terminal input: "up", "down", "left", "right" or the typed character."""
    return [ARROW_KEYS[m[1]] if m[1] else m[0] for m in KEY_PATTERN.finditer(text)]


class Keyboard:
    """Reads single keys without echo inside `with`; Ctrl-C still interrupts."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._in = sys.stdin.fileno() if descriptor is None else descriptor
        self._pending: deque[str] = deque()
        self._attributes: list[Any] = []

    @staticmethod
    def available() -> bool:
        return HAS_TERMIOS and sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Keyboard:
        self._attributes = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        return self

    def __exit__(self, *error: object) -> None:
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._attributes)

    def key(self, timeout: float | None) -> str:
        """The next key, or "" after `timeout` seconds; None waits forever."""
        if not self._pending and select.select([self._in], [], [], timeout)[0]:
            data = os.read(self._in, 64)
            if not data:  # the terminal was closed
                raise KeyboardInterrupt
            self._pending.extend(parse_keys(data.decode(errors="ignore")))
        return self._pending.popleft() if self._pending else ""


class FinishedEpisode(NamedTuple):
    """Result of one episode."""

    score: float
    summary: str


@dataclass
class PlayerView:
    """A player, the environment it plays in, and its results so far."""

    name: str
    env: RenderedEnv
    max_episodes: int | None = None
    finished: list[FinishedEpisode] = field(default_factory=list)
    pause_left: int = 0  # remaining steps for which the end of an episode is shown
    size: tuple[int, int] = (0, 0)  # columns and lines of the largest frame so far, so that the layout is stable

    @property
    def done(self) -> bool:
        return self.max_episodes is not None and len(self.finished) >= self.max_episodes

    def step(self, pause_steps: int = 0, action: int | None = None) -> None:
        """Make one step; the end of an episode is shown for `pause_steps` steps before the next episode starts."""
        if self.pause_left > 0:
            self.pause_left -= 1
        elif self.env.over:
            if not self.done:
                self.env.next_episode()
        else:
            self.env.step(action)
            self.pause_left = pause_steps if self.record_end() else 0

    def record_end(self) -> bool:
        """Store the result if the episode is over, and return whether it is; called once per episode."""
        if self.env.over:
            self.finished.append(FinishedEpisode(self.env.score, f"{self.env.describe()}, {self.env.over}"))
        return bool(self.env.over)

    def caption(self) -> str:
        """Number of the episode, and the last and best results."""
        number = len(self.finished) + (not self.env.over)
        if not self.finished:
            return f"episode {number}"
        best = max(episode.score for episode in self.finished)
        return f"episode {number} · last: {self.finished[-1].summary} · {self.env.best_label}: {best:.6g}"


class TerminalDisplay:
    """Uses the full terminal inside `with`."""

    def __init__(self, console: Console) -> None:
        self._console, self._stack = console, ExitStack()
        self._keyboard: Keyboard | None = None
        self._live: Live | None = None

    def __enter__(self) -> TerminalDisplay:
        from rich.live import Live

        self._keyboard = self._stack.enter_context(Keyboard()) if Keyboard.available() else None
        self._live = self._stack.enter_context(Live(console=self._console, screen=True, auto_refresh=False))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def draw(self, players: Sequence[PlayerView], status: str, seconds: float) -> None:
        """Draw the players; if they do not fit, one at a time, chosen by `seconds`."""
        assert self._live is not None
        self._live.update(render_players(players, self._console, status, seconds), refresh=True)

    def key(self, timeout: float | None) -> str:
        """The next key; without a keyboard, only waits."""
        if self._keyboard is not None:
            return self._keyboard.key(timeout)
        time.sleep(timeout or 0)
        return ""


class WindowDisplay:
    """A pygame window, closed at the end of `with`; needs a screen and environments that render images."""

    def __init__(self, title: str) -> None:
        from townlet.window import Window, has_screen

        if not has_screen():
            fix = "drop --window to watch in the terminal, or write a video: --video episode.mp4"
            raise TownletError("there is no screen for a window", fix)
        self._window = Window(title, 0)

    def __enter__(self) -> WindowDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        self._window.close()

    def draw(self, players: Sequence[PlayerView], status: str, seconds: float) -> None:
        """Show the images side by side, and the status in the title."""
        from townlet.runs.videos import side_by_side

        self._window.show(side_by_side([player.env for player in players]))
        parts = [f"{player.name}: {player.env.describe()}" for player in players]
        self._window.set_title(" · ".join([*parts, status]))

    def key(self, timeout: float | None) -> str:
        """The next key; closing the window counts as q."""
        return self._window.key(timeout)


Display = TerminalDisplay | WindowDisplay


def render_players(players: Sequence[PlayerView], console: Console, status: str, seconds: float) -> RenderableType:
    """Players side by side, stacked, or one at a time, whichever fits the terminal."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    columns, lines = console.width // len(players) - 4, console.height - 4
    frames = [Text.from_ansi(player.env.render_text(columns, lines, not console.no_color)) for player in players]
    for player, frame in zip(players, frames, strict=True):
        rows = frame.split()
        player.size = max(player.size[0], *(row.cell_len for row in rows)), max(player.size[1], len(rows))
    width, height = max(p.size[0] for p in players) + 4, max(p.size[1] for p in players) + 2
    panels = [
        Panel(frame, title=f"[bold]{player.name}", subtitle=player.caption(), width=width, height=height)
        for player, frame in zip(players, frames, strict=True)
    ]
    if width * len(panels) <= console.width:
        grid = Table.grid()
        grid.add_row(*panels)
        return Group(grid, Text(status))
    if height * len(panels) + 1 <= console.height:
        return Group(*panels, Text(status))
    if width > console.width or height >= console.height:
        status = f"{status} · terminal too small: needs {width}×{height + 1}"
    elif len(panels) > 1:
        status = f"{status} · showing players in turn; side by side they need {width * len(panels)} columns"
    return Group(Text(status), panels[int(seconds / TURN_SECONDS) % len(panels)])


def watch(
    players: Sequence[PlayerView], display: Display, speed: float, steps: int | None, by_step: bool = False
) -> None:
    """Show `steps` steps until all players are done or q is pressed: `speed` per second, or one per key press."""
    status = "any key: step · q: quit" if by_step else f"{speed:g} steps/s · q or Ctrl-C: quit"
    start, drawn = time.monotonic(), 0.0
    for n in count():
        last = (steps is not None and n >= steps) or all(player.done and not player.pause_left for player in players)
        if last or by_step or time.monotonic() - drawn >= FRAME_SECONDS:
            drawn = time.monotonic()
            display.draw(players, status, n / speed)
        wait = None if by_step and not last else max(0.0, start + (n + 1) / speed - time.monotonic())
        if display.key(wait) == QUIT or last:
            return
        for player in players:
            player.step(0 if by_step else round(END_SECONDS * speed))


class KeyBindings(Protocol):
    """Maps keys to actions."""

    def legend(self) -> str:
        """Short description of the keys."""

    def choose(self, key: str) -> int | str:
        """The action of a key, or a message if it has none now."""

    def warning(self, action: int) -> str:
        """Why a valid action will have no effect; "" if it will."""


def play_by_hand(players: Sequence[PlayerView], human: PlayerView, keys: KeyBindings, display: Display) -> None:
    """Let a person choose each action; the other players step along."""
    status = keys.legend()
    while True:
        display.draw(players, status, players.index(human) * TURN_SECONDS)
        key = display.key(None)
        if key == QUIT or (human.done and human.env.over):
            return
        choice = 0 if human.env.over else keys.choose(key)
        if isinstance(choice, str):
            status = choice
            continue
        status = ("" if human.env.over else keys.warning(choice)) or keys.legend()
        for player in players:
            player.step(action=choice if player is human else None)
        if human.env.over:
            next_key = "quit" if human.done else "next episode · q: quit"
            status = f"{human.env.over} after {human.env.age} steps · any key: {next_key}"


def print_frames(players: Sequence[PlayerView], steps: int | None) -> None:
    """For pipes: print the first, middle and last frame of each episode, if the environment renders text.

    With `steps`, each episode is cut off after that many steps.
    """
    for player in players:
        env = player.env
        for n in range(player.max_episodes or 1):
            if n:
                env.next_episode()
            frames = [(env.age, env.render_text(0, 0, False))]
            while not env.over and (steps is None or len(frames) <= steps):
                player.step()
                frames.append((env.age, env.render_text(0, 0, False)))
            for age, text in (frames[0], frames[len(frames) // 2], frames[-1]) if frames[0][1] else ():
                out().print(f"{player.name}, step {age}", style="bold", markup=False)
                echo(text, "")
            if env.over:
                echo(f"{player.name}, episode {len(player.finished)}: {player.finished[-1].summary}")
