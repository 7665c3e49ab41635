"""Buffer of complete episodes, for Monte-Carlo agents: steps can be used once their episode has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.buffers.storage import BOOL, FLOAT, INT, ColumnSpec, ColumnSpecs
from townlet.errors import TownletError
from townlet.interfaces.state import SAME_SETTINGS, State, copy_tensor, get_part

INITIAL_SLOTS: Final = 64  # doubled whenever an episode needs more


class EpisodeSteps(NamedTuple):
    """Steps of finished episodes, [B, …]."""

    obs: Tensor  # [B, D]
    mask: Tensor  # [B, K], valid actions
    actions: Tensor  # [B] or [B, A]
    value: Tensor  # [B], as estimated when acting


class EpisodeBuffer:
    """Stores columns [slots, rows, …]; each row has its own write position, because autoreset steps are not stored.

    A row holds its finished episodes, followed by the unfinished one. `discard_finished_episodes` moves the latter to
    the front, so the size is bounded by the steps since that call plus the longest episode.
    """

    def __init__(
        self, rows: int, obs_size: int, choices: int, *, action: ColumnSpec = INT, slots: int = INITIAL_SLOTS,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        self._specs: ColumnSpecs = {
            "obs": ((obs_size,), torch.float32),
            "mask": ((choices,), torch.bool),
            "actions": action,
            **dict.fromkeys(("value", "reward", "intrinsic", "bootstrap"), FLOAT),
            "ended": BOOL,
        }
        self.rows, self._device = rows, device
        self._columns = self._allocate(slots)
        self._row = torch.arange(rows, device=device)
        # Of each row: steps written, and how many of them belong to finished episodes.
        self._written, self._finished = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        self._max_written = 0  # upper bound of `_written`, known without a synchronization
        self.episodes = 0  # number of finished episodes in the buffer

    @torch.inference_mode(False)  # agents act in inference mode, but learn from these tensors outside of it
    def _allocate(self, slots: int) -> dict[str, Tensor]:
        return {
            name: torch.zeros((slots, self.rows, *shape), dtype=dtype, device=self._device)
            for name, (shape, dtype) in self._specs.items()
        }

    @property
    def _slots(self) -> int:
        return len(self._columns["ended"])

    def _resize(self, slots: int) -> None:
        """Reallocate with this many slots; the stored steps are kept."""
        before, self._columns = self._columns, self._allocate(slots)
        for name, column in before.items():
            self._columns[name][: self._max_written].copy_(column[: self._max_written])

    def _write(self, **values: Tensor) -> None:
        index = self._written * self.rows + self._row
        for name, value in values.items():
            self._columns[name].flatten(0, 1).index_copy_(0, index, value)

    def add_action(self, obs: Tensor, mask: Tensor, actions: Tensor, value: Tensor) -> None:
        """Store the first half of a step: observation and action, each [N, …]."""
        if self._max_written == self._slots:
            self._resize(2 * self._slots)
        self._write(obs=obs, mask=mask, actions=actions, value=value)

    def add_outcome(
        self, reward: Tensor, intrinsic: Tensor, ended: Tensor, bootstrap: Tensor, autoreset: Tensor | None = None
    ) -> None:
        """Store the second half of a step, each [N]; `bootstrap` is the value of the state after a truncation.

        Rows in an `autoreset` step [N] store nothing.
        """
        self._write(reward=reward, intrinsic=intrinsic, ended=ended, bootstrap=bootstrap)
        self._written += 1 if autoreset is None else ~autoreset
        self._max_written += 1
        torch.where(ended, self._written, self._finished, out=self._finished)
        self.episodes += int(ended.sum())

    def indices(self) -> Tensor:
        """Flat indices [S] int64 of all steps of finished episodes."""
        step = torch.arange(int(self._finished.max()), device=self._device).unsqueeze(1)
        return (step < self._finished).flatten().nonzero().squeeze(1)

    def gather(self, index: Tensor) -> EpisodeSteps:
        """The steps at flat indices [B]."""
        columns = (self._columns[name].flatten(0, 1) for name in EpisodeSteps._fields)
        return EpisodeSteps(*(column.index_select(0, index) for column in columns))

    def returns(self, gamma: float, intrinsic_weight: float = 0.0, whole_episode: bool = False) -> Tensor:
        """Discounted returns [T, N] of extrinsic + weighted intrinsic reward, from each step to the end of its episode.

        With `whole_episode` every step has the return of its whole episode. Only values at `indices` are meaningful.
        """
        steps = int(self._finished.max())
        ended, bootstrap = self._columns["ended"], self._columns["bootstrap"]
        returns = self._columns["reward"][:steps].add(self._columns["intrinsic"][:steps], alpha=intrinsic_weight)
        next_return = torch.zeros(self.rows, device=self._device)
        for t in range(steps - 1, -1, -1):
            next_return = returns[t].add_(torch.where(ended[t], bootstrap[t], next_return), alpha=gamma)
        if whole_episode:
            for t in range(1, steps):
                torch.where(ended[t - 1], returns[t], returns[t - 1], out=returns[t])
        return returns

    def discard_unfinished_episodes(self) -> None:
        """Discard the steps of unfinished episodes, because the environment was reset."""
        self._written.copy_(self._finished)

    def discard_finished_episodes(self) -> None:
        """Discard finished episodes, and move the unfinished ones to the front."""
        open_steps = self._written - self._finished
        self._max_written = int(open_steps.max())
        step = torch.arange(self._max_written, device=self._device).unsqueeze(1)
        index = ((step + self._finished).clamp_(max=self._slots - 1) * self.rows + self._row).flatten()
        for column in self._columns.values():
            column[: self._max_written].flatten(0, 1).copy_(column.flatten(0, 1).index_select(0, index))
        self._written.copy_(open_steps)
        self._finished.zero_()
        self.episodes = 0

    def state(self) -> State:
        # Slots beyond a row's write position may hold old values; zeros make the states of equal buffers equal.
        unwritten = torch.arange(self._max_written, device=self._device).unsqueeze(1) >= self._written
        columns = {name: column[: self._max_written].clone() for name, column in self._columns.items()}
        for column in columns.values():
            column[unwritten] = 0
        return {"columns": columns, "written": self._written, "finished": self._finished, "episodes": self.episodes}

    def restore(self, state: State) -> None:
        names = ("written", "finished", "columns", "episodes")
        written, finished, saved, episodes = (get_part(state, name, "episode buffer") for name in names)
        if not isinstance(saved, Mapping) or set(saved) != set(self._columns):
            raise TownletError(
                f"the saved episode buffer has other columns than {', '.join(self._columns)}", SAME_SETTINGS
            )
        slots = len(saved["ended"])
        if slots > self._slots:
            self._resize(slots)
        for name, column in self._columns.items():
            copy_tensor(column[:slots], saved[name], name)
        copy_tensor(self._written, written, "written")
        copy_tensor(self._finished, finished, "finished")
        if not bool(((self._finished >= 0) & (self._finished <= self._written) & (self._written <= slots)).all()):
            raise TownletError("the saved episode buffer has write positions beyond its stored steps", SAME_SETTINGS)
        self._max_written, self.episodes = slots, int(episodes)
