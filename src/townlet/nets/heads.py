"""Output layers of networks, and the initialization of all weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import linear

from townlet.nets.layers import require_memory, uninitialized

# Keeps the variance of features through relu layers (Saxe et al. 2014, He et al. 2015).
HIDDEN_GAIN: Final = 2**0.5
MATRIX_OUTPUTS: Final = 32


class Head(nn.Linear):
    """A linear layer that is initialized with its own gain."""

    gain = 1.0


def make_head(features: int, outputs: int, gain: float) -> nn.Linear:
    """A linear output layer: [..., features] → [..., outputs]; orthogonal with this gain, and with zero bias.

    A small gain makes the initial policy nearly uniform.
    """
    layer = uninitialized(Head, features, outputs)
    layer.gain = gain
    return layer


class GaussianHead(nn.Module):
    """Means, then log standard deviations that are learned but do not depend on the input: [..., F] → [..., 2 K]."""

    def __init__(self, features: int, outputs: int, gain: float, log_std: float) -> None:
        super().__init__()
        self.means = make_head(features, outputs, gain)
        self.log_std = nn.Parameter(torch.zeros(outputs))
        self.initial_log_std = log_std

    def forward(self, features: Tensor) -> Tensor:
        means = self.means(features)
        return torch.cat((means, self.log_std.expand_as(means)), -1)


class DuelingHead(nn.Module):
    """Q = V + A − mean A (Wang et al. 2016): features [..., F] → [..., K]."""

    def __init__(self, features: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        self.streams = make_head(features, 1 + outputs, gain)  # V, then A
        # For few actions Q is a product of (V, A) with a matrix [K, 1 + K], which replaces four small operations.
        centered = torch.eye(outputs) - 1 / outputs if outputs <= MATRIX_OUTPUTS else None
        matrix = None if centered is None else torch.cat((torch.ones(outputs, 1), centered), 1)
        self.register_buffer("aggregation", matrix, persistent=False)
        self._outputs = outputs

    def forward(self, features: Tensor) -> Tensor:
        streams: Tensor = self.streams(features)
        if self._outputs <= MATRIX_OUTPUTS:
            return linear(streams, self.get_buffer("aggregation"))
        value, advantage = torch.split(streams, [1, self._outputs], -1)
        return value + advantage - advantage.mean(-1, keepdim=True)


@torch.no_grad()
def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights of a module from the generator alone, in the order of its submodules."""
    require_memory(module.parameters())
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            gain = part.gain if isinstance(part, Head) else HIDDEN_GAIN
            _draw(part.weight, partial(init.orthogonal_, gain=gain), generator)
            if part.bias is not None:
                init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            std = part.embedding_dim**-0.5  # vectors of about the length of a one-hot
            _draw(part.weight, partial(init.normal_, std=std), generator)
        elif isinstance(part, nn.LayerNorm | nn.GroupNorm):
            part.reset_parameters()
        elif isinstance(part, GaussianHead):
            part.log_std.fill_(part.initial_log_std)
        elif isinstance(part, nn.RNNBase):
            _initialize_recurrent(part, generator)
        elif next(part.parameters(recurse=False), None) is not None:
            raise TypeError(f"initialize does not support {type(part).__name__}")


def _initialize_recurrent(part: nn.RNNBase, generator: torch.Generator) -> None:
    """Every gate orthogonal; biases 0, but 1 for the forget gates of an LSTM, which start open."""
    for name, weights in part.named_parameters():
        if name.startswith("weight"):
            for gate in weights.chunk(len(weights) // part.hidden_size):
                _draw(gate, init.orthogonal_, generator)
        else:
            init.zeros_(weights)
            if isinstance(part, nn.LSTM) and name.startswith("bias_ih"):
                weights.chunk(4)[1].fill_(1.0)


def _draw(weights: Tensor, fill: Callable[..., Tensor], generator: torch.Generator) -> None:
    """Draw on the generator's device, so that initial weights are the same on every device."""
    drawn = torch.empty(weights.shape, dtype=weights.dtype, device=generator.device)
    weights.copy_(fill(drawn, generator=generator))
