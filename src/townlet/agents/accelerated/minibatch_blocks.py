"""Sampling of DQN's minibatches in blocks: a few large operations instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

import torch
from torch import Tensor

from townlet.agents.dqn import Dqn
from townlet.buffers.replay import TransitionBatch

MAX_BLOCK_ELEMENTS: Final = 2**20  # of observations in a block: 4 MiB as float32, and as much for next_obs


def blocked_minibatches(agent: Dqn) -> Iterator[tuple[TransitionBatch, Tensor]]:
    """Yield the minibatches of an update with their targets [B].

    Minibatches are sampled in blocks, each of which ends before or at the next copy to the target network. They equal
    minibatches sampled one at a time, because the same random numbers are drawn. The caller must make one gradient
    step, counted in `agent.counters.updates`, per minibatch. Not for prioritized replay, whose priorities change with
    every gradient step.
    """
    s = agent.settings
    remaining, max_count = s.gradient_steps, max(1, MAX_BLOCK_ELEMENTS // (s.batch_size * agent.obs_size))
    while remaining:
        count = min(max_count, remaining)
        if s.polyak is None:
            count = min(count, s.target_every - agent.counters.updates % s.target_every)
        # With several processes, `sizes` are those of this process's parts of the minibatches.
        block, sizes = agent.buffer.sample_many(count, s.batch_size, agent.intrinsic_weight.value)
        yield from zip(_split(block, sizes), _targets(agent, block, sizes), strict=True)
        remaining -= count


def _targets(agent: Dqn, block: TransitionBatch, sizes: list[int]) -> Iterator[Tensor]:
    """Yield the targets of each minibatch, computed with the weights that the networks have by then."""
    if agent.settings.polyak is not None:  # the target network changes with every gradient step
        for batch in _split(block, sizes):
            yield agent.targets(batch, agent.target_q(batch.next_obs))
        return
    values = agent.target_q(block.next_obs)
    if not agent.settings.double:  # the online network, which changes with every gradient step, is not needed
        yield from torch.split(agent.targets(block, values), sizes)
        return
    for batch, next_values in zip(_split(block, sizes), torch.split(values, sizes), strict=True):
        yield agent.targets(batch, next_values)


def _split(block: TransitionBatch, sizes: list[int]) -> Iterator[TransitionBatch]:
    """The minibatches of a block; a column that is None in the block is None in each of them."""
    columns = (repeat(None, len(sizes)) if column is None else torch.split(column, sizes) for column in block)
    return map(TransitionBatch._make, zip(*columns, strict=True))
