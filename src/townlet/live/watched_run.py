"""A run that is being watched: new metrics from its store and, in towns, episodes from the training feed."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from townlet.errors import TownletError
from townlet.live import protocol
from townlet.live.messages import Message
from townlet.live.names import first_name
from townlet.live.playback import TownEpisode, TrainingPlayback
from townlet.live.protocol import RunStatus
from townlet.runs import checkpoint, disk, snapshots
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.feed import EPISODE_ENDED, ROWS_OVERVIEW, Feed
from townlet.runs.folder import SHIPPED, Run
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.runs.overview import state_of
from townlet.tasks.experiment import LoadedExperiment, reopen
from townlet.town.episode_recorder import Recording
from townlet.town.world.tables import World

TABLES: Final = ("updates", "evaluations", "stage_changes", "alerts")  # tables of the store whose new rows are sent
MAX_POINTS: Final = 400  # per curve
MAX_ALERTS: Final = 50  # newest alerts sent at once
READ_INTERVAL: Final = 1.0  # seconds between reads of the store
RECENT_EPISODES: Final = 12  # episodes of training kept for new viewers
RECORDING_COLUMNS: Final = ("number", "env_steps", "kind", "row", "length", "stage", "cause", "return")


class NotFound(TownletError):
    """A requested run, world, checkpoint or episode does not exist."""


def find_run(root: Path, name: str) -> Run:
    """A run of `root` or a shipped agent by its exact name, never by a path, so that no request can leave `root`."""
    for run in (*Run.list(root), *Run.list(SHIPPED)):
        if run.name == name:
            disk.refuse_links(run.path)
            return run
    raise NotFound(f"there is no run '{name[:80]}'", "choose one from the list of runs")


def open_watched_run(run: Run) -> WatchedRun:
    loaded = reopen(run)
    return WatchedRun(run, loaded) if loaded.recipe.gym else WatchedTownRun(run, loaded)


class WatchedRun:
    """A run of any kind: `history` returns all of its metrics, `news` those since the last call."""

    rows_overview: str | None = None  # serialized message with the current rows of training; only in towns

    def __init__(self, run: Run, loaded: LoadedExperiment) -> None:
        self.run, self.loaded = run, loaded
        self._last_read = 0.0
        self._since = self._newest()  # viewers receive the history first, so news starts after it
        self._checkpoints = {found.name for found in self._list_checkpoints()}
        self._status: RunStatus | None = None  # as last sent
        self._history: list[Message] = []  # cached until there are new metrics

    def poll(self) -> list[Message]:
        """Messages about everything new since the last read of the store, at most every `READ_INTERVAL`."""
        if time.monotonic() - self._last_read < READ_INTERVAL:
            return []
        self._last_read = time.monotonic()
        return self.news()

    def town(self) -> WatchedTownRun:
        """This run, if it is one in a town; raises TownletError for Gymnasium runs."""
        what = f"{self.loaded.recipe.env} is not a town, so there is no town to show"
        raise TownletError(what, "subscribe with source none, and request episodes over HTTP")

    def close(self) -> None:
        """Release resources after the last viewer has left."""

    def _newest(self) -> dict[str, int]:
        """The last env_steps of each table, −1 if it is empty; tables are not written at the same time."""
        if not self.run.metrics_file.exists():
            return dict.fromkeys(TABLES, -1)
        with MetricsReader(self.run.metrics_file) as store:
            return {table: max([-1, *store.read(table, ("env_steps",), last=1)["env_steps"]]) for table in TABLES}

    def history(self) -> list[Message]:
        """All metrics so far, with curves thinned to MAX_POINTS points."""
        if self._history or not self.run.metrics_file.exists():
            return self._history
        with MetricsReader(self.run.metrics_file) as store:
            series = {metric: list(zip(*store.series(metric, MAX_POINTS), strict=True)) for metric in store.names()}
            metrics = self._metrics(series, as_rows(store.read("evaluations")))
            stages = {change.row: change for change in self._stage_changes(store, -1)}  # the last one of each row
            self._history = [metrics, *stages.values(), *self._alerts(store, -1)]
        return self._history

    def news(self) -> list[Message]:
        """Messages about changes of status, metrics, stages, alerts and checkpoints since the last call."""
        messages: list[Message] = []
        if (status := self.status()) != self._status:
            self._status = status
            messages.append(status)
        if metrics := self._new_metrics():
            self._history = []
        known, found = self._checkpoints, self._list_checkpoints()
        names = {c.name for c in found}
        removed = sorted(known - names)
        saved = [self._checkpoint_message(c, found, removed) for c in found if c.name not in known]
        if saved:  # otherwise removed checkpoints are reported with the next saved one
            self._checkpoints = names
        return messages + metrics + saved

    def _new_metrics(self) -> list[Message]:
        if not self.run.metrics_file.exists():
            return []
        newest = self._newest()
        since = {table: min(self._since[table], newest[table]) for table in TABLES}  # lower after a resume
        self._since = newest
        if since == newest:
            return []
        with MetricsReader(self.run.metrics_file) as store:
            updates = store.read("updates", ("env_steps", "name", "value"), since=since["updates"])
            evaluations = as_rows(store.read("evaluations", since=since["evaluations"]))
            stages = self._stage_changes(store, since["stage_changes"])
            messages: list[Message] = [*stages, *self._alerts(store, since["alerts"])]
        if updates["env_steps"] or evaluations:
            series: dict[str, list[tuple[int, float]]] = {}
            for at, name, value in zip(*updates.values(), strict=True):
                if value is not None:
                    series.setdefault(name, []).append((at, value))
            messages.append(self._metrics(series, evaluations))
        return messages

    def _metrics(self, series: dict[str, list[tuple[int, float]]], evaluations: list[dict[str, Any]]) -> Message:
        return protocol.MetricsUpdate(run=self.run.name, series=series, evaluations=evaluations)

    def _stage_changes(self, store: MetricsReader, since: int) -> list[protocol.RowStageChange]:
        columns = ("env_steps", "row", "from_stage", "to_stage", "reason")
        rows = as_rows(store.read("stage_changes", columns, since=since))
        return [protocol.RowStageChange(run=self.run.name, **row) for row in rows]

    def _alerts(self, store: MetricsReader, since: int) -> list[Message]:
        rows = as_rows(store.read("alerts", ("env_steps", "name", "message", "tip"), since=since, last=MAX_ALERTS))
        return [protocol.AlertRaised(run=self.run.name, **row) for row in rows]

    def checkpoints(self) -> list[Message]:
        found = self._list_checkpoints()
        return [self._checkpoint_message(c, found, []) for c in found]

    def _list_checkpoints(self) -> list[Checkpoint]:
        """Checkpoints and policy snapshots."""
        return snapshots.saved_policies(self.run)[0]

    def _checkpoint_message(self, c: Checkpoint, among: list[Checkpoint], removed: list[str]) -> Message:
        return protocol.CheckpointSaved(
            run=self.run.name, name=c.name, env_steps=c.env_steps, score=c.info.get("score"),
            best=c is checkpoint.best_of(among), removed=removed,
        )  # fmt: skip

    def status(self) -> RunStatus:
        meta = self.run.meta()
        if self.run.metrics_file.exists():
            with MetricsReader(self.run.metrics_file) as store:
                env_steps = max([0, *store.read("updates", ("env_steps",), last=1)["env_steps"]])
                episodes = int(sum(store.read("episode_intervals", ("count",))["count"]))
        else:  # a published run, or one that has just started
            newest = checkpoint.latest(self.run.checkpoints)
            env_steps, episodes = newest.env_steps if newest else 0, 0
        return RunStatus.model_validate(
            {"run": self.run.name, "kind": "gym" if meta.get("gym") else "town", "state": state_of(self.run, meta),
             "env_steps": env_steps, "budget": self.loaded.recipe.budget.env_steps or 0, "episodes": episodes,
             "summary": meta.get("summary") or []}
        )  # fmt: skip


class WatchedTownRun(WatchedRun):
    """A run in a town, with its world and the latest episodes of training."""

    def __init__(self, run: Run, loaded: LoadedExperiment) -> None:
        super().__init__(run, loaded)
        self.world: World = loaded.worlds.training
        self.episodes: deque[TownEpisode] = deque(maxlen=RECENT_EPISODES)
        self.playback = TrainingPlayback(self.next_episode)
        lengths = [int(recording["length"]) for recording in self.recordings()]
        self.record: int | None = max(lengths, default=None)  # length of the longest known life
        self._feed: Feed | None = None

    def town(self) -> WatchedTownRun:
        """This run."""
        return self

    def poll(self) -> list[Message]:
        """Messages about everything new since the last call, episodes first."""
        return self._poll_feed() + super().poll()

    def _poll_feed(self) -> list[Message]:
        """Read new messages from the trainer; reopens the feed if it was replaced."""
        if self._feed is not None and not self._feed.is_current:
            self._feed.close()
            self._feed = None
        if self._feed is None and self.run.feed_file.exists():
            try:
                self._feed = Feed.open(self.run.feed_file)
            except TownletError:
                return []
        messages: list[Message] = []
        for message in self._feed.poll() if self._feed else ():
            if message.kind == EPISODE_ENDED:
                header, _, body = message.data.partition(b"\n")
                info = json.loads(header)
                self.episodes.append(self._episode(info | {"data": body}, "town {row} of the training", "training"))
                self.record = max(self.record or 0, info["length"])
                del info["outputs"]
                messages.append(protocol.TrainingEpisode(run=self.run.name, **info))
            elif message.kind == ROWS_OVERVIEW:
                overview = protocol.RowsOverview(**json.loads(message.data), sent=time.time())
                self.rows_overview = overview.model_dump_json()
        return messages

    def _episode(self, values: dict[str, Any], label: str, source: str) -> TownEpisode:
        recording = Recording.from_bytes(values["data"])
        row, env_steps, output_kind = values["row"], values["env_steps"], values["outputs"]
        name = first_name(self.run.name, row)
        return TownEpisode(
            self.world, recording, label.format(**values), row, env_steps, output_kind, source, name, self.record
        )

    def next_episode(self) -> TownEpisode | None:
        """The newest episode of training, unless it is being shown already."""
        newest = self.episodes[-1] if self.episodes else None
        return None if newest is self.playback.episode else newest

    def episode_of_row(self, row: int | None) -> TownEpisode | None:
        """The newest episode of one training row."""
        return next((episode for episode in reversed(self.episodes) if episode.row == row), None)

    def recorded_episode(self, number: int) -> TownEpisode:
        """A recorded episode by its number in the store."""
        with MetricsReader(self.run.metrics_file) as store:
            rows = as_rows(store.read("recordings", where={"number": number}))
        if not rows:
            raise NotFound(f"this run has no recorded episode {number}", "choose one from the list of recordings")
        return self._episode(rows[0], "{kind}: town {row} of the training", "recording")

    def recordings(self) -> list[dict[str, Any]]:
        """Metadata of the recorded episodes, oldest first."""
        if not self.run.metrics_file.exists():
            return []
        with MetricsReader(self.run.metrics_file) as store:
            return as_rows(store.read("recordings", RECORDING_COLUMNS))

    def newest_recording(self) -> int:
        """Number of the last recorded episode; raises if there is none."""
        recordings = self.recordings()
        if not recordings:
            raise TownletError("this run has no recorded episodes yet", "wait until an episode of training ends")
        return int(recordings[-1]["number"])

    def close(self) -> None:
        if self._feed:
            self._feed.close()
