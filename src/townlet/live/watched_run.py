"""What a run has measured, for a page: all of it once, then only what is new."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from townlet.errors import TownletError
from townlet.live.playback import RecordedEpisode, TownEpisode, TrainingPlayback
from townlet.live.protocol import (
    AlertRaised,
    CheckpointSaved,
    Message,
    MetricsUpdate,
    RowsOverview,
    RowStageChange,
    RunStatus,
    TrainingEpisode,
)
from townlet.runs import checkpoint
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.feed import EPISODE_ENDED, ROWS_OVERVIEW, Feed
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.runs.overview import state_of
from townlet.tasks.experiment import LoadedExperiment
from townlet.town.episode_recorder import Recording
from townlet.town.world.tables import World
from townlet.train.reopen import reopen

TABLES: Final = ("updates", "evaluations", "stage_changes", "alerts")
MAX_POINTS: Final = 400  # of a curve that is sent whole
MAX_ALERTS: Final = 50  # that are told at once; of more, the last


class MetricsStream:
    """Reads a run's store as it grows. `news` gives what came since it was last asked."""

    def __init__(self, run: Run, budget: int) -> None:
        self.run, self._budget = run, budget
        self._since = self._latest()  # by table; whoever comes is told the whole first, so that news begin after it
        self._checkpoints = {one.name for one in self._surveyed()}
        self._status: RunStatus | None = None
        self._whole: list[Message] = []  # until there is news: many may come at once

    def _latest(self) -> dict[str, int]:
        """The last moment in each table: they are not written at the same time."""
        if not self.run.metrics_file.exists():
            return dict.fromkeys(TABLES, -1)
        with MetricsReader(self.run.metrics_file) as store:
            return {table: max([-1, *store.read(table, ("env_steps",), last=1)["env_steps"]]) for table in TABLES}

    def whole(self) -> list[Message]:
        """Everything up to now, curves with at most POINTS points; for somebody who has just come."""
        if self._whole or not self.run.metrics_file.exists():
            return self._whole
        with MetricsReader(self.run.metrics_file) as store:
            series = {name: list(zip(*store.series(name, MAX_POINTS), strict=True)) for name in store.names()}
            evaluations = as_rows(store.read("evaluations"))
            alerts = self._alerts(store, -1)
            stages = {change.row: change for change in self._stages(store, -1)}  # where each row is now, and why
        self._whole = [
            MetricsUpdate(run=self.run.name, series=series, evaluations=evaluations),
            *stages.values(),
            *alerts,
        ]
        return self._whole

    def news(self) -> list[Message]:
        """What is new: status, figures, stages, alerts and checkpoints."""
        said: list[Message] = []
        if (status := self.status()) != self._status:
            self._status = status
            said.append(status)
        if figures := self._new_figures():
            self._whole = []
        return said + figures + self._new_checkpoints()

    def _new_figures(self) -> list[Message]:
        if not self.run.metrics_file.exists():
            return []
        latest = self._latest()
        since = {table: min(self._since[table], latest[table]) for table in TABLES}  # a resumed run has gone back
        self._since = latest
        if since == latest:
            return []
        with MetricsReader(self.run.metrics_file) as store:
            found = store.read("updates", ("env_steps", "name", "value"), since=since["updates"])
            evaluations = as_rows(store.read("evaluations", since=since["evaluations"]))
            said: list[Message] = [*self._stages(store, since["stage_changes"]), *self._alerts(store, since["alerts"])]
        if found["env_steps"] or evaluations:
            series: dict[str, list[tuple[int, float]]] = {}
            for at, name, value in zip(*found.values(), strict=True):
                if value is not None:
                    series.setdefault(name, []).append((at, value))
            said.append(MetricsUpdate(run=self.run.name, series=series, evaluations=evaluations))
        return said

    def _stages(self, store: MetricsReader, since: int) -> list[RowStageChange]:
        columns = ("env_steps", "row", "from_stage", "to_stage", "reason")
        rows = as_rows(store.read("stage_changes", columns, since=since))
        return [RowStageChange(run=self.run.name, **row) for row in rows]

    def _alerts(self, store: MetricsReader, since: int) -> list[Message]:
        rows = as_rows(store.read("alerts", ("env_steps", "name", "message", "tip"), since=since, last=MAX_ALERTS))
        return [AlertRaised(run=self.run.name, **row) for row in rows]

    def saved(self) -> list[Message]:
        """All checkpoints that are there."""
        found = self._surveyed()
        return [self._told(one, found, []) for one in found]

    def _new_checkpoints(self) -> list[Message]:
        found = self._surveyed()
        names = {one.name for one in found}
        fresh, gone = names - self._checkpoints, self._checkpoints - names
        self._checkpoints = names
        return [self._told(one, found, sorted(gone)) for one in found if one.name in fresh]

    def _surveyed(self) -> list[Checkpoint]:
        return checkpoint.scan(self.run.checkpoints)[0]

    def _told(self, one: Checkpoint, among: list[Checkpoint], gone: list[str]) -> Message:
        return CheckpointSaved(
            run=self.run.name, name=one.name, env_steps=one.env_steps, score=one.info.get("score"),
            best=one is checkpoint.best_of(among), gone=gone,
        )  # fmt: skip

    def status(self) -> RunStatus:
        """How the run stands now."""
        meta = self.run.meta()
        state = state_of(self.run, meta)
        env_steps, episodes = self._progress()
        told, kind = meta.get("summary") or [], "gym" if meta.get("gym") else "town"
        return RunStatus.model_validate(
            {"run": self.run.name, "kind": kind, "state": state, "env_steps": env_steps, "budget": self._budget,
             "episodes": episodes, "told": told}
        )  # fmt: skip

    def _progress(self) -> tuple[int, int]:
        if not self.run.metrics_file.exists():  # one that was published, or has just begun
            newest = checkpoint.latest(self.run.checkpoints)
            return (newest.env_steps if newest else 0), 0
        with MetricsReader(self.run.metrics_file) as store:
            last = store.read("updates", ("env_steps",), last=1)["env_steps"]
            counts = store.read("episode_intervals", ("count",))["count"]
        return (last[0] if last else 0), int(sum(counts))


