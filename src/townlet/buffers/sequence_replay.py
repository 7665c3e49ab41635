"""Replay buffer of sequences for recurrent agents (Hausknecht & Stone 2015), with burn-in (Kapturowski et al. 2019)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from townlet.buffers.storage import CircularStorage, VectorTransition, transition_columns
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State, get_part, restore_generator


class SequenceBatch(NamedTuple):
    """B sequences of L = burn_in + length steps, each within one episode.

    The sampled step is at position `burn_in`, after up to `burn_in` earlier steps of its episode. Both sides are padded
    with copies of the nearest step.
    """

    obs: Tensor  # [L + 1, B, D]; obs[k + 1] follows step k, and is the final observation where the episode ended
    mask: Tensor  # [L + 1, B, K], valid actions
    actions: Tensor  # [L, B] int64
    reward: Tensor  # [L, B], extrinsic + intrinsic_weight × intrinsic
    discount: Tensor  # [L, B], γ, or 0 where terminated
    valid: Tensor  # [L, B] bool, steps that count in the loss: neither burn-in nor padding
    start: Tensor  # [L + 1, B] bool, true at the first step of each sequence that is not padding
    hidden: Tensor  # [B, H] hidden state before that first step; H is 0 if it is not stored


class SequenceReplay:
    """The newest `capacity` transitions, stored as vector steps: capacity // rows slots, at least one sequence.

    Steps are stored in order, and episodes are delimited only when sequences are sampled: unfinished episodes are
    sampled like finished ones, and a long episode loses its oldest steps first.
    """

    def __init__(
        self,
        capacity: int,
        rows: int,
        layout: ObservationLayout,
        actions: int,
        *,
        length: int = 32,
        burn_in: int = 8,
        gamma: float,
        generator: torch.Generator,
        hidden: int = 0,
        device: str = "cpu",
    ) -> None:
        self.length, self.burn_in, self.gamma = length, burn_in, gamma
        self._generator, self._device = generator, device
        columns = {
            **transition_columns(layout.size, actions),
            "mask": ((actions,), torch.bool),
            "hidden": ((hidden,), torch.float32),
        }
        self._storage = CircularStorage(max(capacity // rows, burn_in + length), rows, columns, device, layout)
        self._positions = torch.arange(burn_in + length, device=device).unsqueeze(1)  # [L, 1]

    def __len__(self) -> int:
        return len(self._storage)

    def add(self, step: VectorTransition) -> None:
        self._storage.add(step)

    def truncate_unfinished_episodes(self) -> None:
        """Mark unfinished episodes as ended at the newest step, because the environment was reset."""
        self._storage.truncate_unfinished_episodes()

    def sample(self, batch_size: int, intrinsic_weight: float = 0.0) -> SequenceBatch:
        """Sample sequences around uniformly drawn steps."""
        if not len(self):
            raise TownletError("the replay buffer is empty", "collect transitions before sampling from it")
        sampled = torch.randint(len(self), (batch_size,), generator=self._generator, device=self._device)
        before, lengths = self._sequence_lengths(sampled)
        first = self.burn_in - before  # [B] position of the first step that is not padding
        nearest = self._positions.clamp(first, self.burn_in + lengths - 1)  # [L, B] padding repeats the nearest step
        index = self._index(sampled, nearest)

        flat = self._storage.flat
        reward = flat["reward"].take(index)
        if intrinsic_weight:
            reward.add_(flat["intrinsic"].take(index), alpha=intrinsic_weight)
        discount = torch.full_like(reward, self.gamma).masked_fill_(flat["terminated"].take(index), 0.0)
        start = torch.zeros((len(index) + 1, batch_size), dtype=torch.bool, device=self._device)
        start.scatter_(0, first.unsqueeze(0), True)
        return SequenceBatch(
            obs=self._with_next("obs", index, first),
            mask=self._with_next("mask", index, first),
            actions=flat["actions"].take(index),
            reward=reward,
            discount=discount,
            valid=(self._positions >= self.burn_in) & (self._positions < self.burn_in + lengths),
            start=start,
            hidden=flat["hidden"].index_select(0, index[0]),  # index[0] is the first step, which padding repeats
        )

    def _index(self, sampled: Tensor, position: Tensor) -> Tensor:
        """Flat indices [L, B] of the steps at `position` [L, B or 1] in the sequences of sampled steps [B]."""
        storage = self._storage
        return (sampled + (position - self.burn_in) * storage.rows) % (storage.slots * storage.rows)

    def _sequence_lengths(self, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """The number of steps before each sampled step, and the number from the sampled step on, each [B].

        Both are limited by the episode, the former also by the oldest stored slot, the latter by the newest.
        """
        storage = self._storage
        steps_to_newest = (storage.newest - sampled // storage.rows) % storage.slots
        steps_to_oldest = storage.filled - 1 - steps_to_newest
        ended = storage.flat["ended"].take(self._index(sampled, self._positions))
        # Before the sampled step: a step `offset` earlier is outside if the episode ended between the two.
        offset = self.burn_in - self._positions[: self.burn_in]
        outside = ended[: self.burn_in] | (offset > steps_to_oldest)
        before = outside.flip(0).logical_not_().cumprod(0).sum(0)
        # After it: a step `offset` later is outside if the episode ended before it.
        offset = self._positions[1 : self.length]
        outside = ended[self.burn_in : -1] | (offset > steps_to_newest)
        return before, 1 + outside.logical_not_().cumprod(0).sum(0)

    def _with_next(self, name: str, index: Tensor, first: Tensor) -> Tensor:
        """Column `name` [L + 1, B, …]: at the first step its own value, then each step's `next_` value."""
        steps, batch_size = index.shape
        own = self._storage.take(name, index[0])  # of the first step, which padding repeats
        values = own.new_empty((steps + 1, *own.shape))
        self._storage.take(f"next_{name}", index.flatten(), out=values[1:].flatten(0, 1))
        values[0] = own
        values[first, torch.arange(batch_size, device=own.device)] = own
        return values

    def state(self) -> State:
        return {"storage": self._storage.state(), "generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        self._storage.restore(get_part(state, "storage", "replay buffer"))
        restore_generator(self._generator, get_part(state, "generator", "replay buffer"), "the replay buffer")
