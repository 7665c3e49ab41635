"""Replay buffer of transitions (Lin 1992; Mnih et al. 2015) with n-step returns, sampled uniformly or by priority."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from townlet.buffers.prioritized import PrioritizedSampler, PrioritySpec
from townlet.buffers.storage import CircularStorage, VectorTransition, transition_columns
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import SAME_SETTINGS, State, get_part, restore_generator


class TransitionBatch(NamedTuple):
    """B sampled transitions over up to n steps: the TD target is reward + discount × value of next_obs."""

    obs: Tensor  # [B, D]
    actions: Tensor  # [B] int64
    reward: Tensor  # [B], n-step return: discounted sum of extrinsic + intrinsic_weight × intrinsic reward
    next_obs: Tensor  # [B, D], after the last of these steps; the final observation where the episode ended
    next_mask: Tensor  # [B, K], valid actions in next_obs
    discount: Tensor  # [B], γ^steps, 0 where terminated
    index: Tensor  # type: ignore[assignment]  # [B] int64, for `update_priorities`; shadows tuple.index
    importance: Tensor | None  # [B], importance weights; None without priorities: all are 1


class ReplayBuffer:
    """The newest `capacity` transitions, stored as vector steps: capacity // rows slots, at least n_step + 1.

    With several processes, each stores its own rows. All of them draw the same batch from the rows of all processes,
    and each returns the part that it stores. Autoreset steps are stored but never sampled.
    """

    def __init__(
        self,
        capacity: int,
        rows: int,
        layout: ObservationLayout,
        actions: int,
        *,
        n_step: int,
        gamma: float,
        generator: torch.Generator,
        priority: PrioritySpec | None = None,
        autoreset_steps: bool = False,
        device: str = "cpu",
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        if group.size > 1 and (priority or autoreset_steps):
            raise ValueError(
                "prioritized replay and environments with autoreset steps are not supported with several processes"
            )
        slots = max(capacity // (rows * group.size), n_step + 1)
        self.n_step, self._generator, self._device, self._group = n_step, generator, device, group
        columns = transition_columns(layout.size, actions, autoreset_steps)
        self._storage = CircularStorage(slots, rows, columns, device, layout)
        self._prioritized = PrioritizedSampler(priority, slots * rows, device) if priority else None
        self._discounts = torch.tensor([gamma**k for k in range(n_step + 1)], device=device)
        self._offsets = torch.arange(n_step, device=device).unsqueeze(1)  # [n, 1]
        self._later_discounts = self._discounts[1:-1].unsqueeze(1)  # [n − 1, 1], of the rewards after the first

    def __len__(self) -> int:
        """Number of transitions stored in this process."""
        return len(self._storage)

    def add(self, step: VectorTransition) -> None:
        storage = self._storage
        storage.add(step)
        if self._prioritized:
            start = storage.newest * storage.rows
            self._prioritized.add(start, start + storage.rows, step.autoreset)

    def truncate_unfinished_episodes(self) -> None:
        """Mark unfinished episodes as ended at the newest step, because the environment was reset."""
        self._storage.truncate_unfinished_episodes()

    def sample(self, batch_size: int, intrinsic_weight: float = 0.0, beta: float = 1.0) -> TransitionBatch:
        """Sample transitions with replacement, uniformly or by priority.

        `intrinsic_weight` is the current weight of the intrinsic reward, `beta` the exponent of the importance weights.
        """
        self._require_transitions()
        if self._prioritized:
            index, importance = self._prioritized.sample(batch_size, beta, self._generator)
            return self._gather(index, intrinsic_weight, importance)
        return self.sample_many(1, batch_size, intrinsic_weight)[0]

    def sample_many(
        self, count: int, batch_size: int, intrinsic_weight: float = 0.0
    ) -> tuple[TransitionBatch, list[int]]:
        """Sample `count` batches uniformly and return them concatenated, with the size of each in this process."""
        self._require_transitions()
        # One draw per batch, so that the random numbers are those of `count` calls of `sample`.
        index = torch.cat([self._uniform_indices(batch_size) for _ in range(count)])
        if self._group.size == 1:
            return self._gather(index, intrinsic_weight), [batch_size] * count
        rows = self._storage.rows
        sizes = self._group.is_local(index, rows).view(count, batch_size).sum(1).tolist()
        return self._gather(self._group.local_indices(index, rows), intrinsic_weight), sizes

    def _require_transitions(self) -> None:
        if not len(self):
            raise TownletError("the replay buffer is empty", "collect transitions before sampling from it")

    def _uniform_indices(self, batch_size: int) -> Tensor:
        """Indices [B] into the transitions of all processes, uniform over all except autoreset steps.

        Autoreset steps are rejected and redrawn. The loop terminates: a row's first step is never an autoreset step,
        and no two are adjacent, so every row has steps that can be sampled.
        """
        total = len(self) * self._group.size
        index = torch.randint(total, (batch_size,), generator=self._generator, device=self._device)
        if (autoreset := self._storage.flat.get("autoreset")) is None:
            return index
        # Only with one process (see __init__), so that all indices are indices of this storage.
        while len(rejected := autoreset.take(index).nonzero().squeeze(1)):
            redrawn = torch.randint(total, (len(rejected),), generator=self._generator, device=self._device)
            index.index_copy_(0, rejected, redrawn)
        return index

    def _gather(self, index: Tensor, intrinsic_weight: float, importance: Tensor | None = None) -> TransitionBatch:
        """The transitions at flat indices [B]."""
        storage = self._storage
        reward, last, discount = self._n_step_returns(index, intrinsic_weight)
        return TransitionBatch(
            obs=storage.take("obs", index),
            actions=storage.take("actions", index),
            reward=reward,
            next_obs=storage.take("next_obs", last),
            next_mask=storage.take("next_mask", last),
            discount=discount.masked_fill_(storage.take("terminated", last), 0.0),
            index=index,
            importance=importance,
        )

    def _n_step_returns(self, index: Tensor, intrinsic_weight: float) -> tuple[Tensor, Tensor, Tensor]:
        """n-step returns [B], the indices of their last steps [B], and γ^steps [B] (Sutton & Barto 2018, eq. 7.1).

        A return includes fewer than n rewards where the episode ends or the newest step is reached.
        """
        storage = self._storage
        if self.n_step == 1:
            return self._rewards(index, intrinsic_weight), index, self._discounts[1].expand(len(index)).clone()
        path = (index + self._offsets * storage.rows) % (storage.slots * storage.rows)  # [n, B]
        steps_to_newest = (storage.newest - index // storage.rows) % storage.slots
        is_last = storage.flat["ended"].take(path) | (self._offsets >= steps_to_newest)
        included = is_last[:-1].logical_not_().cumprod(0)  # [n − 1, B]: step k + 1 is part of the return
        reward = self._rewards(path, intrinsic_weight)
        reward[1:] *= included * self._later_discounts
        later_steps = included.sum(0)
        last_index = path.gather(0, later_steps.unsqueeze(0)).squeeze(0)
        return reward.sum(0), last_index, self._discounts.take(later_steps + 1)

    def _rewards(self, index: Tensor, intrinsic_weight: float) -> Tensor:
        """Extrinsic + weighted intrinsic reward; they are stored separately, so that the weight may change."""
        reward = self._storage.flat["reward"].take(index)
        if intrinsic_weight:
            reward.add_(self._storage.flat["intrinsic"].take(index), alpha=intrinsic_weight)
        return reward

    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """Set the priorities of transitions `index` [B] from their TD errors [B]; a no-op with uniform sampling."""
        if self._prioritized:
            self._prioritized.update(index, error)

    def state(self) -> State:
        priorities = self._prioritized.state() if self._prioritized else None
        return {"storage": self._storage.state(), "priorities": priorities, "generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        priorities = get_part(state, "priorities", "replay buffer")
        if (priorities is None) != (self._prioritized is None):
            saved, own = ("has", "does not") if self._prioritized is None else ("does not have", "does")
            raise TownletError(f"the saved replay buffer {saved} priorities, but this one {own}", SAME_SETTINGS)
        self._storage.restore(get_part(state, "storage", "replay buffer"))
        if self._prioritized:
            self._prioritized.restore(priorities)
        restore_generator(self._generator, get_part(state, "generator", "replay buffer"), "the replay buffer")
