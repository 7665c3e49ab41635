"""Rollout buffer: the last T steps of all rows, in order, for on-policy updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from townlet.buffers.storage import BOOL, FLOAT, INT, CircularStorage, ColumnSpec
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State, copy_tensor, get_part
from townlet.interfaces.vec_env import FinalObs, Step

EPSILON: Final = 1e-8  # keeps normalized advantages finite where all are equal
MIN_ROWS: Final = 64  # rows in a microbatch of a recurrent network; fewer make its matrix products inefficient


class Minibatch(NamedTuple):
    """Steps of a rollout [B, …]; for a recurrent network whole rows [T, B, …] with their hidden state."""

    obs: Tensor  # [B, D]
    mask: Tensor  # [B, K]
    actions: Tensor  # [B] or [B, A]
    log_prob: Tensor  # [B], log-probability of the action when it was sampled
    value: Tensor  # [B], state value estimated then
    advantage: Tensor  # [B]
    returns: Tensor  # [B]
    hidden: Tensor  # [B, H] before the first step
    episode_start: Tensor | None = None  # [T, B] bool, true where the hidden state is reset before the step


STORED_FIELDS: Final = Minibatch._fields[:5]  # columns of the storage; the other fields are computed


class Microbatch(NamedTuple):
    """A part of a minibatch that passes through the network at once."""

    steps: Minibatch
    fraction: float  # of the minibatch, over all processes


class BatchShard(NamedTuple):
    """The part of a minibatch that belongs to this process."""

    indices: Tensor  # [b] int64
    total: int  # number of indices over all processes


class RolloutBuffer:
    """T steps of N rows: obs [T, N, D], mask [T, N, K], actions [T, N] or [T, N, A], all others [T, N].

    `hidden` [N, H] is the hidden state before the first step. A step is written in two halves, `add_action` and
    `add_outcome`. Autoreset steps are stored but never returned.
    """

    def __init__(
        self,
        steps: int,
        rows: int,
        layout: ObservationLayout,
        choices: int,
        *,
        action: ColumnSpec = INT,
        hidden: int = 0,
        autoreset_steps: bool = False,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self._group, self._steps_per_row = group, steps
        self._storage = CircularStorage(
            steps,
            rows,
            {
                "obs": ((layout.size,), dtype),
                "mask": ((choices,), torch.bool),
                "actions": action,
                **dict.fromkeys(("log_prob", "value", "reward", "intrinsic", "bootstrap"), FLOAT),
                **dict.fromkeys(("terminated", "truncated", "episode_start"), BOOL),
                **({"autoreset": BOOL} if autoreset_steps else {}),
            },
            device,
            layout,
        )
        columns = self._storage.columns
        self.mask, self.actions = columns["mask"], columns["actions"]
        self.log_prob, self.value = columns["log_prob"], columns["value"]
        self.reward, self.intrinsic, self.bootstrap = columns["reward"], columns["intrinsic"], columns["bootstrap"]
        self.terminated, self.truncated = columns["terminated"], columns["truncated"]
        self.episode_start = columns["episode_start"]
        self._autoreset = columns.get("autoreset")
        self.hidden = torch.zeros((rows, hidden), device=device)
        self._advantage, self._returns, self._decay = (torch.zeros_like(self.reward) for _ in range(3))
        self._bootstrap = torch.zeros(rows, device=device)  # reused by `add_outcome`

    def __len__(self) -> int:
        return len(self._storage)

    @property
    def steps(self) -> int:
        """Number of complete steps, which is the index of the step that is written next."""
        return self._storage.filled

    @property
    def full(self) -> bool:
        return self._storage.filled == self._storage.slots

    @property
    def slot(self) -> dict[str, Tensor]:
        """Storage of the next step, column → [N, …], for writers that bypass `add_action` and `add_outcome`."""
        return {name: column[self._storage.head] for name, column in self._storage.columns.items()}

    def advance(self) -> None:
        """Complete the step in `slot`."""
        self._storage.advance()

    def mark_full(self) -> None:
        """Mark all steps as complete; a replayed CUDA graph has written them."""
        self._storage.head, self._storage.filled = 0, self._storage.slots

    def row_slice(self, start: int, stop: int) -> Minibatch:
        """All steps of rows start … stop − 1 as views [T, B, …], with the latest advantages."""
        stored = [self._storage.columns[name] for name in STORED_FIELDS]
        views = (column[:, start:stop] for column in (*stored, self._advantage, self._returns))
        return Minibatch._make((*views, self.hidden[start:stop], None))

    def clear(self, hidden: Tensor | None = None) -> None:
        """Begin a new rollout; `hidden` [N, H] is the hidden state before its first step."""
        self._storage.clear()
        if hidden is not None:
            self.hidden.copy_(hidden)

    def add_action(
        self, obs: Tensor, mask: Tensor, actions: Tensor, log_prob: Tensor, value: Tensor, episode_start: Tensor
    ) -> None:
        """Store the first half of a step: observation and action, each [N, …]."""
        if self.full:
            raise IndexError("the rollout is full: clear() it before the next step")
        self._storage.write(
            obs=obs, mask=mask, actions=actions, log_prob=log_prob, value=value, episode_start=episode_start
        )

    def add_outcome(
        self, step: Step, ended: FinalObs, final_value: Callable[[Tensor], Tensor], *,
        intrinsic: Tensor, reward_scale: float = 1.0,
    ) -> None:  # fmt: skip
        """Store the second half of a step.

        A truncated episode bootstraps from the value of its final observation, a terminated one from 0:
        `final_value` maps indices [k] into `ended` to values [k].
        """
        bootstrap = self._bootstrap.zero_()
        truncated = step.truncated.index_select(0, ended.rows).nonzero().squeeze(1)
        if len(truncated):
            bootstrap.index_copy_(0, ended.rows.index_select(0, truncated), final_value(truncated))
        self._storage.write(
            reward=step.reward * reward_scale, intrinsic=intrinsic, terminated=step.terminated,
            truncated=step.truncated, bootstrap=bootstrap,
        )  # fmt: skip
        if step.autoreset_step is not None:
            self._storage.write(autoreset=step.autoreset_step)
        self._storage.advance()

    def compute_values(self, critic: Callable[[Tensor], Tensor], batch_size: int) -> None:
        """Compute the values of all stored observations, for a critic that is not evaluated while acting."""
        flat, index = self._storage.flat["value"][: len(self)], torch.arange(len(self), device=self.value.device)
        for chunk, chunk_index in zip(torch.split(flat, batch_size), torch.split(index, batch_size), strict=True):
            chunk.copy_(critic(self._storage.take("obs", chunk_index).float()))

    def without_autoreset_steps(self, column: Tensor) -> Tensor:
        """A column [T, N, …] without its autoreset steps: [R, …]; unchanged if the environment has none."""
        sampleable = self._sampleable_index()
        return column if sampleable is None else column[: self.steps].flatten(0, 1).index_select(0, sampleable)

    def _sampleable_index(self) -> Tensor | None:
        """Flat indices [R] int64 of all steps except autoreset steps; None if the environment has none."""
        if self._autoreset is None:
            return None
        return self._autoreset[: self.steps].flatten().logical_not().nonzero().squeeze(1)

    def advantages(
        self, last_value: Tensor, gamma: float, gae_lambda: float, intrinsic_weight: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Advantages and returns, each [T, N]: GAE(λ) (Schulman et al. 2016, eq. 16) of the total reward.

        The total is reward + intrinsic_weight × intrinsic. `last_value` [N] is the value of the observation after the
        last step. The next call overwrites the returned tensors.
        """
        t = self.steps
        value, terminated, truncated = self.value[:t], self.terminated[:t], self.truncated[:t]
        advantage, returns, decay = self._advantage[:t], self._returns[:t], self._decay[:t]

        next_value = returns  # the memory of `returns` is not needed until the end
        next_value[:-1].copy_(value[1:])
        next_value[-1].copy_(last_value)
        torch.where(truncated, self.bootstrap[:t], next_value, out=next_value)
        next_value.masked_fill_(terminated, 0.0)

        torch.add(self.reward[:t], next_value, alpha=gamma, out=advantage)  # TD errors first
        if intrinsic_weight:
            advantage.add_(self.intrinsic[:t], alpha=intrinsic_weight)
        advantage.sub_(value)
        decay.fill_(gamma * gae_lambda).masked_fill_(terminated | truncated, 0.0)
        for step in range(t - 2, -1, -1):
            advantage[step].addcmul_(decay[step], advantage[step + 1])
        torch.add(advantage, value, out=returns)
        return advantage, returns

    def minibatches(
        self, size: int, generator: torch.Generator, *, microbatch_size: int = 1 << 30, normalize: bool = False
    ) -> Iterator[Iterator[Microbatch]]:
        """One epoch: every step once, in shuffled minibatches of about `size` steps, each split into microbatches.

        With `normalize` the advantages of each minibatch have mean 0 and standard deviation 1. For a recurrent network
        minibatches consist of whole rows. Steps of other processes are left out.
        """
        shards, recurrent = self.shards(size, generator), self.recurrent
        if recurrent:  # shards consist of rows
            microbatch_size = max(MIN_ROWS, microbatch_size // self._steps_per_row)
        scales: Sequence[tuple[Tensor, Tensor] | None] = [None] * len(shards)
        if normalize:
            advantage, axis = (self._advantage[: self.steps], 1) if recurrent else (self._advantage.view(-1), 0)
            scales = self._group.std_mean([advantage.index_select(axis, shard.indices) for shard in shards])
        for shard, scale in zip(shards, scales, strict=True):
            yield self._microbatches(shard, scale, microbatch_size)

    def shards(self, size: int, generator: torch.Generator) -> list[BatchShard]:
        """Shuffled minibatches: indices of local steps without autoreset steps, or of rows for a recurrent network."""
        if self.recurrent:
            return list(self._shuffled(self._storage.rows, max(1, round(size / self._steps_per_row)), generator))
        sampleable = self._sampleable_index()
        if sampleable is None:
            return list(self._shuffled(len(self), size, generator))
        parts = self._shuffled(len(sampleable), size, generator)
        return [BatchShard(sampleable.index_select(0, part.indices), part.total) for part in parts]

    @property
    def recurrent(self) -> bool:
        """Whether minibatches are whole rows with their hidden states."""
        return self.hidden.shape[1] > 0

    def _microbatches(self, shard: BatchShard, scale: tuple[Tensor, Tensor] | None, size: int) -> Iterator[Microbatch]:
        for index in torch.split(shard.indices, size) if len(shard.indices) else ():
            batch = self.gather_rows(index) if self.recurrent else self.gather(index)
            if scale:
                std, mean = scale
                batch = batch._replace(advantage=(batch.advantage - mean) / (std + EPSILON))
            yield Microbatch(batch, len(index) / shard.total)

    def gather(self, index: Tensor) -> Minibatch:
        """The steps at flat indices [B], with the latest advantages."""
        stored = (self._storage.take(name, index) for name in STORED_FIELDS)
        computed = (column.flatten().index_select(0, index) for column in (self._advantage, self._returns))
        return Minibatch._make((*stored, *computed, self.hidden.new_zeros(len(index), 0), None))

    def gather_rows(self, index: Tensor) -> Minibatch:
        """All steps of the rows at `index` [B], with the latest advantages."""
        t, stored = self.steps, [self._storage.columns[name] for name in STORED_FIELDS[1:]]
        columns = (*stored, self._advantage, self._returns, self.episode_start)
        *steps, episode_start = (column[:t].index_select(1, index) for column in columns)
        flat_index = torch.arange(t, device=index.device).unsqueeze(1) * self._storage.rows + index  # [T, B]
        obs = self._storage.take("obs", flat_index.flatten()).view(*flat_index.shape, -1)
        return Minibatch._make((obs, *steps, self.hidden.index_select(0, index), episode_start))

    def sample_obs(self, fraction: float, generator: torch.Generator) -> Tensor:
        """Observations [B, D] of a fraction of the steps, at least one, drawn with replacement."""
        sampleable = self._sampleable_index()
        count = len(self) if sampleable is None else len(sampleable)
        drawn = torch.randint(count, (max(1, round(fraction * count)),), generator=generator, device=self.reward.device)
        return self._storage.take("obs", drawn if sampleable is None else sampleable.index_select(0, drawn)).float()

    def evenly_spaced_obs(self, count: int) -> Tensor:
        """About `count` observations [B, D], evenly spaced over the rollout."""
        sampleable = self._sampleable_index()
        index = torch.arange(len(self), device=self.reward.device) if sampleable is None else sampleable
        return self._storage.take("obs", index[:: max(1, len(index) // count)]).float()

    def _shuffled(self, count: int, size: int, generator: torch.Generator) -> Iterator[BatchShard]:
        """Shuffled indices of `count` steps or rows per process, in parts of at most `size`."""
        # Nearly equal parts: a last minibatch of two or three steps would have meaningless normalized advantages.
        total, rows = count * self._group.size, self._storage.rows
        order = torch.randperm(total, generator=generator, device=self.reward.device)
        return (
            BatchShard(self._group.local_indices(indices, rows), len(indices))
            for indices in order.tensor_split(-(-total // size))
        )

    def state(self) -> State:
        return {"storage": self._storage.state(), "hidden": self.hidden}

    def restore(self, state: State) -> None:
        copy_tensor(self.hidden, get_part(state, "hidden", "rollout"), "hidden")
        self._storage.restore(get_part(state, "storage", "rollout"))
