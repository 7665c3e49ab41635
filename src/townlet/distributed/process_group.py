"""The processes that train one run: each holds some of the rows, and all of them make the same updates.

Every process draws the random numbers for the rows of all processes and uses those of its own rows. Results therefore
do not depend on the number of processes, except for the order of floating-point sums.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from townlet.distributed import LEADER
from townlet.errors import TownletError

GLOO_SOURCE: Final = re.compile(r"^\[(?!enforce fail).*?\] ")  # prefix of gloo's I/O errors: its source file and line
TIMEOUT: Final = timedelta(hours=12)  # longer than any evaluation; gloo and torchrun notice a dead process at once


class ProcessLost(TownletError):
    """Another process of the group has ended or cannot be reached."""

    exit_code = 1


class ProcessGroup:
    """Rank and size of a group, with its collective operations; `local_size` processes are on this machine.

    Every process must call the same operations in the same order. Tensors on a GPU are reduced by NCCL; everything else
    uses gloo. A single process is a group of size 1, which cannot `broadcast`, `gather` or `all_gather`.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_size: int = 1) -> None:
        self.rank, self.size, self.local_size = rank, size, local_size
        self.advice = "see the output of the process that ended"  # what to do when a process is lost

    @classmethod
    def from_torchrun(cls) -> ProcessGroup:
        """Join the processes that `torchrun` started."""
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        group = cls(rank, size, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
        with group._collective():
            dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=TIMEOUT)
        return group

    @property
    def is_leader(self) -> bool:
        """Whether this process evaluates, logs and writes checkpoints."""
        return self.rank == LEADER

    def global_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor over the rows of all processes whose local shape is [N, …]."""
        return (shape[0] * self.size, *shape[1:])

    def local_rows(self, values: Tensor) -> Tensor:
        """The rows [N, …] of this process, given those of all processes."""
        if self.size == 1:
            return values
        rows = len(values) // self.size
        return values[self.rank * rows : (self.rank + 1) * rows]

    def local_indices(self, indices: Tensor, rows: int) -> Tensor:
        """The local ones of `indices` [B], as indices [b] into a buffer of this process's `rows` rows.

        An index is slot · R + row: a slot is a position in time, R is `rows` in the result, and all rows before.
        """
        if self.size == 1:
            return indices
        slot, row, local = self._split(indices, rows)
        return (slot * rows + row)[local]

    def is_local(self, indices: Tensor, rows: int) -> Tensor:
        """Whether each of `indices` [B], as in `local_indices`, belongs to a local row: bool [B]."""
        return self._split(indices, rows)[2]

    def _split(self, indices: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each index: its slot, its row relative to the first local one, and whether that is local; each [B]."""
        slot = indices // (rows * self.size)  # the only integer division, because it is slow
        row = indices - slot * (rows * self.size) - self.rank * rows
        return slot, row, (row >= 0) & (row < rows)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            with self._collective():
                dist.all_reduce(tensor)
        return tensor

    def mean(self, values: Tensor) -> Tensor:
        """The mean of the values of all processes, a scalar."""
        return values.mean() if self.size == 1 else self._moments([values])[0][0]

    def means(self, parts: Tensor) -> Tensor:
        """The mean [P] of each part of `parts` [P, S], over all processes."""
        if self.size == 1:
            return parts.mean(1)
        return torch.stack([mean for mean, _ in self._moments(list(parts))])

    def var(self, values: Tensor) -> Tensor:
        """The population variance of the values of all processes, a scalar."""
        return values.var(correction=0) if self.size == 1 else self._moments([values])[0][1]

    def std_mean(self, parts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Population standard deviation and mean of each part over all processes, scalars."""
        if self.size == 1:
            return [torch.std_mean(values, correction=0) for values in parts]
        return [(var.sqrt(), mean) for mean, var in self._moments(parts)]

    def _moments(self, parts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance of each part, by a single reduction: synchronizing takes longer than computing."""
        sums = []
        for values in parts:
            x = values.double()
            sums.append(torch.stack((x.new_tensor(x.numel()), x.sum(), x.square().sum())))
        count, total, squares = self.all_reduce(torch.stack(sums)).unbind(1)
        mean = total / count
        var = (squares / count - mean.square()).clamp_(min=0.0)
        return list(zip(mean.to(parts[0].dtype), var.to(parts[0].dtype), strict=True))

    def broadcast(self, message: Any = None) -> Any:
        """Send a JSON value from the leader to all others; every process returns it."""
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8) if self.is_leader else None
        size = torch.tensor([0 if data is None else len(data)])
        with self._collective():
            dist.broadcast(size, LEADER)
            data = torch.zeros(int(size), dtype=torch.uint8) if data is None else data
            dist.broadcast(data, LEADER)
        return json.loads(data.numpy().tobytes())

    def gather(self, rows: Tensor) -> list[Tensor] | None:
        """Tensors of the same shape from all processes, on the CPU of the leader; None elsewhere."""
        local = rows.detach().to("cpu").contiguous()
        parts = [torch.empty_like(local) for _ in range(self.size)] if self.is_leader else None
        with self._collective():
            dist.gather(local.view(torch.uint8), parts and [part.view(torch.uint8) for part in parts], LEADER)
        return parts

    def all_gather(self, table: Tensor) -> list[Tensor]:
        """The tables [n, C] of all processes, in every process; n may differ."""
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(table)
        max_count = int(self.all_reduce(counts).max())
        padded = torch.zeros((max_count, table.shape[1]), dtype=table.dtype)
        padded[: len(table)] = table
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        with self._collective():
            dist.all_gather(parts, padded)
        return [part[:count] for part, count in zip(parts, counts.tolist(), strict=True)]

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """Raise `ProcessLost` for errors of the network; others, such as a mismatch of shapes, stay as they are."""
        try:
            yield
        except RuntimeError as error:
            message = str(error).strip()
            if not isinstance(error, dist.DistError) and not GLOO_SOURCE.match(message):
                raise
            why = GLOO_SOURCE.sub("", message).partition("\n")[0].partition(". ")[0]
            what = f"one of the {self.size} processes that train together is gone or cannot be reached ({why})"
            raise ProcessLost(what, self.advice) from error

    def close(self) -> None:
        """Leave the group without waiting for the others."""
        if dist.is_initialized():
            dist.destroy_process_group()


SINGLE_PROCESS = ProcessGroup()
