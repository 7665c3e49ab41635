"""The steps since the last update, in order: what policy-gradient agents learn from, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from townlet.contract.crew import SOLO, Crew
from townlet.contract.restore import copy_tensor, part
from townlet.contract.state import State
from townlet.memory.packing import Column, Packing
from townlet.memory.storage import FLAG, NUMBER, WHOLE, Storage


class Minibatch(NamedTuple):
    """Steps of a rollout, [B, …], or whole rows of it, [T, B, …]."""

    obs: Tensor  # [B, D]
    mask: Tensor  # [B, K]
    actions: Tensor  # [B] or [B, A]
    log_prob: Tensor  # [B], of the action when it was chosen
    value: Tensor  # [B], as estimated then
    advantage: Tensor  # [B]
    returns: Tensor  # [B]


class RowBatch(NamedTuple):
    """Whole rows of a rollout for a recurrent network."""

    steps: Minibatch  # [T, B, …]
    fresh: Tensor  # [T, B] bool, hidden is zeroed before this step
    hidden: Tensor  # [B, H] before the first step


class Share(NamedTuple):
    """What is here of a minibatch that all who train together share."""

    places: Tensor  # [b] int64
    of: int  # how many there are in all


class Rollout:
    """T steps of N rows: obs [T, N, D], mask [T, N, K], all others [T, N]; hidden [N, H] before the first step.

    With a packing, pictures that came from bytes are kept as bytes.

    A step is written in two halves, `acted` and `observed`, so that an agent need not keep the first half elsewhere.
    Where an environment has void steps they are kept in their places and never handed out.
    """

    def __init__(
        self,
        steps: int,
        rows: int,
        obs_size: int,
        choices: int,
        *,
        action: Column = WHOLE,
        hidden: int = 0,
        voids: bool = False,
        packing: Packing | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        crew: Crew = SOLO,
    ) -> None:
        self._crew = crew
        self._storage = Storage(
            steps,
            rows,
            {
                "obs": ((obs_size,), dtype),
                "mask": ((choices,), torch.bool),
                "actions": action,
                **dict.fromkeys(("log_prob", "value", "reward", "intrinsic", "bootstrap"), NUMBER),
                **dict.fromkeys(("terminated", "truncated", "fresh"), FLAG),
                **({"void": FLAG} if voids else {}),
            },
            device,
            packing,
        )
        columns = self._storage.columns
        self.mask, self.actions = columns["mask"], columns["actions"]
        self.log_prob, self.value = columns["log_prob"], columns["value"]
        self.reward, self.intrinsic, self.bootstrap = columns["reward"], columns["intrinsic"], columns["bootstrap"]
        self.terminated, self.truncated, self.fresh = columns["terminated"], columns["truncated"], columns["fresh"]
        self._void = columns.get("void")
        self.hidden = torch.zeros((rows, hidden), device=device)
        self._advantage, self._returns, self._trace = (torch.zeros_like(self.reward) for _ in range(3))

    def __len__(self) -> int:
        """Transitions stored."""
        return len(self._storage)

    @property
    def steps(self) -> int:
        """Complete steps of all rows; the index of the step that is written next."""
        return self._storage.filled

    @property
    def full(self) -> bool:
        """True when it is time to learn."""
        return self._storage.filled == self._storage.slots

    @property
    def slot(self) -> dict[str, Tensor]:
        """Where the next step is written: column → [N, …], for whoever writes it without `acted` and `observed`."""
        return {name: column[self._storage.head] for name, column in self._storage.columns.items()}

    def advance(self) -> None:
        """The step in the slot is complete."""
        self._storage.advance()

    def fill(self) -> None:
        """All steps are there: a recording has written them, which counts nothing."""
        self._storage.head, self._storage.filled = 0, self._storage.slots

    def part(self, first: int, last: int) -> Minibatch:
        """All steps of some rows [T, B, …], with the advantages computed last; nothing is copied."""
        stored = [self._storage.columns[name] for name in Minibatch._fields[:5]]
        return Minibatch(*(column[:, first:last] for column in (*stored, self._advantage, self._returns)))

    def clear(self, hidden: Tensor | None = None) -> None:
        """Begin a new rollout, with the hidden state [N, H] that its first step is taken in."""
        self._storage.clear()
        if hidden is not None:
            self.hidden.copy_(hidden)

    def acted(self, obs: Tensor, mask: Tensor, actions: Tensor, log_prob: Tensor, value: Tensor, fresh: Tensor) -> None:
        """The first half of a step: what was seen, and what was done, each [N, …]."""
        if self.full:
            raise IndexError("the rollout is full: clear() it before the next step")
        self._storage.put(obs=obs, mask=mask, actions=actions, log_prob=log_prob, value=value, fresh=fresh)

    def observed(
        self,
        reward: Tensor,
        intrinsic: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        bootstrap: Tensor,
        void: Tensor | None = None,
    ) -> None:
        """The second half: what came of it, each [N]. `bootstrap` is read where truncated."""
        self._storage.put(
            reward=reward, intrinsic=intrinsic, terminated=terminated, truncated=truncated, bootstrap=bootstrap
        )
        if void is not None:
            self._storage.put(void=void)
        self._storage.advance()

    def revalue(self, values: Callable[[Tensor], Tensor], at_once: int) -> None:
        """Write down the values of what was seen, so many steps at a time, where nobody asked for them on the way."""
        flat, every = self._storage.flat["value"][: len(self)], torch.arange(len(self), device=self.value.device)
        for some, places in zip(torch.split(flat, at_once), torch.split(every, at_once), strict=True):
            some.copy_(values(self._storage.take("obs", places).float()))

    def lived(self, column: Tensor) -> Tensor:
        """A column [T, N, …] as [R, …], without void steps; as it is where there cannot be any."""
        places = self._lived_places()
        return column if places is None else column[: self.steps].flatten(0, 1).index_select(0, places)

    def _lived_places(self) -> Tensor | None:
        """Places [R] int64 of the steps that are not void, ascending; None where all are."""
        return None if self._void is None else self._void[: self.steps].flatten().logical_not().nonzero().squeeze(1)

    def advantages(
        self, last_value: Tensor, gamma: float, gae_lambda: float, weight: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """GAE(λ) (Schulman et al. 2016, eq. 16) of reward + weight × intrinsic: advantage and returns, each [T, N].

        `last_value` [N] is the value of what follows the last step. The tensors are reused by the next call.
        """
        t = self.steps
        value, terminated, truncated = self.value[:t], self.terminated[:t], self.truncated[:t]
        advantage, returns, trace = self._advantage[:t], self._returns[:t], self._trace[:t]

        following = returns  # value of the next state; `returns` is free until the end
        following[:-1].copy_(value[1:])
        following[-1].copy_(last_value)
        torch.where(truncated, self.bootstrap[:t], following, out=following)
        following.masked_fill_(terminated, 0.0)

        torch.add(self.reward[:t], following, alpha=gamma, out=advantage)  # TD errors first
        if weight:
            advantage.add_(self.intrinsic[:t], alpha=weight)
        advantage.sub_(value)
        trace.fill_(gamma * gae_lambda).masked_fill_(terminated | truncated, 0.0)
        for step in range(t - 2, -1, -1):
            advantage[step].addcmul_(trace[step], advantage[step + 1])
        torch.add(advantage, value, out=returns)
        return advantage, returns

    def minibatches(self, size: int, generator: torch.Generator) -> Iterator[Share]:
        """Every transition of all once, shuffled: indices of `size` at most for `gather`, of nearly equal length."""
        places = self._lived_places()
        if places is None:
            return self._shuffled(len(self), size, generator)
        parts = self._shuffled(len(places), size, generator)
        return (Share(places.index_select(0, part.places), part.of) for part in parts)

    def row_batches(self, rows_per_batch: int, generator: torch.Generator) -> Iterator[Share]:
        """Every row of all once, shuffled: indices for `gather_rows`, of nearly equal length."""
        return self._shuffled(self._storage.rows, rows_per_batch, generator)

    def gather(self, index: Tensor) -> Minibatch:
        """The transitions at `index` [B], with the advantages computed last."""
        stored = (self._storage.take(name, index) for name in Minibatch._fields[:5])
        return Minibatch(*stored, *(t.flatten().index_select(0, index) for t in (self._advantage, self._returns)))

    def gather_rows(self, index: Tensor) -> RowBatch:
        """All stored steps of the rows at `index` [B], with the advantages computed last."""
        columns, t = self._storage.columns, self.steps
        stored = [columns[name] for name in Minibatch._fields[1:5]] + [self._advantage, self._returns, self.fresh]
        *steps, fresh = (column[:t].index_select(1, index) for column in stored)
        places = torch.arange(t, device=index.device).unsqueeze(1) * self._storage.rows + index
        obs = self._storage.take("obs", places.flatten()).view(*places.shape, -1)
        return RowBatch(Minibatch(obs, *steps), fresh, self.hidden.index_select(0, index))

    def draw_obs(self, share: float, generator: torch.Generator) -> Tensor:
        """Observations [B, D] of a share of the steps, at least one, drawn with replacement."""
        places = self._lived_places()
        lived = len(self) if places is None else len(places)
        drawn = torch.randint(lived, (max(1, round(share * lived)),), generator=generator, device=self.reward.device)
        return self._storage.take("obs", drawn if places is None else places.index_select(0, drawn)).float()

    def some_obs(self, most: int) -> Tensor:
        """Observations [B, D] of steps from beginning to end, about as many as asked for."""
        places = self._lived_places()
        places = torch.arange(len(self), device=self.reward.device) if places is None else places
        return self._storage.take("obs", places[:: max(1, len(places) // most)]).float()

    def _shuffled(self, count: int, size: int, generator: torch.Generator) -> Iterator[Share]:
        # Nearly equal parts: a last batch of two or three would have an advantage normalised over nothing.
        many, rows = count * self._crew.size, self._storage.rows
        order = torch.randperm(many, generator=generator, device=self.reward.device)
        return (Share(self._crew.places(part, rows), len(part)) for part in order.tensor_split(-(-many // size)))

    def state(self) -> State:
        """The steps so far, and the hidden state before them."""
        return {"storage": self._storage.state(), "hidden": self.hidden}

    def restore(self, state: State) -> None:
        """Go on in the middle of a rollout of the same shape."""
        copy_tensor(self.hidden, part(state, "hidden", "rollout"), "hidden")
        self._storage.restore(part(state, "storage", "rollout"))
