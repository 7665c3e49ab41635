"""Lives of training that are worth seeing again: a few, by fixed rules, so that equal runs keep the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes
from townlet.runs.metrics_store import MetricsStore
from townlet.town.env import Town
from townlet.town.episode_recorder import EpisodeRecorder, Recording
from townlet.town.state import OUT_OF_TIME

if TYPE_CHECKING:
    from townlet.train.build import Training

PERIODS: Final = 24  # of the budget: the first life that ends in each is kept,
GROWS: Final = 1.1  # and fewer later on, so that a run without end keeps a bounded number
UNLIMITED: Final = 10**6  # env_steps of such a period where time alone limits the run
LONGER, SHORTER = 1.1, 0.8  # a new longest or shortest life is kept when it differs clearly from the last one kept

Heard = Callable[[int, Recording, str], None]  # row, life, cause


class Album:
    """Watches the first rows by a tape and keeps lives in the store; `heard` is told of every life that ends there."""

    def __init__(self, t: Training, town: Town, store: MetricsStore, every: int) -> None:
        self._t, self._store, self._every = t, store, max(1, every)
        self._tape = EpisodeRecorder(town, t.agent.describe_outputs)
        self._next = 0  # env_steps from which on the next life is kept, whatever it is like
        self._longest, self._shortest = 0, 0
        self._stages: list[int] = []  # that were seen
        self._decided: list[str] = []  # changes of stage of which a life was kept
        self._last: dict[int, tuple[Recording, str, float]] = {}  # of the rows that ended in the last step
        self.heard: Heard | None = None

    @property
    def watched(self) -> int:
        """Rows of which lives may be kept."""
        return self._tape.rows

    def stepped(self, actions: Tensor) -> None:
        """A step of all rows was made by these actions."""
        self._tape.record(actions, self._t.agent.action_outputs)
        self._last.clear()

    def episodes(self, over: Episodes, stage: Tensor | None, causes: Sequence[str]) -> None:
        """Episodes that ended in the last step, with the stage [k] each was lived in."""
        for k, row in enumerate(over.rows.tolist()):  # at most the watched ones, which come first
            if row >= self._tape.rows:
                return
            life = self._tape.finish_episode(row)
            self._last[row] = life, causes[k], float(over.reward[k])
            length, lived_in = int(over.length[k]), 0 if stage is None else int(stage[k])
            if kind := self._kind(length, lived_in, causes[k]):
                self._keep(kind, row, life, lived_in, causes[k], length, float(over.reward[k]))
            if self.heard:
                self.heard(row, life, causes[k])

    def stages(self, changes: Sequence[StageChange]) -> None:
        """Rows that went on or back: the first life that decided it, from each stage and each way, is kept."""
        for change in changes:
            kind = "promoted" if change.to_stage > change.from_stage else "demoted"
            decided = f"{kind} from {change.from_stage}"
            if change.row in self._last and decided not in self._decided:
                self._decided.append(decided)
                life, cause, reward = self._last[change.row]
                self._keep(kind, change.row, life, change.from_stage, cause, int(life.age[-1]), reward)

    def _kind(self, length: int, stage: int, cause: str) -> str | None:
        """Why this life is kept, if it is."""
        now = self._t.counters.env_steps
        if stage and stage not in self._stages:
            self._stages.append(stage)
            return "first of its stage"
        if length >= LONGER * self._longest or (cause == OUT_OF_TIME and length > self._longest):
            self._longest = length
            self._shortest = self._shortest or length
            return "longest"
        if length <= SHORTER * self._shortest:
            self._shortest = length
            return "shortest"
        if now >= self._next:
            self._next = max(now + self._every, int(GROWS * now))
            return "at intervals"
        return None

    def _keep(self, kind: str, row: int, life: Recording, stage: int, cause: str, length: int, reward: float) -> None:
        now = self._t.counters
        found: dict[str, Any] = {
            "env_steps": now.env_steps, "updates": now.updates, "kind": kind, "row": row, "length": length,
            "stage": stage, "cause": cause, "return": reward, "outputs": self._t.agent.output_label,
            "data": life.to_bytes(),
        }  # fmt: skip
        self._store.add("recordings", [found])

    def state(self) -> State:
        """The tape, and what the rules remember."""
        return {
            "tape": self._tape.state(),
            "next": self._next,
            "longest": self._longest,
            "shortest": self._shortest,
            "stages": list(self._stages),
            "decided": list(self._decided),
        }

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        self._tape.restore(state["tape"])
        self._next, self._longest, self._shortest = (int(state[n]) for n in ("next", "longest", "shortest"))
        self._stages = [int(stage) for stage in state["stages"]]
        self._decided = [str(decided) for decided in state["decided"]]
