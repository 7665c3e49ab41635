"""A life that can be shown: moments in order, known to its end or played as far as somebody looks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.live.explain import death_certificate, explain_action
from townlet.live.protocol import EpisodeEnd, EpisodeStart, Frame, Message, Side
from townlet.town.engines.engine import make_engine
from townlet.town.episode_recorder import FRAME_FIELDS, Recording, empty_arrays
from townlet.town.state import cause_codes, cause_names
from townlet.town.world.tables import World

DIGITS: Final = 3
INITIAL_CAPACITY: Final = 512  # moments for which there is space at first
OutputKind = Literal["values", "probabilities"]
_numbers = count(1)


class Actor(Protocol):
    """Whoever plays: an action for what is seen, and what stood behind it."""

    def act(self, obs: NDArray[Any], mask: NDArray[Any], fresh: bool) -> tuple[int, NDArray[Any]]:
        """The action, and the values or probabilities [K] of all."""


class TownEpisode(ABC):
    """Moments 0 … `known` − 1 of one life; `over` once no more will come."""

    def __init__(self, world: World, who: str, row: int, env_steps: int, outputs: OutputKind, source: str) -> None:
        self.world, self.who, self.row, self.env_steps, self.outputs = world, who, row, env_steps, outputs
        self.source, self.number = source, next(_numbers)

    over: bool

    @property
    @abstractmethod
    def recording(self) -> Recording:
        """What is known of it."""

    @property
    def known(self) -> int:
        """Moments that can be shown now."""
        return len(self.recording) + 1

    def reach(self, moment: int) -> int:
        """The moment that can be shown, at most this one."""
        return min(moment, self.known - 1)

    def start(self, side: Side = 0) -> EpisodeStart:
        """The first message about it."""
        return EpisodeStart(
            source=self.source, side=side, episode=self.number, row=self.row, env_steps=self.env_steps,
            length=len(self.recording) if self.over else None, who=self.who,
            cell_of=self.recording.cell_of.tolist(), outputs_are=self.outputs,
        )  # fmt: skip

    def frame(self, first: int, last: int, side: Side = 0) -> Frame:
        """The moments first … last, each with the step that led to it."""
        r, at = self.recording, slice(first, last + 1)
        steps = [None if m == 0 else m - 1 for m in range(first, last + 1)]

        def led(of: NDArray[Any], digits: int | None = DIGITS) -> list[Any]:
            rounded = of if digits is None else np.round(of.astype(np.float64), digits)
            return [None if step is None else rounded[step].tolist() for step in steps]

        return Frame(
            side=side, episode=self.number,
            **{name: getattr(r, name)[at].tolist() for name in FRAME_FIELDS},
            meters=np.round(r.meters[at].astype(np.float64), DIGITS).tolist(),
            action=led(r.actions, None), outputs=led(r.outputs), mask=led(r.mask, None),
            reward=led(r.reward), components=led(r.components),
            why=[None if step is None else explain_action(self.world, r, step, self.outputs) for step in steps],
            sent=time.time(),
        )  # fmt: skip

    def end(self, side: Side = 0) -> EpisodeEnd:
        """How it ended; only once it is over."""
        r = self.recording
        cause = cause_names(self.world)[int(cause_codes(self.world, r.meters[-1:])[0])]
        return EpisodeEnd(
            side=side, episode=self.number, length=int(r.age[-1]), cause=cause,
            reward=round(float(r.reward.sum()), DIGITS), certificate=death_certificate(self.world, r, cause),
        )  # fmt: skip


class RecordedEpisode(TownEpisode):
    """One that was lived already."""

    over = True

    def __init__(self, world: World, recording: Recording, who: str, row: int, env_steps: int, outputs: OutputKind,
                 source: str) -> None:  # fmt: skip
        super().__init__(world, who, row, env_steps, outputs, source)
        self._recording = recording

    @property
    def recording(self) -> Recording:
        """All of it."""
        return self._recording


class PlayedEpisode(TownEpisode):
    """One that is played for somebody, as far as somebody looks."""

    def __init__(self, world: World, actor: Actor, seed: int, who: str, env_steps: int, outputs: OutputKind) -> None:
        super().__init__(world, who, 0, env_steps, outputs, "checkpoint")
        self._actor, self.over = actor, False
        self._engine = make_engine(world, 1, autoreset=False)
        self._engine.reset(seed)
        self._kept = empty_arrays(world, INITIAL_CAPACITY)
        self._done = 0
        self._look(0)

    @property
    def recording(self) -> Recording:
        """What was played so far."""
        moments, steps, kept = self._done + 1, self._done, self._kept
        ends = dict.fromkeys((*FRAME_FIELDS, "meters"), moments)
        cell_of = np.asarray(self._engine.peek("cell_of")["cell_of"])[0].astype(np.uint32)
        return Recording(**{name: kept[name][: ends.get(name, steps)] for name in kept}, cell_of=cell_of)

    def reach(self, moment: int) -> int:
        """Play until this moment, or to the end of the life."""
        while self._done < moment and not self.over:
            self._step()
        return min(moment, self._done)

    def _step(self) -> None:
        engine, at = self._engine, self._done
        if at + 1 == len(self._kept["cell"]):
            self._kept = {name: np.concatenate([part, np.zeros_like(part)]) for name, part in self._kept.items()}
        kept = self._kept
        kept["mask"][at] = engine.mask[0]
        action, kept["outputs"][at] = self._actor.act(engine.obs[0].copy(), engine.mask[0].copy(), at == 0)
        engine.step(np.array([action], np.int64))
        kept["actions"][at], kept["reward"][at], kept["components"][at] = action, engine.reward[0], engine.components[0]
        self._done += 1
        self._look(self._done)
        self.over = bool(engine.terminated[0] or engine.truncated[0])

    def _look(self, at: int) -> None:
        for name, values in self._engine.peek(*FRAME_FIELDS, "meters").items():
            self._kept[name][at] = values[0]


END_PAUSE: Final = 2.0  # seconds that an end stays on show
MAX_FRAME_STEPS: Final = 256  # moments in one frame; of more the last ones are sent
TRAINING_SPEED: Final = 12.0  # steps a second of training as all see it
MAX_EPISODE_SECONDS: Final = 15.0  # seconds that one such life may take: training goes on meanwhile

EpisodeSource = Callable[[], TownEpisode | None]  # the next life to show, if there is one now


@dataclass
class Playback:
    """Plays one life after the other from its source. `advance` says what to tell the page now."""

    source: EpisodeSource
    side: Side = 0
    speed: float = 5.0
    playing: bool = True
    life: TownEpisode | None = None
    at: float = 0.0  # moments, with a part of the next
    taken: Callable[[], bool] = lambda: True  # whether the last frame has left; else the next one holds its moments too
    _first: int = field(default=0)  # the first moment of the last frame
    _shown: int = field(default=-1)  # the last moment that was sent
    _ended: bool = False  # its end was told
    _rest: float = 0.0

    def show(self, life: TownEpisode | None) -> list[Message]:
        """Another life, from its first moment."""
        self.life, self.at, self._first, self._shown, self._ended, self._rest = life, 0.0, 0, -1, False, END_PAUSE
        return [] if life is None else [life.start(self.side), *self._send()]

    def advance(self, seconds: float) -> list[Message]:
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

    def so_far(self) -> list[Message]:
        """For somebody who comes while a life goes on: its beginning, and its moments up to now."""
        if self.life is None or self._shown < 0:
            return []
        said: list[Message] = [self.life.start(self.side)]
        said.append(self.life.frame(max(0, self._shown - MAX_FRAME_STEPS + 1), self._shown, self.side))
        return said + ([self.life.end(self.side)] if self._ended else [])

    def join(self, other: Playback) -> None:
        """Go on where another seat is."""
        self.life, self.at, self._shown, self._ended = other.life, other.at, other._shown, other._ended

    def follow(self, other: Playback) -> list[Message]:
        """What another seat has shown since the last time, as one of one's own."""
        said = self.show(other.life) if other.life is not self.life else []
        self.at = other.at
        return said if self.life is None else said + self._send()

    def _follow(self) -> list[Message]:
        found = self.source()
        return [] if found is None else self.show(found)

    def step(self, by: int) -> list[Message]:
        """Stop, and go so many moments on or back."""
        self.playing = False
        return self.seek(int(self.at) + by)

    def seek(self, moment: int) -> list[Message]:
        """Go to a moment of this life, or as near as it goes."""
        if self.life is None:
            return []
        self.at, self._ended, self._rest = float(self.life.reach(max(0, moment))), False, END_PAUSE
        if int(self.at) <= self._shown:
            self._first, self._shown = int(self.at), int(self.at) - 1
        return self._send()

    def _send(self) -> list[Message]:
        """The moments up to now that the page has not seen, and the end once it is reached."""
        life, now = self.life, int(self.at)
        assert life is not None
        said: list[Message] = []
        if now > self._shown:
            self._first = max(self._shown + 1 if self.taken() else self._first, now - MAX_FRAME_STEPS + 1)
            said.append(life.frame(self._first, now, self.side))
            self._shown = now
        if life.over and now >= life.known - 1 and not self._ended:
            self._ended = True
            said.append(life.end(self.side))
        return said


class TrainingPlayback(Playback):
    """What all see together: a long life goes by faster, so that nobody looks at what was true a minute ago."""

    def __init__(self, source: EpisodeSource) -> None:
        super().__init__(source, speed=TRAINING_SPEED)

    def show(self, life: TownEpisode | None) -> list[Message]:
        """Another life, from its first moment, at a pace of its own."""
        self.speed = TRAINING_SPEED if life is None else max(TRAINING_SPEED, life.known / MAX_EPISODE_SECONDS)
        return super().show(life)
