"""A life that can be shown: moments in order, known to its end or played as far as somebody looks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from itertools import count
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.live.explain import certificate, why
from townlet.live.protocol import EpisodeEnd, EpisodeStart, Frame, Side
from townlet.town.causes import cause_codes, cause_names
from townlet.town.engines.engine import make_engine
from townlet.town.record.episode_recorder import MOMENT, Recording, room
from townlet.town.world.tables import World

DIGITS: Final = 3
FIRST: Final = 512  # moments for which there is room at first
Outputs = Literal["values", "probabilities"]
_numbers = count(1)


class Actor(Protocol):
    """Whoever plays: an action for what is seen, and what stood behind it."""

    def act(self, obs: NDArray[Any], mask: NDArray[Any], fresh: bool) -> tuple[int, NDArray[Any]]:
        """The action, and the values or probabilities [K] of all."""


class Life(ABC):
    """Moments 0 … `known` − 1 of one life; `over` once no more will come."""

    def __init__(self, world: World, who: str, row: int, env_steps: int, outputs: Outputs, source: str) -> None:
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
            **{name: getattr(r, name)[at].tolist() for name in MOMENT},
            meters=np.round(r.meters[at].astype(np.float64), DIGITS).tolist(),
            action=led(r.actions, None), outputs=led(r.outputs), mask=led(r.mask, None),
            reward=led(r.reward), components=led(r.components),
            why=[None if step is None else why(self.world, r, step, self.outputs) for step in steps],
            sent=time.time(),
        )  # fmt: skip

    def end(self, side: Side = 0) -> EpisodeEnd:
        """How it ended; only once it is over."""
        r = self.recording
        cause = cause_names(self.world)[int(cause_codes(self.world, r.meters[-1:])[0])]
        return EpisodeEnd(
            side=side, episode=self.number, length=int(r.age[-1]), cause=cause,
            reward=round(float(r.reward.sum()), DIGITS), certificate=certificate(self.world, r, cause),
        )  # fmt: skip


class Recorded(Life):
    """One that was lived already."""

    over = True

    def __init__(self, world: World, recording: Recording, who: str, row: int, env_steps: int, outputs: Outputs,
                 source: str) -> None:  # fmt: skip
        super().__init__(world, who, row, env_steps, outputs, source)
        self._recording = recording

    @property
    def recording(self) -> Recording:
        """All of it."""
        return self._recording


class Played(Life):
    """One that is played for somebody, as far as somebody looks."""

    def __init__(self, world: World, actor: Actor, seed: int, who: str, env_steps: int, outputs: Outputs) -> None:
        super().__init__(world, who, 0, env_steps, outputs, "checkpoint")
        self._actor, self.over = actor, False
        self._engine = make_engine(world, 1, autoreset=False)
        self._engine.reset(seed)
        self._kept = room(world, FIRST)
        self._done = 0
        self._look(0)

    @property
    def recording(self) -> Recording:
        """What was played so far."""
        moments, steps, kept = self._done + 1, self._done, self._kept
        ends = dict.fromkeys((*MOMENT, "meters"), moments)
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
        for name, values in self._engine.peek(*MOMENT, "meters").items():
            self._kept[name][at] = values[0]
