"""Metrics that depend on the kind of environment. Towns: usage of affordances and cells, highlights, the live feed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.curriculum.curriculum import Curriculum, StageChange
from townlet.explore.intrinsic_reward import novelty_map
from townlet.interfaces.counters import Counters, Sink
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes
from townlet.recipes.schema import Recipe
from townlet.runs.feed import EPISODE_ENDED, ROWS_OVERVIEW, Feed
from townlet.runs.metric_catalog import METER_PREFIX
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import TERMINATED, TIME_LIMIT
from townlet.town.env import Town
from townlet.town.episode_recorder import EpisodeRecorder, Recording
from townlet.town.state import OUT_OF_TIME, cause_codes
from townlet.town.usage_counts import UsageCounter

PERIODS: Final = 24  # the budget is divided into this many periods; the first episode that ends in each is kept
PERIOD_GROWTH: Final = 1.1  # env_steps grow at least by this factor between periodic samples: a long run keeps few
OPEN_ENDED_PERIOD: Final = 10**6  # env_steps of a period if the budget does not limit them
LONGER_BY, SHORTER_BY = 1.1, 0.8  # factors by which a new longest or shortest episode must differ from the last kept
MAX_NOVELTY_CELLS: Final = 4096  # on a larger map computing the novelty of every cell would cost too much
EPISODE_SECONDS: Final = 0.4  # least time between two episodes in the feed: the page shows one for longer than that
OVERVIEW_SECONDS: Final = 0.2  # least time between two overviews in the feed
OVERVIEW_ROWS: Final = 64  # an overview shows this many first rows

EpisodeCallback = Callable[[int, Recording, str], None]  # row, recording, cause of its end


class EnvMetrics:
    """Base class of metrics that depend on the kind of environment. For Gymnasium: only why episodes end."""

    causes: tuple[str, ...] = (TERMINATED, TIME_LIMIT)  # why episodes end, by code

    def on_step(self, actions: Tensor) -> None:
        """Record a step of all rows with these actions [N]."""

    def cause_codes(self, terminated: NDArray[np.bool_], final_values: NDArray[Any]) -> NDArray[np.int64]:
        """Why episodes ended [k]: indices into `causes`."""
        return np.where(terminated, 0, 1)

    def on_episodes(self, ended: Episodes, stage: Tensor | None, final_values: NDArray[np.float32]) -> None:
        """Record the k episodes that ended in the last step, rows ascending, with their stages [k] and final values."""

    def on_stage_changes(self, changes: Sequence[StageChange]) -> None:
        """Record rows whose stage of the curriculum has changed."""

    def flush(self, store: MetricsStore, position: dict[str, int]) -> dict[str, float]:
        """Write what was collected since the last call to the store; returns the metrics of the interval."""
        return {}

    def sinks(self, feed_file: Path) -> list[Sink]:
        """Sinks that only this kind of environment has."""
        return []

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Continue from a saved state."""


