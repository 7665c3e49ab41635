"""Episodes of a training run: sums over the running episode of each row, and a table of the finished ones.

The table is preallocated. Keeping the tensors of each step until the end of the interval would be faster at first, but
many small allocations that outlive large ones fragment the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.curriculum.spec import SHAPING
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs, Step

SUMS: Final = ("length", "reward", "intrinsic", "entropy", "guidance")
# Columns of `EpisodeTable.table`, followed by the final values.
COLUMNS: Final = (
    "env_steps", "updates", "row", "start", "length", "return", "extrinsic", "intrinsic", "stage", "epsilon", "cause",
)  # fmt: skip
INTEGER_COLUMNS: Final = ("env_steps", "updates", "row", "start", "length", "stage")
# Columns stored by `EpisodeTable.add`: the progress of the run, the episode itself, then its final values.
PROGRESS: Final = ("env_steps", "updates", "epsilon")
EPISODE: Final = ("row", "length", "return", "intrinsic", "guidance", "terminated", "stage")
ROW, LENGTH, RETURN, INTRINSIC, GUIDANCE, TERMINATED, STAGE, FINAL = range(
    len(PROGRESS), len(PROGRESS) + len(EPISODE) + 1
)
INITIAL_LINES: Final = 256
RECENT_EPISODES: Final = 100

Table = NDArray[np.float64]
CauseCodes = Callable[[NDArray[np.bool_], NDArray[Any]], NDArray[np.int64]]  # terminated, final values → codes


class RolloutListener:
    """Receives steps, finished episodes and stage changes; subclasses override what they need."""

    def on_step(self, actions: Tensor) -> None:
        """Called after each step, with the actions [N] of all rows."""

    def on_episodes(self, episodes: Episodes, ended: FinalObs) -> None:
        """Called with the episodes that ended in the last step."""

    def on_rollout_episodes(
        self, episodes: Episodes, final_values: NDArray[np.float32], ago: NDArray[np.float64] | None = None
    ) -> None:
        """Called after a rollout with k episodes that ended during it, and their E final values [k, E].

        `ago` [k] is the number of env_steps since the end of each, if known.
        """

    def on_stage_changes(self, changes: list[StageChange]) -> None:
        """Called when the curriculum has changed the stage of some rows."""


class NullListener(RolloutListener):
    """A listener that ignores everything."""


class EpisodeTracker:
    """Sums over the running episode of each row [N]; `components` are the names of the reward components.

    The shaping reward is summed separately, as `guidance`: it is not part of the return.
    """

    def __init__(self, rows: int, device: str = "cpu", components: Sequence[str] = ()) -> None:
        self.length = torch.zeros(rows, dtype=torch.int64, device=device)
        self.reward, self.intrinsic, self.entropy, self.guidance = (torch.zeros(rows, device=device) for _ in range(4))
        self._extrinsic = [k for k, name in enumerate(components) if name != SHAPING]
        self._shaping = [k for k, name in enumerate(components) if name == SHAPING]
        no_rows = torch.zeros(0, dtype=torch.int64, device=device)
        self._none = self._episodes(no_rows, no_rows.bool())

    def step(self, step: Step, ended: FinalObs, intrinsic: Tensor, entropy: Tensor | None) -> Episodes:
        """Add one step of all rows. Returns the episodes that ended with it, whose sums are reset."""
        self.length += 1 if step.autoreset_step is None else step.autoreset_step.logical_not()
        self._add_rewards(step)
        self.intrinsic += intrinsic
        if entropy is not None:
            self.entropy += entropy
        rows = ended.rows
        if not rows.shape[0]:
            return self._none
        episodes = self._episodes(rows, step.terminated[rows])
        for sums in self.state().values():
            sums.index_fill_(0, rows, 0)
        return episodes

    def step_in_place(self, step: Step, lengths: Tensor, rewards: Tensor, guidance: Tensor) -> None:
        """Like `step`, without a synchronization: copies the sums of all rows [N], and resets those of ended episodes.

        Only for environments without autoreset steps, and without intrinsic reward.
        """
        self.length += 1
        self._add_rewards(step)
        lengths.copy_(self.length)
        rewards.copy_(self.reward)
        guidance.copy_(self.guidance)
        for sums in (self.length, self.reward, self.guidance):
            sums.masked_fill_(step.episode_starts, 0)

    def _add_rewards(self, step: Step) -> None:
        """Add the components column by column, which is fastest if there are few."""
        if not self._shaping:
            self.reward += step.reward
            return
        for k in self._extrinsic:
            self.reward += step.components[:, k]
        for k in self._shaping:
            self.guidance += step.components[:, k]

    def _episodes(self, rows: Tensor, terminated: Tensor) -> Episodes:
        length, reward, intrinsic, entropy, guidance = (sums[rows] for sums in self.state().values())
        columns = (rows, length, reward, intrinsic, entropy / length, terminated, guidance)
        return Episodes(*(column.cpu() for column in columns))

    def reset(self) -> None:
        for sums in self.state().values():
            sums.zero_()

    def state(self) -> State:
        return {name: getattr(self, name) for name in SUMS}

    def restore(self, state: State) -> None:
        for name, sums in self.state().items():
            sums.copy_(torch.as_tensor(state[name]))


class RecentScores:
    """Scores of the last 100 training episodes of all rows, which include exploration."""

    def __init__(self, metric: Literal["length", "return"]) -> None:
        self._metric = metric
        self._scores: deque[float] = deque(maxlen=RECENT_EPISODES)

    def add(self, episodes: Episodes) -> None:
        self._scores.extend((episodes.length if self._metric == "length" else episodes.reward).tolist())

    @property
    def mean(self) -> float | None:
        """Mean of the last 100 episodes; None while there are fewer."""
        return sum(self._scores) / RECENT_EPISODES if len(self._scores) == RECENT_EPISODES else None

    def state(self) -> State:
        return {"scores": list(self._scores)}

    def restore(self, state: State) -> None:
        self._scores = deque(map(float, state["scores"]), maxlen=RECENT_EPISODES)


class EpisodeTable:
    """The finished episodes of one logging interval, one line each."""

    def __init__(self, cause_codes: CauseCodes, final_values: int, rows: int) -> None:
        self._cause_codes, self._rows, self._count = cause_codes, rows, 0
        self._lines: Table = np.zeros((INITIAL_LINES, FINAL + final_values))

    def add(
        self, counters: Counters, epsilon: float, episodes: Episodes, stage: Tensor | None,
        final_values: NDArray[np.float32], ago: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        """Add k episodes that ended now, or `ago` [k] env_steps earlier, with stage [k] and final values [k, E]."""
        lines = self._allocate(len(final_values))
        lines[:, : len(PROGRESS)] = counters.env_steps, counters.updates, epsilon
        if ago is not None:
            lines[:, 0] -= ago
        lines[:, ROW], lines[:, LENGTH] = episodes.rows.numpy(), episodes.length.numpy()
        lines[:, RETURN], lines[:, INTRINSIC] = episodes.reward.numpy(), episodes.intrinsic.numpy()
        lines[:, GUIDANCE], lines[:, TERMINATED] = episodes.guidance.numpy(), episodes.terminated.numpy()
        if stage is not None:
            lines[:, STAGE] = stage.numpy()
        lines[:, FINAL:] = final_values

    def _allocate(self, count: int) -> Table:
        """The next `count` lines; the table grows if it is full."""
        first, self._count = self._count, self._count + count
        if self._count > len(self._lines):
            larger = np.zeros((2 * self._count, self._lines.shape[1]))
            larger[:first] = self._lines[:first]
            self._lines = larger
        return self._lines[first : self._count]

    def table(self) -> Table:
        """All episodes so far [n, COLUMNS and final values], in the order in which they were added."""
        lines = self._lines[: self._count]
        columns = dict(zip((*PROGRESS, *EPISODE), lines.T, strict=False))
        columns["start"] = columns["env_steps"] - columns["length"] * self._rows
        columns["extrinsic"] = columns["return"] + columns["guidance"]
        final_values, terminated = lines[:, FINAL:], lines[:, TERMINATED] > 0
        columns["cause"] = self._cause_codes(terminated, final_values).astype(np.float64)
        return np.column_stack([*(columns[name] for name in COLUMNS), final_values])

    def clear(self) -> None:
        self._count = 0

    def state(self) -> State:
        return {"lines": self._lines[: self._count].copy()}

    def restore(self, state: State) -> None:
        lines = torch.as_tensor(state["lines"]).numpy()
        self._count = 0
        self._allocate(len(lines))[...] = lines
