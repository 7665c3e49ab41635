"""Whole episodes of all rows, for agents that learn from nothing less: steps wait until their episode has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.contract.restore import SAME, copy_tensor, part
from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.memory.packing import Column, Columns
from townlet.memory.storage import FLAG, NUMBER, WHOLE

FIRST: Final = 64  # slots to begin with; they double when an episode needs more


class Lived(NamedTuple):
    """Steps of ended episodes, [B, …]."""

    obs: Tensor  # [B, D]
    mask: Tensor  # [B, K]
    actions: Tensor  # [B] or [B, A]
    value: Tensor  # [B], as estimated when it was lived


class Lives:
    """Columns [slots, rows, …] in which each row is written at its own pace: void steps leave no trace.

    A row holds ended episodes, then the one it is in; `forget` moves the latter to the front. So as much is kept as
    the rows have lived since the last `forget`, and what the longest of their episodes needs.
    """

    def __init__(
        self, rows: int, obs_size: int, choices: int, *, action: Column = WHOLE, slots: int = FIRST, device: str = "cpu"
    ) -> None:
        self._kinds: Columns = {
            "obs": ((obs_size,), torch.float32),
            "mask": ((choices,), torch.bool),
            "actions": action,
            **dict.fromkeys(("value", "reward", "intrinsic", "bootstrap"), NUMBER),
            "ended": FLAG,
        }
        self.rows, self._device = rows, device
        self._columns = self._make(slots)
        self._row = torch.arange(rows, device=device)
        self._at, self._done = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))
        self._most = 0  # no row has written more slots than this
        self.episodes = 0  # ended since the last `forget`

    @torch.inference_mode(False)  # whoever acts in that mode may need more room, and learns outside of it
    def _make(self, slots: int) -> dict[str, Tensor]:
        return {
            name: torch.zeros((slots, self.rows, *shape), dtype=kind, device=self._device)
            for name, (shape, kind) in self._kinds.items()
        }

    @property
    def _slots(self) -> int:
        return len(self._columns["ended"])

    def _hold(self, slots: int) -> None:
        """Room for so many slots; what was written stays."""
        before, self._columns = self._columns, self._make(slots)
        for name, column in before.items():
            self._columns[name][: self._most].copy_(column[: self._most])

    def _put(self, **values: Tensor) -> None:
        place = self._at * self.rows + self._row
        for name, value in values.items():
            self._columns[name].flatten(0, 1).index_copy_(0, place, value)

    def acted(self, obs: Tensor, mask: Tensor, actions: Tensor, value: Tensor) -> None:
        """The first half of a step: what was seen, and what was done, each [N, …]."""
        if self._most == self._slots:
            self._hold(2 * self._slots)
        self._put(obs=obs, mask=mask, actions=actions, value=value)

    def observed(
        self, reward: Tensor, intrinsic: Tensor, ended: Tensor, bootstrap: Tensor, void: Tensor | None = None
    ) -> None:
        """The second half: what came of it, each [N]. `bootstrap` is the worth of what follows an end."""
        self._put(reward=reward, intrinsic=intrinsic, ended=ended, bootstrap=bootstrap)
        self._at += 1 if void is None else ~void
        self._most += 1
        torch.where(ended, self._at, self._done, out=self._done)
        self.episodes += int(ended.sum())

    def places(self) -> Tensor:
        """Where the steps of ended episodes lie [S] int64, for `gather`."""
        step = torch.arange(int(self._done.max()), device=self._device).unsqueeze(1)
        return (step < self._done).flatten().nonzero().squeeze(1)

    def gather(self, places: Tensor) -> Lived:
        """The steps at these places [B]."""
        return Lived(*(self._columns[name].flatten(0, 1).index_select(0, places) for name in Lived._fields))

    def returns(self, gamma: float, weight: float = 0.0, whole: bool = False) -> Tensor:
        """Discounted sums [T, N] of reward + weight × intrinsic from each step to the end of its episode.

        With `whole` every step has the sum of its whole episode. Only what lies at `places` means anything.
        """
        steps = int(self._done.max())
        ended, bootstrap = self._columns["ended"], self._columns["bootstrap"]
        found = self._columns["reward"][:steps].add(self._columns["intrinsic"][:steps], alpha=weight)
        following = torch.zeros(self.rows, device=self._device)
        for t in range(steps - 1, -1, -1):
            following = found[t].add_(torch.where(ended[t], bootstrap[t], following), alpha=gamma)
        if whole:
            for t in range(1, steps):
                torch.where(ended[t - 1], found[t], found[t - 1], out=found[t])
        return found

    def cut(self) -> None:
        """Let go of the episodes that rows are in: they were broken off."""
        self._at.copy_(self._done)

    def forget(self) -> None:
        """Let go of ended episodes; those that go on move to the front."""
        left = self._at - self._done
        self._most = int(left.max())
        step = torch.arange(self._most, device=self._device).unsqueeze(1)
        place = ((step + self._done).clamp_(max=self._slots - 1) * self.rows + self._row).flatten()
        for column in self._columns.values():
            column[: self._most].flatten(0, 1).copy_(column.flatten(0, 1).index_select(0, place))
        self._at.copy_(left)
        self._done.zero_()
        self.episodes = 0

    def state(self) -> State:
        """The steps so far, and how far each row is."""
        # Beyond what a row has written lies what others left there: equal memories must have equal states.
        beyond = torch.arange(self._most, device=self._device).unsqueeze(1) >= self._at
        columns = {name: column[: self._most].clone() for name, column in self._columns.items()}
        for column in columns.values():
            column[beyond] = 0
        return {"columns": columns, "at": self._at, "done": self._done, "episodes": self.episodes}

    def restore(self, state: State) -> None:
        """Go on in the middle of episodes of as many rows."""
        at, done, given, episodes = (part(state, name, "memory") for name in ("at", "done", "columns", "episodes"))
        if not isinstance(given, Mapping) or set(given) != set(self._columns):
            raise TownletError(f"the saved memory does not hold {', '.join(self._columns)}", SAME)
        most = len(given["ended"])
        if most > self._slots:
            self._hold(most)
        for name, column in self._columns.items():
            copy_tensor(column[:most], given[name], name)
        copy_tensor(self._at, at, "at")
        copy_tensor(self._done, done, "done")
        if not bool(((self._done >= 0) & (self._done <= self._at) & (self._at <= most)).all()):
            raise TownletError("the saved memory has rows that are further than what it holds", SAME)
        self._most, self.episodes = most, int(episodes)
