"""Minibatches of DQN sampled in blocks: a few large operations instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

import torch
from torch import Tensor

from townlet.agents.dqn import Dqn
from townlet.buffers.replay import Batch

BLOCK: Final = 2**20  # elements of observations sampled at once, at most: 4 MiB, and as much for the next ones


class MinibatchBlocks:
    """Samples the minibatches that share one target network at once, and evaluates it on all of them at once.

    The random numbers and therefore the minibatches are the same as those of single samples. Prioritized replay has
    no blocks: its priorities change with every gradient step. A soft target network also changes with every step, so
    it is evaluated for each minibatch.
    """

    def __init__(self, agent: Dqn) -> None:
        self._agent = agent

    def minibatches(self) -> Iterator[tuple[Batch, Tensor]]:
        """The minibatches of one update, each with Q⁻(s′, ·) [B, K]."""
        agent, s = self._agent, self._agent.settings
        left, most = s.updates, max(1, BLOCK // (s.batch_size * agent.obs_size))
        while left:
            count = min(most, left)
            if s.polyak is None:
                count = min(count, s.target_every - agent.counters.updates % s.target_every)
            block, sizes = agent.buffer.sample_many(count, s.batch_size, agent.intrinsic_weight.value)
            batches = self._split(block, sizes)
            if s.polyak is None:
                yield from zip(batches, torch.split(agent.target_q(block.next_obs), sizes), strict=True)
            else:
                yield from ((batch, agent.target_q(batch.next_obs)) for batch in batches)
            left -= count

    @staticmethod
    def _split(block: Batch, sizes: list[int]) -> Iterator[Batch]:
        columns = (repeat(None, len(sizes)) if column is None else torch.split(column, sizes) for column in block)
        return map(Batch._make, zip(*columns, strict=True))
