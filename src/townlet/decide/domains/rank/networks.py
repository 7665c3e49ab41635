"""Networks that predict the reward of every action: a linear one over hashed pairs of features, and an MLP."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from townlet.decide.exploration import ExplorationSettings, explore
from townlet.nets.layers import MLP, ZeroTable, make_head

STATISTICS_BITS: Final = 12  # of the hash of a number, for its mean and deviation
STATISTICS_MEMORY: Final = 5000.0  # values over which they are averaged
LIMIT: Final = 4.0  # largest standardized value
MIN_DEVIATION: Final = 1e-6  # smaller standard deviations count as 0: the number says nothing
FOLDED: Final = 256  # inputs of the MLP for the context, and for each action
HIDDEN: Final = 64
OUTPUT_GAIN: Final = 0.01  # small initial weights of the last layer make initial policies nearly uniform


@cache
def _kernels() -> ModuleType:
    """The compiled loops; imported when first used, because loading Numba takes a second."""
    from townlet.decide.domains.rank import kernels

    return kernels


class PairScores(Function):
    """Scores of actions from pairs of features, and their gradient, without a dense vector of features."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, value: Tensor, bounds: Tensor, first: int) -> Tensor:
        ctx.save_for_backward(index, value, bounds)
        ctx.first, ctx.shape = first, table.shape
        scores = torch.zeros(len(index), bounds.shape[1] - 2, table.shape[1])
        arrays = index.numpy(), value.numpy(), bounds.numpy()
        _kernels().score(*arrays, first, table.detach().numpy(), scores.numpy())
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        arrays = [tensor.numpy() for tensor in ctx.saved_tensors]
        table = torch.zeros(ctx.shape)
        _kernels().add_gradient(*arrays, ctx.first, gradient.contiguous().numpy(), table.numpy())
        return table, None, None, None, None


class RewardNetwork(nn.Module, ABC):
    """Base class: standardizes numbers, predicts rewards, and explores."""

    count: Tensor
    mean: Tensor
    square: Tensor
    events: Tensor

    def __init__(self, heads: int, use_ids: bool, exploration: ExplorationSettings) -> None:
        super().__init__()
        self.heads, self.first, self.exploration = heads, 0 if use_ids else 1, exploration
        for name in ("count", "mean", "square"):  # of each number; `square` is the mean square deviation
            self.register_buffer(name, torch.zeros(1 << STATISTICS_BITS))
        self.register_buffer("events", torch.zeros(()))  # that this network may have learned from

    def standardize(self, index: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
        """The values [B, F], numbers with mean 0 and variance 1."""
        scale = torch.where(self.square > MIN_DEVIATION**2, self.square.clamp(min=MIN_DEVIATION**2).rsqrt(), 0.0)
        out = torch.zeros_like(value)
        arrays = (tensor.numpy() for tensor in (index, value, bounds, self.mean, scale))
        _kernels().standardize(*arrays, np.float32(LIMIT), out.numpy())
        return out

    def observe(self, index: Tensor, value: Tensor, bounds: Tensor, events: int) -> None:
        """Update the statistics of the numbers, before learning from these events; `events`: how many there were."""
        self.events.clamp_(min=events)
        statistics = (tensor.numpy() for tensor in (self.count, self.mean, self.square))
        arrays = (tensor.numpy() for tensor in (index, value, bounds))
        _kernels().observe(*arrays, np.float32(STATISTICS_MEMORY), *statistics)

    @abstractmethod
    def predict(self, index: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
        """Predicted rewards of all actions [B, K, H], by each head; the last one ranks."""

    def forward(self, index: Tensor, value: Tensor, bounds: Tensor, allowed: Tensor) -> Tensor:
        """Log-probabilities [B, K], −∞ for actions that may not be chosen."""
        rewards = self.predict(index, value, bounds)[..., -1]
        return explore(rewards, allowed, self.events, self.exploration).log()


class LinearRewards(RewardNetwork):
    """Linear in all pairs of a feature of the context and one of the action, and in both alone; 2^bits weights."""

    def __init__(self, bits: int, heads: int, use_ids: bool, exploration: ExplorationSettings) -> None:
        super().__init__(heads, use_ids, exploration)
        self.table = ZeroTable(1 << bits, heads)

    def predict(self, index: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
        standardized = self.standardize(index, value, bounds)
        scores: Tensor = PairScores.apply(self.table.weight, index, standardized, bounds, self.first)  # type: ignore[no-untyped-call]
        return scores


class MlpRewards(RewardNetwork):
    """MLP over the features of the context and of the action, each folded into 256 inputs by hashing with signs."""

    def __init__(self, heads: int, use_ids: bool, exploration: ExplorationSettings) -> None:
        super().__init__(heads, use_ids, exploration)
        self.body = MLP(2 * FOLDED, (HIDDEN,), "relu", layer_norm=False)
        self.out = make_head(HIDDEN, heads, OUTPUT_GAIN)

    def predict(self, index: Tensor, value: Tensor, bounds: Tensor) -> Tensor:
        rows, actions = len(index), bounds.shape[1] - 2
        context, each = torch.zeros(rows, FOLDED), torch.zeros(rows, actions, FOLDED)
        arrays = (tensor.numpy() for tensor in (index, self.standardize(index, value, bounds), bounds))
        _kernels().fold(*arrays, self.first, context.numpy(), each.numpy())
        used = int((bounds[:, 1:-1] < bounds[:, 2:]).sum(1).max()) if rows else 0
        both = torch.cat((context[:, None].expand(-1, used, -1), each[:, :used]), -1)
        scores = torch.zeros(rows, actions, self.heads)
        scores[:, :used] = self.out(self.body(both))
        return scores
