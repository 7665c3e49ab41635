"""Sharding of rows over processes: each row belongs to one process, and sums equal those of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup, ProcessLost


class KnownPeers(ProcessGroup):
    """One process of a group, for which the sums of the others are given."""

    def __init__(self, rank: int, size: int, others: Tensor | None = None) -> None:
        self.rank, self.size, self._others = rank, size, others

    def all_reduce(self, tensor: Tensor) -> Tensor:
        assert self._others is not None
        return tensor.add_(self._others)


@given(size=st.integers(1, 5), rows=st.integers(1, 6), slots=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_index_is_local_to_one_process(size: int, rows: int, slots: int, seed: int) -> None:
    stored = torch.arange(slots * rows * size).view(slots, rows * size)  # of all processes, by slot and row
    drawn = torch.randint(stored.numel(), (20,), generator=torch.Generator().manual_seed(seed))
    found = []
    for rank in range(size):
        group = KnownPeers(rank, size)
        mine = stored[:, rank * rows : (rank + 1) * rows].flatten()  # the shard of this process
        found.append(mine[group.local_indices(drawn, rows)])
        assert torch.equal(found[-1], drawn[group.is_local(drawn, rows)])  # in the order in which they were drawn
    assert sorted(torch.cat(found).tolist()) == sorted(drawn.tolist())


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234"), True),
        (dist.DistBackendError("NCCL error: remote process exited or there was a network error"), True),
        (
            RuntimeError("[enforce fail at /gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4"),
            False,
        ),
        (RuntimeError("tensors must be contiguous"), False),
    ],
)
def test_only_network_errors_count_as_a_lost_process(error: RuntimeError, lost: bool) -> None:
    with pytest.raises(ProcessLost if lost else RuntimeError) as caught, ProcessGroup(0, 2)._collective():
        raise error
    assert (caught.value.__cause__ if lost else caught.value) is error
    if lost:
        assert "one of the 2 processes that train together is gone or cannot be reached" in str(caught.value)


@given(size=st.integers(1, 5), rows=st.integers(1, 6))
def test_global_draws_are_split_by_rows(size: int, rows: int) -> None:
    shape = KnownPeers(0, size).global_shape((rows, 3))
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    assert shape == (rows * size, 3)
    assert torch.equal(torch.cat([KnownPeers(rank, size).local_rows(drawn) for rank in range(size)]), drawn)


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30), st.integers(1, 29))
def test_moments_of_two_processes_equal_those_of_one(values: list[float], cut: int) -> None:
    whole = torch.tensor(values)
    mine, theirs = whole[:cut], whole[cut:].double()
    others = torch.tensor([len(theirs), theirs.sum(), theirs.square().sum()], dtype=torch.float64)
    group = KnownPeers(0, 2, torch.stack((others, 4 * others)))  # the other process has each value four times
    found, wanted = (
        group.std_mean([mine, mine]),
        SINGLE_PROCESS.std_mean([whole.double(), torch.cat((mine, *[theirs] * 4))]),
    )
    for (std, mean), (wanted_std, wanted_mean) in zip(found, wanted, strict=True):
        torch.testing.assert_close(mean.double(), wanted_mean.double(), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(std.double(), wanted_std.double(), atol=1e-3, rtol=1e-3)
