"""Replay of windows of episodes for recurrent agents: time-major rings by row, cut at episode ends when drawn."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from townlet.contract.restore import part, restore_generator
from townlet.contract.state import State
from townlet.errors import TownletError
from townlet.memory.packing import Packing
from townlet.memory.storage import Storage, Transition, transition_columns


class Windows(NamedTuple):
    """B windows of L = burn_in + length steps, each of one episode.

    Position `burn_in` holds the step that was drawn. Before it come the earlier steps of its episode that are stored,
    at most burn_in; before those and after the last step stands padding, which repeats the nearest step.
    """

    obs: Tensor  # [L + 1, B, D]; obs[k + 1] is what step k led to, the final observation at an end
    mask: Tensor  # [L + 1, B, K]
    actions: Tensor  # [L, B] int64
    reward: Tensor  # [L, B], extrinsic + weight × intrinsic
    discount: Tensor  # [L, B], γ, 0 where terminated
    valid: Tensor  # [L, B] bool, counts in the loss: neither burn-in nor padding
    fresh: Tensor  # [L + 1, B] bool, true at the first step of each window: what comes before it is padding
    hidden: Tensor  # [B, H] what was remembered before that first step, where this is stored; else H is 0


class Sequences:
    """The newest `capacity` transitions, in whole steps of all rows: slots = capacity // rows, at least a window.

    Episodes are not kept as such: one that goes on for ever is drawn from like one that ended, however it ended, and
    what is older than the slots is forgotten step by step.
    """

    def __init__(
        self,
        capacity: int,
        rows: int,
        obs_size: int,
        actions: int,
        *,
        length: int = 32,
        burn_in: int = 8,
        gamma: float,
        generator: torch.Generator,
        hidden: int = 0,
        packing: Packing | None = None,
        device: str = "cpu",
    ) -> None:
        self.length, self.burn_in, self.gamma = length, burn_in, gamma
        self._generator, self._device = generator, device
        columns = {
            **transition_columns(obs_size, actions),
            "mask": ((actions,), torch.bool),
            "hidden": ((hidden,), torch.float32),
        }
        self._storage = Storage(max(capacity // rows, burn_in + length), rows, columns, device, packing)
        self._position = torch.arange(burn_in + length, device=device).unsqueeze(1)  # [L, 1]

    def __len__(self) -> int:
        """Transitions stored."""
        return len(self._storage)

    def add(self, step: Transition) -> None:
        """Store one step of all rows."""
        self._storage.add(step)

    def cut(self) -> None:
        """The episodes under way were broken off: nothing goes on beyond what was stored last."""
        self._storage.cut()

    def sample(self, batch: int, weight: float = 0.0) -> Windows:
        """Draw `batch` windows: each stored step is drawn alike, `weight` is that of the intrinsic reward now."""
        if not len(self):
            raise TownletError("nothing can be drawn from an empty memory", "let agents act before they learn")
        drawn = torch.randint(len(self), (batch,), generator=self._generator, device=self._device)
        before, lengths = self._reach(drawn)
        first = self.burn_in - before  # [B] position of the first real step
        real = self._position.clamp(first, self.burn_in + lengths - 1)  # [L, B] the nearest real position
        place = self._place(drawn, real)

        flat = self._storage.flat
        reward = flat["reward"].take(place)
        if weight:
            reward.add_(flat["intrinsic"].take(place), alpha=weight)
        discount = torch.full_like(reward, self.gamma).masked_fill_(flat["terminated"].take(place), 0.0)
        fresh = torch.zeros((len(place) + 1, batch), dtype=torch.bool, device=self._device)
        fresh.scatter_(0, first.unsqueeze(0), True)
        return Windows(
            obs=self._seen("obs", place, first),
            mask=self._seen("mask", place, first),
            actions=flat["actions"].take(place),
            reward=reward,
            discount=discount,
            valid=(self._position >= self.burn_in) & (self._position < self.burn_in + lengths),
            fresh=fresh,
            hidden=flat["hidden"].index_select(0, place[0]),  # padding repeats the first step, so place[0] is the first
        )

    def _place(self, drawn: Tensor, position: Tensor) -> Tensor:
        """Where in the flat storage the steps at `position` [L, B or 1] of windows drawn at [B] lie: [L, B]."""
        store = self._storage
        return (drawn + (position - self.burn_in) * store.rows) % (store.slots * store.rows)

    def _reach(self, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """How many burn-in steps the window has, and how many from the drawn step on, each [B].

        Both stop at the ends of the episode; the first at the oldest stored slot, the second at the newest.
        """
        store = self._storage
        until_newest = (store.newest - drawn // store.rows) % store.slots
        since_oldest = store.filled - 1 - until_newest
        ended = store.flat["ended"].take(self._place(drawn, self._position))
        # Seen from the drawn step: an end `back` steps earlier, or `ahead` − 1 steps later, closes the episode.
        back = self.burn_in - self._position[: self.burn_in]
        closed = ended[: self.burn_in] | (back > since_oldest)
        before = closed.flip(0).logical_not_().cumprod(0).sum(0)
        ahead = self._position[1 : self.length]
        closed = ended[self.burn_in : -1] | (ahead > until_newest)
        return before, 1 + closed.logical_not_().cumprod(0).sum(0)

    def _seen(self, name: str, place: Tensor, first: Tensor) -> Tensor:
        """What was seen at each position, [L + 1, B, …]: what the step before it led to, and at the first its own."""
        steps, batch = place.shape
        begin = self._storage.take(name, place[0])  # of the first step: padding before it repeats it
        seen = begin.new_empty((steps + 1, *begin.shape))
        self._storage.take(f"next_{name}", place.flatten(), out=seen[1:].flatten(0, 1))
        seen[0] = begin
        seen[first, torch.arange(batch, device=begin.device)] = begin
        return seen

    def state(self) -> State:
        """What is stored, and the random stream."""
        return {"storage": self._storage.state(), "generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on with the same steps and the same draws."""
        self._storage.restore(part(state, "storage", "memory"))
        restore_generator(self._generator, part(state, "generator", "memory"), "the memory")