READ_INTERVAL: Final = 1.0  # seconds between two looks at what is on disk
RECORDING_COLUMNS: Final = (
    "number",
    "env_steps",
    "kind",
    "row",
    "length",
    "stage",
    "cause",
    "return",
)  # of a kept life
RECENT_EPISODES: Final = 12  # of training that are kept for those who come


class NotFound(TownletError):
    """Something was asked for that is not there."""


def find_run(root: Path, name: str) -> Run:
    """A run by its whole name and nothing else: no path, no way out of `root`."""
    for run in Run.list(root):
        if run.name == name:
            return run
    raise NotFound(f"there is no run '{name[:80]}'", "the list of runs names all of them")


def open_watched_run(run: Run) -> WatchedRun:
    """What there is to see of a run: a town, or figures alone."""
    loaded = reopen(run)
    return WatchedRun(run, loaded) if loaded.recipe.gym else WatchedTownRun(run, loaded)


class WatchedRun:
    """A run of any kind: its figures as they grow."""

    wall: str | None = None  # the rows of training at this moment, ready to be sent; only towns have one

    def __init__(self, run: Run, loaded: LoadedExperiment) -> None:
        self.run, self.loaded = run, loaded
        self.figures = MetricsStream(run, loaded.recipe.budget.env_steps or 0)
        self._read = 0.0

    def look(self) -> list[Message]:
        """What is new since the last look."""
        if time.monotonic() - self._read < READ_INTERVAL:
            return []
        self._read = time.monotonic()
        return self.figures.news()

    def town(self) -> WatchedTownRun:
        """The same as a town; refused where it is none."""
        what = f"{self.loaded.recipe.env} is not a town, so nothing lives there"
        raise TownletError(what, "subscribe with source none, and roll out episodes")

    def close(self) -> None:
        """Nobody watches any more."""


class WatchedTownRun(WatchedRun):
    """A run in a town: its world, and the latest lives of training."""

    def __init__(self, run: Run, loaded: LoadedExperiment) -> None:
        super().__init__(run, loaded)
        self.world: World = loaded.worlds.training
        self.lives: deque[RecordedEpisode] = deque(maxlen=RECENT_EPISODES)
        self.air = TrainingPlayback(self.next_life)  # what all see who follow training
        self._feed: Feed | None = None

    def town(self) -> WatchedTownRun:
        """Itself."""
        return self

    def look(self) -> list[Message]:
        """What is new since the last look, lives first."""
        return self._listen() + super().look()

    def _listen(self) -> list[Message]:
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
        said: list[Message] = []
        for message in self._feed.look() if self._feed else ():
            if message.kind == EPISODE_ENDED:
                life, told = _parse_episode(self.world, message.data)
                self.lives.append(life)
                said.append(TrainingEpisode(run=self.run.name, **told))
            elif message.kind == ROWS_OVERVIEW:
                self.wall = RowsOverview(**json.loads(message.data), sent=time.time()).model_dump_json()
        return said

    def next_life(self) -> TownEpisode | None:
        """The newest life of training that was not on show yet."""
        newest = self.lives[-1] if self.lives else None
        return newest if newest is not None and newest is not self.air.life else None

    def of_row(self, row: int | None) -> RecordedEpisode | None:
        """The newest life of one row of training."""
        return next((one for one in reversed(self.lives) if one.row == row), None)

    def recorded(self, number: int) -> RecordedEpisode:
        """A life that the run has kept, by its place in the store."""
        with MetricsReader(self.run.metrics_file) as store:
            rows = as_rows(store.read("recordings", where={"number": number}))
        if not rows:
            raise NotFound(f"this run has kept no life {number}", "choose one from the list")
        (found,) = rows
        who = f"{found['kind']}: row {found['row']} of training"
        life = Recording.from_bytes(found["data"])
        return RecordedEpisode(self.world, life, who, found["row"], found["env_steps"], found["outputs"], "recording")

    def recordings(self) -> list[dict[str, Any]]:
        """The lives that the run has kept, oldest first, without their moments."""
        if not self.run.metrics_file.exists():
            return []
        with MetricsReader(self.run.metrics_file) as store:
            return as_rows(store.read("recordings", RECORDING_COLUMNS))

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


def _parse_episode(world: World, data: bytes) -> tuple[RecordedEpisode, dict[str, Any]]:
    """A life from the feed, and what is told of it: there, a line of JSON stands before the recording."""
    about, _, recording = data.partition(b"\n")
    told: dict[str, Any] = json.loads(about)
    who, outputs = f"row {told['row']} of training", told.pop("outputs")
    life = RecordedEpisode(
        world, Recording.from_bytes(recording), who, told["row"], told["env_steps"], outputs, "training"
    )
    return life, told
