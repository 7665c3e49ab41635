"""All that a server knows while it runs: the runs below one folder, who watches them, and the latest lives of training.

One house serves all viewers of a process. It looks at runs that somebody watches, and leaves the others alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from townlet.errors import TownletError
from townlet.live.casting import Casting
from townlet.live.figures import Figures
from townlet.live.lives import Life, Recorded
from townlet.live.protocol import RATE, Error, Lived, Said, Wall
from townlet.live.seat import Air
from townlet.runs.feed import LIFE, WALL, Feed
from townlet.runs.folder import Run
from townlet.runs.reader import Reader, as_rows
from townlet.sim.tape import Recording
from townlet.train.reopen import reopen
from townlet.world.tables import World

if TYPE_CHECKING:
    from townlet.live.viewer import Viewer

LOG: Final = logging.getLogger(__name__)
READ: Final = 1.0  # seconds between two looks at what is on disk
LISTED: Final = ("number", "env_steps", "kind", "row", "length", "stage", "cause", "return")  # of a kept life
LIVES: Final = 12  # of training that are kept for those who come


class Unknown(TownletError):
    """Something was asked for that is not there."""


def run_below(root: Path, name: str) -> Run:
    """A run by its whole name and nothing else: no path, no way out of `root`."""
    for run in Run.list(root):
        if run.name == name:
            return run
    raise Unknown(f"there is no run '{name[:80]}'", "the list of runs names all of them")


class Stand:
    """Everything about one run that is watched; `listeners` are told what is new."""

    def __init__(self, run: Run) -> None:
        self.run, self.loaded = run, reopen(run)
        self.world: World = self.loaded.worlds.training
        self.figures = Figures(run, self.loaded.recipe.budget.env_steps or 0)
        self.lives: deque[Recorded] = deque(maxlen=LIVES)
        self.wall: str | None = None  # the latest, ready to be sent
        self.air = Air(self.next_life)  # what all see who follow training
        self._feed: Feed | None = None
        self._read = 0.0

    def look(self) -> list[Said]:
        """What is new since the last look."""
        said = self._listen()
        if time.monotonic() - self._read >= READ:
            self._read = time.monotonic()
            said += self.figures.news()
        return said

    def _listen(self) -> list[Said]:
        """Take in what the trainer tells; a feed that was replaced is opened anew."""
        path = self.run.feed_file
        if self._feed is not None and not self._feed.current:
            self._feed.close()
            self._feed = None
        if self._feed is None and path.exists():
            try:
                self._feed = Feed.open(path)
            except TownletError:
                return []
        said: list[Said] = []
        for message in self._feed.look() if self._feed else ():
            if message.kind == LIFE:
                life, told = _life(self.world, message.data)
                self.lives.append(life)
                said.append(Lived(run=self.run.name, **told))
            elif message.kind == WALL:
                self.wall = Wall(**json.loads(message.data), sent=time.time()).model_dump_json()
        return said

    def next_life(self) -> Life | None:
        """The newest life of training that was not on show yet."""
        newest = self.lives[-1] if self.lives else None
        return newest if newest is not None and newest is not self.air.life else None

    def of_row(self, row: int | None) -> Recorded | None:
        """The newest life of one row of training."""
        return next((one for one in reversed(self.lives) if one.row == row), None)

    def recorded(self, number: int) -> Recorded:
        """A life that the run has kept, by its place in the store."""
        with Reader(self.run.metrics_file) as store:
            rows = as_rows(store.read("recordings", where={"number": number}))
        if not rows:
            raise Unknown(f"this run has kept no life {number}", "choose one from the list")
        (found,) = rows
        who = f"{found['kind']}: row {found['row']} of training"
        life = Recording.from_bytes(found["data"])
        return Recorded(self.world, life, who, found["row"], found["env_steps"], found["outputs"], "recording")

    def recordings(self) -> list[dict[str, Any]]:
        """The lives that the run has kept, oldest first, without their moments."""
        if not self.run.metrics_file.exists():
            return []
        with Reader(self.run.metrics_file) as store:
            return as_rows(store.read("recordings", LISTED))

    def newest_recording(self) -> int:
        """The number of the life that was kept last."""
        kept = self.recordings()
        if not kept:
            raise TownletError("this run has kept no life yet", "wait for one to end")
        return int(kept[-1]["number"])

    def close(self) -> None:
        """Nobody watches any more."""
        if self._feed:
            self._feed.close()


def _life(world: World, data: bytes) -> tuple[Recorded, dict[str, Any]]:
    """A life from the feed, and what is told of it: there, a line of JSON stands before the recording."""
    about, _, recording = data.partition(b"\n")
    told: dict[str, Any] = json.loads(about)
    who, outputs = f"row {told['row']} of training", told.pop("outputs")
    life = Recorded(world, Recording.from_bytes(recording), who, told["row"], told["env_steps"], outputs, "training")
    return life, told


class House:
    """Stands by the name of their run, as long as somebody is there."""

    def __init__(self, root: Path, first: str | None = None, program: str = "townlet") -> None:
        self.root, self.first, self.program = root, first, program
        self.casting = Casting()
        self._stands: dict[str, Stand] = {}
        self._viewers: dict[str, set[Viewer]] = {}

    @property
    def present(self) -> int:
        """Viewers of all runs."""
        return sum(map(len, self._viewers.values()))

    def enter(self, name: str, viewer: Viewer) -> Stand:
        """Watch a run; its stand is made for the first who comes."""
        if name not in self._stands:
            self._stands[name] = Stand(run_below(self.root, name))
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
            due = max(due + 1 / RATE, time.monotonic())  # in step, and never in a hurry to make up for lost turns
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            seconds, then = now - then, now
            for name, stand in list(self._stands.items()):
                try:
                    self._tell(stand, self._viewers[name], seconds)
                except Exception:  # whatever is wrong with one run, the others go on
                    LOG.exception("%s could not be shown", name)
                await asyncio.sleep(0)

    def _tell(self, stand: Stand, viewers: set[Viewer], seconds: float) -> None:
        """One turn of one run: what all see is made into text once."""
        try:
            seen = stand.look()
        except (TownletError, OSError) as error:  # removed or damaged while somebody watches
            seen = [Error(what=f"{stand.run.name} can no longer be read: {error}", fix="choose another run")]
            self._stands.pop(stand.run.name, None)
        news = [message.model_dump_json() for message in seen]
        followed = any(viewer.follows for viewer in viewers)
        shown = [(m, m.model_dump_json()) for m in stand.air.advance(seconds)] if followed else []
        for viewer in viewers:
            viewer.hear(news)
            viewer.turn(shown)
