"""All that a server knows while it runs: the runs below one folder, who watches them, and who plays for them.

One house serves all viewers of a process. It looks at runs that somebody watches, and leaves the others alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from townlet.errors import TownletError
from townlet.live.policy_cache import PolicyCache
from townlet.live.protocol import FRAME_RATE, Error, Message
from townlet.live.rollout_worker import RolloutWorker
from townlet.live.watched_run import WatchedRun, WatchedTownRun, find_run, open_watched_run

if TYPE_CHECKING:
    from townlet.live.viewer import Viewer

LOG: Final = logging.getLogger(__name__)


class Hub:
    """Stands by the name of their run, as long as somebody is there."""

    def __init__(self, root: Path, first: str | None = None, program: str = "townlet") -> None:
        self.root, self.first, self.program = root, first, program
        self.casting, self.studio = PolicyCache(), RolloutWorker()
        self._stands: dict[str, WatchedRun] = {}
        self._viewers: dict[str, set[Viewer]] = {}
        self._failed: dict[str, str] = {}  # the error of each run's last turn

    @property
    def present(self) -> int:
        """Viewers of all runs."""
        return sum(map(len, self._viewers.values()))

    def enter(self, name: str, viewer: Viewer) -> WatchedRun:
        """Watch a run; its stand is made for the first who comes."""
        if name not in self._stands:
            self._stands[name] = open_watched_run(find_run(self.root, name))
            self._viewers.setdefault(name, set())
        self._viewers[name].add(viewer)
        return self._stands[name]

    def leave(self, name: str, viewer: Viewer) -> None:
        """Watch it no more; the last one turns off the light."""
        self._viewers[name].discard(viewer)
        if not self._viewers[name]:
            del self._viewers[name]
            if name in self._stands:
                self._stands.pop(name).close()

    async def run(self) -> None:
        """Look at every run that is watched and move every seat, for ever."""
        then = due = time.monotonic()
        while True:
            due = max(due + 1 / FRAME_RATE, time.monotonic())  # in step, and never in a hurry to make up for lost turns
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            seconds, then = now - then, now
            for name, stand in list(self._stands.items()):
                try:
                    self._tell(stand, self._viewers[name], seconds)
                    self._failed.pop(name, None)
                except Exception as error:  # the other runs are not affected
                    if self._failed.get(name) != repr(error):  # once, not in every turn
                        LOG.exception("%s could not be shown", name)
                    self._failed[name] = repr(error)
                await asyncio.sleep(0)

    def _tell(self, stand: WatchedRun, viewers: set[Viewer], seconds: float) -> None:
        """One turn of one run: what all see is made into text once."""
        try:
            seen = stand.look()
        except (TownletError, OSError) as error:  # removed or damaged while somebody watches
            seen = [Error(what=f"{stand.run.name} can no longer be read: {error}", fix="choose another run")]
            self._stands.pop(stand.run.name, None)
        news = [message.model_dump_json() for message in seen]
        shown: Sequence[tuple[Message, str]] = ()
        if isinstance(stand, WatchedTownRun) and any(viewer.follows for viewer in viewers):
            shown = [(m, m.model_dump_json()) for m in stand.air.advance(seconds)]
        for viewer in viewers:
            viewer.hear(news)
            viewer.turn(shown)
