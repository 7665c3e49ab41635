"""What one viewer is shown: a life, how far it has come, and how fast it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from townlet.live.lives import Life
from townlet.live.protocol import Said, Side

REST: Final = 2.0  # seconds that an end stays on show
MOST: Final = 256  # moments in one frame; of more the last ones are sent
AIR: Final = 12.0  # steps a second of training as all see it
LONG: Final = 15.0  # seconds that one such life may take: training goes on meanwhile

Next = Callable[[], Life | None]  # the next life to show, if there is one now


@dataclass
class Seat:
    """Plays one life after the other from its source. `advance` says what to tell the page now."""

    source: Next
    side: Side = 0
    speed: float = 5.0
    playing: bool = True
    life: Life | None = None
    at: float = 0.0  # moments, with a part of the next
    taken: Callable[[], bool] = lambda: True  # whether the last frame has left; else the next one holds its moments too
    _first: int = field(default=0)  # the first moment of the last frame
    _shown: int = field(default=-1)  # the last moment that was sent
    _ended: bool = False  # its end was told
    _rest: float = 0.0

    def show(self, life: Life | None) -> list[Said]:
        """Another life, from its first moment."""
        self.life, self.at, self._first, self._shown, self._ended, self._rest = life, 0.0, 0, -1, False, REST
        return [] if life is None else [life.start(self.side), *self._send()]

    def advance(self, seconds: float) -> list[Said]:
        """So much time has passed."""
        if self.life is None:
            return self.show(self.source())
        if not self.playing:
            return []
        if self._ended:
            self._rest -= seconds
            return self._follow() if self._rest <= 0 else []
        self.at = float(
            min(self.at + self.speed * seconds, self.life.reach(int(self.at + self.speed * seconds)) + 0.999)
        )
        return self._send()

    def so_far(self) -> list[Said]:
        """For somebody who comes while a life goes on: its beginning, and its moments up to now."""
        if self.life is None or self._shown < 0:
            return []
        said: list[Said] = [self.life.start(self.side)]
        said.append(self.life.frame(max(0, self._shown - MOST + 1), self._shown, self.side))
        return said + ([self.life.end(self.side)] if self._ended else [])

    def join(self, other: Seat) -> None:
        """Go on where another seat is."""
        self.life, self.at, self._shown, self._ended = other.life, other.at, other._shown, other._ended

    def follow(self, other: Seat) -> list[Said]:
        """What another seat has shown since the last time, as one of one's own."""
        said = self.show(other.life) if other.life is not self.life else []
        self.at = other.at
        return said if self.life is None else said + self._send()

    def _follow(self) -> list[Said]:
        found = self.source()
        return [] if found is None else self.show(found)

    def step(self, by: int) -> list[Said]:
        """Stop, and go so many moments on or back."""
        self.playing = False
        return self.seek(int(self.at) + by)

    def seek(self, moment: int) -> list[Said]:
        """Go to a moment of this life, or as near as it goes."""
        if self.life is None:
            return []
        self.at, self._ended, self._rest = float(self.life.reach(max(0, moment))), False, REST
        if int(self.at) <= self._shown:
            self._first, self._shown = int(self.at), int(self.at) - 1
        return self._send()

    def _send(self) -> list[Said]:
        """The moments up to now that the page has not seen, and the end once it is reached."""
        life, now = self.life, int(self.at)
        assert life is not None
        said: list[Said] = []
        if now > self._shown:
            self._first = max(self._shown + 1 if self.taken() else self._first, now - MOST + 1)
            said.append(life.frame(self._first, now, self.side))
            self._shown = now
        if life.over and now >= life.known - 1 and not self._ended:
            self._ended = True
            said.append(life.end(self.side))
        return said


class Air(Seat):
    """What all see together: a long life goes by faster, so that nobody looks at what was true a minute ago."""

    def __init__(self, source: Next) -> None:
        super().__init__(source, speed=AIR)

    def show(self, life: Life | None) -> list[Said]:
        """Another life, from its first moment, at a pace of its own."""
        self.speed = AIR if life is None else max(AIR, life.known / LONG)
        return super().show(life)
