"""Replay of single transitions: a ring of vector steps, n-step returns summed when they are drawn."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from townlet.contract.crew import SOLO, Crew
from townlet.contract.restore import SAME, part, restore_generator
from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.memory.packing import Packing
from townlet.memory.priority import Priorities, PrioritySpec
from townlet.memory.storage import Storage, Transition, transition_columns


class Batch(NamedTuple):
    """B transitions over up to n steps: a target is reward + discount × value of next_obs."""

    obs: Tensor  # [B, D]
    actions: Tensor  # [B] int64
    reward: Tensor  # [B], discounted sum of extrinsic + weight × intrinsic over the steps taken
    next_obs: Tensor  # [B, D], after the last of them; the final observation where the episode ended
    next_mask: Tensor  # [B, K]
    discount: Tensor  # [B], γ^steps, 0 where terminated
    index: Tensor  # type: ignore[assignment]  # [B] int64, for `reprioritize`; hides a method nobody calls
    importance: Tensor  # [B], 1 without priorities


class Ring:
    """The newest `capacity` transitions, in whole steps of all rows: slots = capacity // rows, at least n_step + 1.

    With a crew each keeps those of its own rows, and a batch is drawn from those of all: here is what is here of it.
    Where an environment has void steps they take their places and are never drawn.
    """

    def __init__(
        self,
        capacity: int,
        rows: int,
        obs_size: int,
        actions: int,
        *,
        n_step: int,
        gamma: float,
        generator: torch.Generator,
        priority: PrioritySpec | None = None,
        voids: bool = False,
        packing: Packing | None = None,
        device: str = "cpu",
        crew: Crew = SOLO,
    ) -> None:
        slots = max(capacity // (rows * crew.size), n_step + 1)
        self.n_step, self._generator, self._device, self._crew = n_step, generator, device, crew
        self._storage = Storage(slots, rows, transition_columns(obs_size, actions, voids), device, packing)
        self._priorities = Priorities(priority, slots * rows, device) if priority else None
        self._powers = torch.tensor([gamma**k for k in range(n_step + 1)], device=device)
        self._ahead = torch.arange(n_step, device=device).unsqueeze(1)  # [n, 1]
        self._further = self._powers[1:-1].unsqueeze(1)  # [n − 1, 1]: the discounts after the first step

    def __len__(self) -> int:
        """Transitions stored."""
        return len(self._storage)

    def add(self, step: Transition) -> None:
        """Store one step of all rows."""
        store = self._storage
        store.add(step)
        if self._priorities:
            start = store.newest * store.rows
            self._priorities.written(start, start + store.rows, step.void)

    def cut(self) -> None:
        """The episodes under way were broken off: nothing goes on beyond what was stored last."""
        self._storage.cut()

    def sample(self, batch: int, weight: float = 0.0, beta: float = 1.0) -> Batch:
        """Draw `batch` transitions with replacement, uniformly or by priority.

        `weight` is that of the intrinsic reward now; `beta` that of the correction for priorities.
        """
        self._refuse_nothing()
        if self._priorities:
            index, importance = self._priorities.draw(batch, beta, self._generator)
            return self._at(index, weight, importance)
        return self.samples(1, batch, weight)[0]

    def _refuse_nothing(self) -> None:
        if not len(self):
            raise TownletError("nothing can be drawn from an empty memory", "let agents act before they learn")

    def _at(self, index: Tensor, weight: float, importance: Tensor | None = None) -> Batch:
        """What is stored at these places [B]."""
        store = self._storage
        reward, last, discount = self._returns(index, weight)
        return Batch(
            obs=store.take("obs", index),
            actions=store.take("actions", index),
            reward=reward,
            next_obs=store.take("next_obs", last),
            next_mask=store.take("next_mask", last),
            discount=discount.masked_fill_(store.take("terminated", last), 0.0),
            index=index,
            importance=torch.ones(len(index), device=self._device) if importance is None else importance,
        )

    def samples(self, many: int, batch: int, weight: float = 0.0) -> tuple[Batch, list[int]]:
        """So many batches at once, drawn uniformly, one after the other; how much of each there is here."""
        self._refuse_nothing()
        index = self._uniform(many * batch)
        if self._crew.size == 1:
            return self._at(index, weight), [batch] * many
        rows = self._storage.rows
        sizes = self._crew.here(index, rows).view(many, batch).sum(1).tolist()
        return self._at(self._crew.places(index, rows), weight), sizes

    def _uniform(self, batch: int) -> Tensor:
        """Places [B] among the rows of all, each transition as likely as another. Who meets a void step draws again.

        This ends: a row is never void twice in a row, nor in its first step, so half of what is stored was lived.
        """
        many = len(self) * self._crew.size
        index = torch.randint(many, (batch,), generator=self._generator, device=self._device)
        if (void := self._storage.flat.get("void")) is None:
            return index
        while len(again := void.take(index).nonzero().squeeze(1)):
            more = torch.randint(len(self), (len(again),), generator=self._generator, device=self._device)
            index.index_copy_(0, again, more)
        return index

    def reprioritize(self, index: Tensor, error: Tensor) -> None:
        """The errors [B] of the transitions at `index` [B] of the last batch; without priorities nothing happens."""
        if self._priorities:
            self._priorities.update(index, error)

    def _returns(self, index: Tensor, weight: float) -> tuple[Tensor, Tensor, Tensor]:
        """From places [B]: the n-step reward [B], the place of the last step in it [B], and γ^steps [B]."""
        store = self._storage
        if self.n_step == 1:
            return self._reward(index, weight), index, self._powers[1].repeat(len(index))
        path = (index + self._ahead * store.rows) % (store.slots * store.rows)  # [n, B]
        until_newest = (store.newest - index // store.rows) % store.slots
        stops = store.flat["ended"].take(path) | (self._ahead >= until_newest)
        goes_on = stops[:-1].logical_not_().cumprod(0)  # [n − 1, B]: step k + 1 is part of the return
        reward = self._reward(path, weight)
        reward[1:] *= goes_on * self._further
        further = goes_on.sum(0)
        last = path.gather(0, further.unsqueeze(0)).squeeze(0)
        return reward.sum(0), last, self._powers.take(further + 1)

    def _reward(self, place: Tensor, weight: float) -> Tensor:
        """Extrinsic + weight × intrinsic. The two are stored apart, so that this is the only place of the weight."""
        reward = self._storage.flat["reward"].take(place)
        return reward.add_(self._storage.flat["intrinsic"].take(place), alpha=weight) if weight else reward

    def state(self) -> State:
        """What is stored, the priorities, and the random stream."""
        priorities = self._priorities.state() if self._priorities else None
        return {
            "storage": self._storage.state(),
            "priorities": priorities,
            "generator": self._generator.get_state(),
        }

    def restore(self, state: State) -> None:
        """Go on with the same transitions and the same draws."""
        priorities = part(state, "priorities", "memory")
        if (priorities is None) != (self._priorities is None):
            kinds = ("with", "without") if self._priorities is None else ("without", "with")
            raise TownletError(f"the saved memory is one {kinds[0]} priorities and this one {kinds[1]}", SAME)
        self._storage.restore(part(state, "storage", "memory"))
        if self._priorities:
            self._priorities.restore(priorities)
        restore_generator(self._generator, part(state, "generator", "memory"), "the memory")
