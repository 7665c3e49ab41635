"""The hub: keeps the watched runs up to date and passes their news on to the viewers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from townlet.errors import TownletError
from townlet.live.agent_episodes import AgentLoader
from townlet.live.computations import Computations
from townlet.live.messages import FRAME_RATE, Message
from townlet.live.protocol import Error
from townlet.live.rollout_worker import RolloutWorker
from townlet.live.watched_run import WatchedRun, WatchedTownRun, find_run, open_watched_run

LOG: Final = logging.getLogger(__name__)


class Watcher(Protocol):
    """A viewer of a run, as the hub sees it."""

    follows_training: bool

    def tick(self, texts: Sequence[str], shared: Sequence[tuple[Message, str]]) -> None:
        """Receive the run's new messages, and those of the playback that all viewers of a training run share."""


class Hub:
    """Opens a run for its first viewer, updates it while it is watched, and closes it when its last viewer leaves."""

    def __init__(self, root: Path, first: str | None = None, program: str = "townlet") -> None:
        self.root, self.first, self.program = root, first, program  # `first`: name of the run to show first, if any
        self.agents, self.rollouts = AgentLoader(root), RolloutWorker()
        self.checks, self.computations = Computations("checks"), Computations("computations")
        self._runs: dict[str, WatchedRun] = {}
        self._viewers: dict[str, set[Watcher]] = {}
        self._errors: dict[str, str] = {}  # last error of each run, to log it once

    @property
    def viewer_count(self) -> int:
        return sum(map(len, self._viewers.values()))

    def join(self, name: str, viewer: Watcher) -> WatchedRun:
        if name not in self._runs:
            self._runs[name] = open_watched_run(find_run(self.root, name))
            self._viewers.setdefault(name, set())
        self._viewers[name].add(viewer)
        return self._runs[name]

    def leave(self, name: str, viewer: Watcher) -> None:
        self._viewers[name].discard(viewer)
        if not self._viewers[name]:
            del self._viewers[name]
            if name in self._runs:
                self._runs.pop(name).close()

    async def run(self) -> None:
        """Update all watched runs and their viewers at the frame rate, forever."""
        last = due = time.monotonic()
        while True:
            due = max(due + 1 / FRAME_RATE, time.monotonic())  # missed ticks are skipped
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            seconds, last = now - last, now
            for name, run in list(self._runs.items()):
                if self._runs.get(name) is not run:  # its last viewer left while another run was updated
                    continue
                try:
                    self._update(run, self._viewers[name], seconds)
                    self._errors.pop(name, None)
                except Exception as error:  # other runs are not affected
                    if self._errors.get(name) != repr(error):
                        LOG.exception("%s could not be shown", name)
                    self._errors[name] = repr(error)
                await asyncio.sleep(0)

    def _update(self, run: WatchedRun, viewers: set[Watcher], seconds: float) -> None:
        """Send new messages of one run to its viewers; each message is serialized once."""
        try:
            messages = run.poll()
        except (TownletError, OSError) as error:  # removed or damaged while watched
            messages = [Error(what=f"{run.run.name} can no longer be read: {error}", fix="choose another run")]
            self._runs.pop(run.run.name, None)
        texts = [message.model_dump_json() for message in messages]
        shared: Sequence[tuple[Message, str]] = ()
        if isinstance(run, WatchedTownRun) and any(viewer.follows_training for viewer in viewers):
            shared = [(m, m.model_dump_json()) for m in run.playback.advance(seconds)]
        for viewer in viewers:
            viewer.tick(texts, shared)

    def close(self) -> None:
        """Stop the threads of this hub."""
        for worker in (self.agents, self.checks, self.computations, self.rollouts):
            worker.close()
