"""Minibatches of DQN sampled in blocks: a few large operations instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

import torch
from torch import Tensor

from townlet.agents.dqn import Dqn
from townlet.buffers.replay import TransitionBatch

BLOCK: Final = 2**20  # maximum number of observation elements sampled at once: 4 MiB, and the same again for next_obs


def blocked_minibatches(agent: Dqn) -> Iterator[tuple[TransitionBatch, Tensor]]:
    """Sample all minibatches up to the next target-network copy in one call, and evaluate that network on all of them.

    The random numbers and therefore the minibatches are the same as those of single samples. What changes with every
    gradient step is evaluated for each minibatch: the online network in double Q-learning, and a soft target network.
    Prioritized replay has no blocks, since its priorities change with every gradient step.
    """
    s = agent.settings
    remaining, max_count = s.gradient_steps, max(1, BLOCK // (s.batch_size * agent.obs_size))
    while remaining:
        count = min(max_count, remaining)
        if s.polyak is None:
            count = min(count, s.target_every - agent.counters.updates % s.target_every)
        block, sizes = agent.buffer.sample_many(count, s.batch_size, agent.intrinsic_weight.value)
        yield from zip(_split(block, sizes), _targets(agent, block, sizes), strict=True)
        remaining -= count


def _targets(agent: Dqn, block: TransitionBatch, sizes: list[int]) -> Iterator[Tensor]:
    """Targets of each minibatch, evaluated when it is its turn, or all at once where nothing changes in between."""
    if agent.settings.polyak is not None:
        for batch in _split(block, sizes):
            yield agent.targets(batch, agent.target_q(batch.next_obs))
        return
    values = agent.target_q(block.next_obs)
    if not agent.settings.double:
        yield from torch.split(agent.targets(block, values), sizes)
        return
    for batch, next_values in zip(_split(block, sizes), torch.split(values, sizes), strict=True):
        yield agent.targets(batch, next_values)


def _split(block: TransitionBatch, sizes: list[int]) -> Iterator[TransitionBatch]:
    columns = (repeat(None, len(sizes)) if column is None else torch.split(column, sizes) for column in block)
    return map(TransitionBatch._make, zip(*columns, strict=True))
