"""What a run has measured, for a page: all of it once, then only what is new."""

from __future__ import annotations

from typing import Final

from townlet.live.protocol import Alert, Metrics, NewCheckpoint, RunStatus, Said, StageChange
from townlet.runs import checkpoint
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.runs.overview import state_of
from townlet.runs.reader import Reader, as_rows

TABLES: Final = ("updates", "evaluations", "stage_changes", "alerts")
POINTS: Final = 400  # of a curve that is sent whole
ALERTS: Final = 50  # that are told at once; of more, the last


class Figures:
    """Reads a run's store as it grows. `news` gives what came since it was last asked."""

    def __init__(self, run: Run, budget: int) -> None:
        self.run, self._budget = run, budget
        self._since = self._latest()  # by table; whoever comes is told the whole first, so that news begin after it
        self._checkpoints = {one.name for one in self._surveyed()}
        self._status: RunStatus | None = None
        self._whole: list[Said] = []  # until there is news: many may come at once

    def _latest(self) -> dict[str, int]:
        """The last moment in each table: they are not written at the same time."""
        if not self.run.metrics_file.exists():
            return dict.fromkeys(TABLES, -1)
        with Reader(self.run.metrics_file) as store:
            return {table: max([-1, *store.read(table, ("env_steps",), last=1)["env_steps"]]) for table in TABLES}

    def whole(self) -> list[Said]:
        """Everything up to now, curves with at most POINTS points; for somebody who has just come."""
        if self._whole or not self.run.metrics_file.exists():
            return self._whole
        with Reader(self.run.metrics_file) as store:
            series = {name: list(zip(*store.series(name, POINTS), strict=True)) for name in store.names()}
            evaluations = as_rows(store.read("evaluations"))
            alerts = self._alerts(store, -1)
            stages = {change.row: change for change in self._stages(store, -1)}  # where each row is now, and why
        self._whole = [Metrics(run=self.run.name, series=series, evaluations=evaluations), *stages.values(), *alerts]
        return self._whole

    def news(self) -> list[Said]:
        """What is new: status, figures, stages, alerts and checkpoints."""
        said: list[Said] = []
        if (status := self.status()) != self._status:
            self._status = status
            said.append(status)
        if figures := self._new_figures():
            self._whole = []
        return said + figures + self._new_checkpoints()

    def _new_figures(self) -> list[Said]:
        if not self.run.metrics_file.exists():
            return []
        latest = self._latest()
        since = {table: min(self._since[table], latest[table]) for table in TABLES}  # a resumed run has gone back
        self._since = latest
        if since == latest:
            return []
        with Reader(self.run.metrics_file) as store:
            found = store.read("updates", ("env_steps", "name", "value"), since=since["updates"])
            evaluations = as_rows(store.read("evaluations", since=since["evaluations"]))
            said: list[Said] = [*self._stages(store, since["stage_changes"]), *self._alerts(store, since["alerts"])]
        if found["env_steps"] or evaluations:
            series: dict[str, list[tuple[int, float]]] = {}
            for at, name, value in zip(*found.values(), strict=True):
                if value is not None:
                    series.setdefault(name, []).append((at, value))
            said.append(Metrics(run=self.run.name, series=series, evaluations=evaluations))
        return said

    def _stages(self, store: Reader, since: int) -> list[StageChange]:
        columns = ("env_steps", "row", "from_stage", "to_stage", "reason")
        rows = as_rows(store.read("stage_changes", columns, since=since))
        return [StageChange(run=self.run.name, **row) for row in rows]

    def _alerts(self, store: Reader, since: int) -> list[Said]:
        rows = as_rows(store.read("alerts", ("env_steps", "name", "message", "tip"), since=since, last=ALERTS))
        return [Alert(run=self.run.name, **row) for row in rows]

    def saved(self) -> list[Said]:
        """All checkpoints that are there."""
        found = self._surveyed()
        return [self._told(one, found, []) for one in found]

    def _new_checkpoints(self) -> list[Said]:
        found = self._surveyed()
        names = {one.name for one in found}
        fresh, gone = names - self._checkpoints, self._checkpoints - names
        self._checkpoints = names
        return [self._told(one, found, sorted(gone)) for one in found if one.name in fresh]

    def _surveyed(self) -> list[Checkpoint]:
        return checkpoint.survey(self.run.checkpoints)[0]

    def _told(self, one: Checkpoint, among: list[Checkpoint], gone: list[str]) -> Said:
        return NewCheckpoint(
            run=self.run.name, name=one.name, env_steps=one.env_steps, score=one.info.get("score"),
            best=one is checkpoint.champion(among), gone=gone,
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
            newest = checkpoint.newest(self.run.checkpoints)
            return (newest.env_steps if newest else 0), 0
        with Reader(self.run.metrics_file) as store:
            last = store.read("updates", ("env_steps",), last=1)["env_steps"]
            counts = store.read("episode_intervals", ("count",))["count"]
        return (last[0] if last else 0), int(sum(counts))
