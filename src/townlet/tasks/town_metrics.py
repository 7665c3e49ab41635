"""What the journal keeps of towns: where rows are and what they use, their meters, and lives worth seeing again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes
from townlet.runs.metric_catalog import METER_PREFIX
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.town_highlights import PERIODS, UNLIMITED, Album
from townlet.tasks.town_novelty import NoveltyMap
from townlet.town.env import Town
from townlet.town.state import cause_codes
from townlet.town.usage_counts import UsageCounter

if TYPE_CHECKING:
    from townlet.train.build import Training


class TownMetrics:
    """Listens to a training in a town."""

    def __init__(self, t: Training, town: Town, store: MetricsStore) -> None:
        self._town, self._world = town, town.world
        self.causes = town.cause_names
        self._diary, self._novelty = UsageCounter(town), NoveltyMap(town, t.agent)
        every = t.recipe.to_env_steps(1 / PERIODS) if t.recipe.budget.env_steps else UNLIMITED
        self.album = Album(t, town, store, every)

    def stepped(self, actions: Tensor) -> None:
        """A step of all rows was made by these actions."""
        self._diary.update()
        self.album.stepped(actions)

    def codes(self, terminated: NDArray[np.bool_], extras: NDArray[Any]) -> NDArray[np.int64]:
        """Which meter ended each life, or that time did."""
        return cause_codes(self._world, extras)

    def episodes(self, over: Episodes, stage: Tensor | None, extras: NDArray[np.float32]) -> None:
        """Lives that ended in the last step; only those of the watched rows may be kept."""
        rows = over.rows.numpy()
        if rows[0] < self.album.watched:  # rows ascend
            codes = cause_codes(self._world, extras[rows < self.album.watched])
            self.album.episodes(over, stage, [self.causes[code] for code in codes])

    def stages(self, changes: Sequence[StageChange]) -> None:
        """Rows that went on or back."""
        self.album.stages(changes)

    def mark(self, store: MetricsStore, moment: dict[str, int]) -> dict[str, float]:
        """Write where the watched rows were and what they used; their mean meters."""
        page, world = self._diary.flush(), self._world
        places, when = np.array(world.affordances), {"env_steps": moment["env_steps"]}
        used = np.flatnonzero(page.uses)
        store.add("affordance_visits", {**when, "affordance": places[used].tolist(), "count": page.uses[used]})
        begin, end = np.nonzero(page.transitions)
        ways = {"from": places[begin].tolist(), "to": places[end].tolist(), "count": page.transitions[begin, end]}
        store.add("affordance_transitions", {**when, **ways})
        if world.size:
            novelty = self._novelty.look()  # also where nobody was: there it matters most
            cells = np.flatnonzero(page.cells) if novelty is None else np.arange(len(page.cells))
            there = {"novelty": None if novelty is None else novelty[cells]}
            store.add("cell_visits", {**when, "cell": cells, "count": page.cells[cells], **there})
        return {f"{METER_PREFIX}{name}": float(value) for name, value in zip(world.meters, page.meters, strict=True)}

    def state(self) -> State:
        """What was gathered since the last mark, and the album."""
        return {"diary": self._diary.state(), "album": self.album.state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._diary.restore(state["diary"])
        self.album.restore(state["album"])