class Highlights:
    """Records the first rows and keeps some episodes, by deterministic rules: equal runs keep the same ones."""

    def __init__(self, town: Town, agent: Agent, counters: Counters, store: MetricsStore, period: int) -> None:
        self._agent, self._counters, self._store, self._period = agent, counters, store, max(1, period)
        self._recorder = EpisodeRecorder(town, agent.describe_outputs)
        self.recorded_rows = self._recorder.rows
        self._next = 0  # the first episode that ends at or after this env_steps is kept
        self._longest, self._shortest = 0, 0  # lengths of the last longest and shortest episode kept
        self._stages: list[int] = []  # stages whose first episode was kept
        self._decided: list[str] = []  # kinds of stage changes for which an episode was kept: "advanced from 2"
        # Recording, cause and return of each recorded row whose episode ended in the last step.
        self._last: dict[int, tuple[Recording, str, float]] = {}
        self.on_episode: EpisodeCallback | None = None

    def on_step(self, actions: Tensor) -> None:
        self._recorder.record(actions, self._agent.action_outputs)
        self._last.clear()

    def on_episodes(self, ended: Episodes, stage: Tensor | None, causes: Sequence[str]) -> None:
        """Finish the recordings of the episodes that ended in the last step, rows ascending; keep some."""
        for k, row in enumerate(ended.rows.tolist()):  # recorded rows are the lowest
            if row >= self.recorded_rows:
                return
            recording = self._recorder.finish_episode(row)
            episode_return = float(ended.reward[k])
            self._last[row] = recording, causes[k], episode_return
            length, row_stage = int(ended.length[k]), 0 if stage is None else int(stage[k])
            if reason := self._reason_to_keep(length, row_stage, causes[k]):
                self._keep(reason, row, recording, row_stage, causes[k], length, episode_return)
            if self.on_episode:
                self.on_episode(row, recording, causes[k])

    def on_stage_changes(self, changes: Sequence[StageChange]) -> None:
        """Keep the first episode that triggered an advance or a retreat, for each stage."""
        for change in changes:
            kind = "advanced" if change.to_stage > change.from_stage else "retreated"
            decided = f"{kind} from {change.from_stage}"
            if change.row in self._last and decided not in self._decided:
                self._decided.append(decided)
                recording, cause, episode_return = self._last[change.row]
                length = int(recording.age[-1])
                self._keep(kind, change.row, recording, change.from_stage, cause, length, episode_return)

    def _reason_to_keep(self, length: int, stage: int, cause: str) -> str | None:
        """Why an episode is kept; None if it is not."""
        now = self._counters.env_steps
        if stage and stage not in self._stages:
            self._stages.append(stage)
            return "first of its stage"
        if length >= LONGER_BY * self._longest or (cause == OUT_OF_TIME and length > self._longest):
            self._longest = length
            self._shortest = self._shortest or length
            return "longest"
        if length <= SHORTER_BY * self._shortest:
            self._shortest = length
            return "shortest"
        if now >= self._next:
            self._next = max(now + self._period, int(PERIOD_GROWTH * now))
            return "periodic sample"
        return None

    def _keep(
        self, kind: str, row: int, recording: Recording, stage: int, cause: str, length: int, episode_return: float
    ) -> None:
        now = self._counters
        columns: dict[str, Any] = {
            "env_steps": now.env_steps, "updates": now.updates, "kind": kind, "row": row, "length": length,
            "stage": stage, "cause": cause, "return": episode_return, "outputs": self._agent.output_label,
            "data": recording.to_bytes(),
        }  # fmt: skip
        self._store.add("recordings", [columns])

    def state(self) -> State:
        return {
            "recorder": self._recorder.state(),
            "next": self._next,
            "longest": self._longest,
            "shortest": self._shortest,
            "stages": list(self._stages),
            "decided": list(self._decided),
        }

    def restore(self, state: State) -> None:
        self._recorder.restore(state["recorder"])
        self._next, self._longest, self._shortest = (int(state[n]) for n in ("next", "longest", "shortest"))
        self._stages = [int(stage) for stage in state["stages"]]
        self._decided = [str(decided) for decided in state["decided"]]


def _obs_of_all_cells(env: Town) -> Tensor | None:
    """The first observation of an episode that starts at each cell [C, D]; None if the map is too large."""
    cells = env.world.tables.next_cell.shape[1]
    if cells > MAX_NOVELTY_CELLS:
        return None
    town = Town(env.world, cells, engine="torch", device=env.device)
    town.reset(0)
    obs = town.restore({**town.state(), "cell": np.arange(cells)}).obs.clone()
    town.close()
    return obs


class FeedSink(Sink):
    """Writes episodes and an overview of the rows to the run's live feed while a page reads it."""

    def __init__(self, path: Path, town: Town, agent: Agent, counters: Counters, curriculum: Curriculum | None) -> None:
        self._town, self._agent, self._counters, self._curriculum = town, agent, counters, curriculum
        self._feed = Feed.create(path)
        self._last_episode = self._last_overview = 0.0
        self._lethal = [int(m) for m in town.world.tables.lethal] or slice(None)

    def on_episode(self, row: int, recording: Recording, cause: str) -> None:
        """Publish an episode of a recorded row, unless one was published a moment ago."""
        now = time.monotonic()
        if now - self._last_episode < EPISODE_SECONDS or not self._feed.has_readers:
            return
        self._last_episode = now
        header = {
            "row": row, "env_steps": self._counters.env_steps, "outputs": self._agent.output_label,
            "length": int(recording.age[-1]), "cause": cause, "ended": time.time(),
        }  # fmt: skip
        self._feed.publish(EPISODE_ENDED, json.dumps(header).encode() + b"\n" + recording.to_bytes())

    def on_rollout(self, counters: Counters) -> None:
        """Publish an overview of the first rows, unless one was published a moment ago."""
        now = time.monotonic()
        if now - self._last_overview < OVERVIEW_SECONDS or not self._feed.has_readers:
            return
        self._last_overview = now
        state = self._town.engine.peek("cell", "age", "meters")
        lowest = state["meters"][:OVERVIEW_ROWS][:, self._lethal].min(1)
        overview = {
            "env_steps": counters.env_steps,
            "cell": state["cell"][:OVERVIEW_ROWS].tolist(),
            "age": state["age"][:OVERVIEW_ROWS].tolist(),
            "lowest_meter": [round(float(value), 3) for value in lowest],
            "stage": None if self._curriculum is None else self._curriculum.stage[:OVERVIEW_ROWS].tolist(),
        }
        self._feed.publish(ROWS_OVERVIEW, json.dumps(overview).encode())

    def close(self) -> None:
        """Remove the feed: training has ended."""
        self._feed.remove()


