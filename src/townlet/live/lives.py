"""A life that can be shown: moments in order, known to its end or played as far as somebody looks."""

from __future__ import annotations

import time
from itertools import count
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.live.explain import certificate, why
from townlet.live.protocol import EpisodeEnd, EpisodeStart, Frame, Side
from townlet.sim.causes import cause_codes, cause_names
from townlet.sim.engines import make_engine
from townlet.sim.tape import MOMENT, Recording
from townlet.world.tables import World

DIGITS: Final = 3
Outputs = Literal["values", "probabilities"]
_numbers = count(1)


class Actor(Protocol):
    """Whoever plays: an action for what is seen, and what stood behind it."""

    def act(self, obs: NDArray[Any], mask: NDArray[Any], fresh: bool) -> tuple[int, NDArray[Any]]:
        """The action, and the values or probabilities [K] of all."""


class Life:
    """Moments 0 … `known` − 1 of one life; `over` once no more will come."""

    def __init__(self, world: World, who: str, row: int, env_steps: int, outputs: Outputs, source: str) -> None:
        self.world, self.who, self.row, self.env_steps, self.outputs = world, who, row, env_steps, outputs
        self.source, self.number = source, next(_numbers)
        self._frames: dict[tuple[int, int], Frame] = {}

    recording: Recording
    over: bool

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
        self.recording = recording


class Played(Life):
    """One that is played for somebody, step by step."""

    def __init__(self, world: World, actor: Actor, seed: int, who: str, env_steps: int, outputs: Outputs) -> None:
        super().__init__(world, who, 0, env_steps, outputs, "checkpoint")
        self._actor, self.over = actor, False
        self._engine = make_engine(world, 1, autoreset=False)
        self._engine.reset(seed)
        self._moments: list[dict[str, Any]] = [self._look()]
        self._steps: list[tuple[int, Any, Any, float, Any]] = []
        self.recording = self._recorded()

    def reach(self, moment: int) -> int:
        """Play until this moment, or to the end of the life."""
        while len(self._moments) <= moment and not self.over:
            obs, mask = self._engine.obs[0].copy(), self._engine.mask[0].copy()
            action, outputs = self._actor.act(obs, mask, not self._steps)
            self._engine.step(np.array([action], np.int64))
            self._steps.append((action, outputs, mask, float(self._engine.reward[0]), self._engine.components[0].copy()))
            self._moments.append(self._look())
            self.over = bool(self._engine.terminated[0] or self._engine.truncated[0])
        if len(self.recording) + 1 < len(self._moments):
            self.recording = self._recorded()
        return min(moment, len(self._moments) - 1)

    def _look(self) -> dict[str, Any]:
        seen = self._engine.peek(*MOMENT, "meters")
        return {name: np.array(values[0]) for name, values in seen.items()}

    def _recorded(self) -> Recording:
        k, world = len(self.world.actions), self.world
        actions, outputs, mask, reward, components = zip(*self._steps, strict=True) if self._steps else ((),) * 5
        cell_of = np.asarray(self._engine.peek("cell_of")["cell_of"])[0]
        return Recording(
            **{name: np.array([m[name] for m in self._moments]) for name in (*MOMENT, "meters")},
            actions=np.array(actions, np.int16), outputs=np.array(outputs, np.float32).reshape(-1, k),
            mask=np.array(mask, np.bool_).reshape(-1, k), reward=np.array(reward, np.float32),
            components=np.array(components, np.float32).reshape(-1, len(world.rewards)),
            cell_of=cell_of.astype(np.uint32),
        )  # fmt: skip
