"""The ends of networks, and how all weights begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import linear

from townlet.nets.layers import require_weights, undrawn

# Keeps the size of features through layers that cut half of them off (Saxe et al. 2014, He et al. 2015).
HIDDEN_GAIN: Final = 2**0.5


class Head(nn.Linear):
    """A linear layer that begins with a gain of its own."""

    gain = 1.0


def head(features: int, outputs: int, scale: float) -> nn.Linear:
    """Linear outputs [..., outputs]: orthogonal with gain `scale` and zero bias once initialised.

    A small scale makes first policies nearly uniform.
    """
    layer = undrawn(Head, features, outputs)
    layer.gain = scale
    return layer


class Spread(nn.Module):
    """Means, and logarithms of deviations that are learned but the same everywhere: [..., F] → [..., 2 K]."""

    def __init__(self, features: int, outputs: int, scale: float, log_std: float) -> None:
        super().__init__()
        self.means = head(features, outputs, scale)
        self.log_std = nn.Parameter(torch.zeros(outputs))
        self.start = log_std

    def forward(self, features: Tensor) -> Tensor:
        means = self.means(features)
        return torch.cat((means, self.log_std.expand_as(means)), -1)


class Dueling(nn.Module):
    """Q = V + A − mean A (Wang et al. 2016): features [..., F] → [..., K]."""

    def __init__(self, features: int, outputs: int, scale: float = 1.0) -> None:
        super().__init__()
        self.streams = head(features, 1 + outputs, scale)  # V, then A
        # Q as a linear map of (V, A), [K, 1 + K]: one product in place of a split, a mean and two sums.
        centred = torch.eye(outputs) - 1 / outputs
        self.register_buffer("aggregation", torch.cat((torch.ones(outputs, 1), centred), 1), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        return linear(self.streams(features), self.get_buffer("aggregation"))


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights of a module anew, in the order of its parts, from the generator alone."""
    require_weights(module.parameters())
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            gain = part.gain if isinstance(part, Head) else HIDDEN_GAIN
            _draw(part.weight, partial(init.orthogonal_, gain=gain), generator)
            if part.bias is not None:
                init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            std = part.embedding_dim**-0.5  # vectors about as long as the one-hots they replace
            _draw(part.weight, partial(init.normal_, std=std), generator)
        elif isinstance(part, nn.LayerNorm | nn.GroupNorm):
            part.reset_parameters()
        elif isinstance(part, Spread):
            part.log_std.fill_(part.start)
        elif isinstance(part, nn.RNNBase):
            _recurrent(part, generator)
        elif next(part.parameters(recurse=False), None) is not None:
            raise TypeError(f"initialise does not know how weights of {type(part).__name__} begin")


def _recurrent(part: nn.RNNBase, generator: torch.Generator) -> None:
    """Every gate orthogonal. Forget gates begin open, so that the first things learned can be remembered."""
    for name, weights in part.named_parameters():
        if name.startswith("weight"):
            for gate in weights.chunk(len(weights) // part.hidden_size):
                _draw(gate, init.orthogonal_, generator)
        else:
            init.zeros_(weights)
            if isinstance(part, nn.LSTM) and name.startswith("bias_ih"):
                weights.chunk(4)[1].fill_(1.0)


def _draw(weights: Tensor, fill: Callable[..., Tensor], generator: torch.Generator) -> None:
    """Draw on the generator's device, so that weights begin alike on every device."""
    drawn = torch.empty(weights.shape, dtype=weights.dtype, device=generator.device)
    weights.copy_(fill(drawn, generator=generator))