class TownMetrics(EnvMetrics):
    """The metrics that only a town has: usage counts, novelty, highlights and the live feed."""

    def __init__(
        self, recipe: Recipe, town: Town, agent: Agent, counters: Counters, curriculum: Curriculum | None,
        store: MetricsStore,
    ) -> None:  # fmt: skip
        self._town, self._world, self._agent = town, town.world, agent
        self._counters, self._curriculum = counters, curriculum
        self.causes = town.cause_names
        self._usage = UsageCounter(town)
        self._cell_obs = _obs_of_all_cells(town) if agent.bonus and town.world.size else None
        period = recipe.to_env_steps(1 / PERIODS) if recipe.budget.env_steps else OPEN_ENDED_PERIOD
        self.highlights = Highlights(town, agent, counters, store, period)

    def on_step(self, actions: Tensor) -> None:
        self._usage.update()
        self.highlights.on_step(actions)

    def cause_codes(self, terminated: NDArray[np.bool_], final_values: NDArray[Any]) -> NDArray[np.int64]:
        return cause_codes(self._world, final_values)

    def on_episodes(self, ended: Episodes, stage: Tensor | None, final_values: NDArray[np.float32]) -> None:
        rows, recorded = ended.rows.numpy(), self.highlights.recorded_rows
        if rows[0] < recorded:  # rows are in ascending order
            codes = cause_codes(self._world, final_values[rows < recorded])
            self.highlights.on_episodes(ended, stage, [self.causes[code] for code in codes])

    def on_stage_changes(self, changes: Sequence[StageChange]) -> None:
        self.highlights.on_stage_changes(changes)

    def flush(self, store: MetricsStore, position: dict[str, int]) -> dict[str, float]:
        usage, world = self._usage.flush(), self._world
        if not usage.steps:  # a rollout that is one CUDA graph reports no single steps
            return {}
        names, when = np.array(world.affordances), {"env_steps": position["env_steps"]}
        used = np.flatnonzero(usage.uses)
        store.add("affordance_visits", {**when, "affordance": names[used].tolist(), "count": usage.uses[used]})
        start, end = np.nonzero(usage.transitions)
        transitions = {"from": names[start].tolist(), "to": names[end].tolist(), "count": usage.transitions[start, end]}
        store.add("affordance_transitions", {**when, **transitions})
        if world.size:
            novelty = self._novelty()  # includes cells without visits, where it matters most
            cells = np.flatnonzero(usage.cells) if novelty is None else np.arange(len(usage.cells))
            values = {"novelty": None if novelty is None else novelty[cells]}
            store.add("cell_visits", {**when, "cell": cells, "count": usage.cells[cells], **values})
        return {f"{METER_PREFIX}{name}": float(value) for name, value in zip(world.meters, usage.meters, strict=True)}

    def _novelty(self) -> NDArray[np.float64] | None:
        """The novelty bonus of each cell [C] at the start of an episode; counts no visits. None if unknown."""
        if self._agent.bonus is None or self._cell_obs is None:
            return None
        return np.asarray(novelty_map(self._agent.bonus, self._town.layout, self._cell_obs).double().cpu())

    def sinks(self, feed_file: Path) -> list[Sink]:
        sink = FeedSink(feed_file, self._town, self._agent, self._counters, self._curriculum)
        self.highlights.on_episode = sink.on_episode
        return [sink]

    def state(self) -> State:
        return {"usage": self._usage.state(), "highlights": self.highlights.state()}

    def restore(self, state: State) -> None:
        self._usage.restore(state["usage"])
        self.highlights.restore(state["highlights"])
