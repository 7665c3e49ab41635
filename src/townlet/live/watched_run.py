"""One run that is watched: what all runs have in common, and what only runs in towns have besides."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from townlet.errors import TownletError
from townlet.live.figures import Figures
from townlet.live.lives import Life, Recorded
from townlet.live.playback import Air
from townlet.live.protocol import Lived, Said, Wall
from townlet.recipes.load import Loaded
from townlet.runs.feed import LIFE, WALL, Feed
from townlet.runs.folder import Run
from townlet.runs.reader import Reader, as_rows
from townlet.town.record.episode_recorder import Recording
from townlet.town.world.tables import World
from townlet.train.reopen import reopen

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


def stand_of(run: Run) -> Stand:
    """What there is to see of a run: a town, or figures alone."""
    loaded = reopen(run)
    return Stand(run, loaded) if loaded.recipe.gym else TownStand(run, loaded)


class Stand:
    """A run of any kind: its figures as they grow."""

    wall: str | None = None  # the rows of training at this moment, ready to be sent; only towns have one

    def __init__(self, run: Run, loaded: Loaded) -> None:
        self.run, self.loaded = run, loaded
        self.figures = Figures(run, loaded.recipe.budget.env_steps or 0)
        self._read = 0.0

    def look(self) -> list[Said]:
        """What is new since the last look."""
        if time.monotonic() - self._read < READ:
            return []
        self._read = time.monotonic()
        return self.figures.news()

    def town(self) -> TownStand:
        """The same as a town; refused where it is none."""
        what = f"{self.loaded.recipe.env} is not a town, so nothing lives there"
        raise TownletError(what, "subscribe with source none, and roll out episodes")

    def close(self) -> None:
        """Nobody watches any more."""


class TownStand(Stand):
    """A run in a town: its world, and the latest lives of training."""

    def __init__(self, run: Run, loaded: Loaded) -> None:
        super().__init__(run, loaded)
        self.world: World = loaded.worlds.training
        self.lives: deque[Recorded] = deque(maxlen=LIVES)
        self.air = Air(self.next_life)  # what all see who follow training
        self._feed: Feed | None = None

    def town(self) -> TownStand:
        """Itself."""
        return self

    def look(self) -> list[Said]:
        """What is new since the last look, lives first."""
        return self._listen() + super().look()

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
