"""Building blocks of all networks: the MLP, encoders of observation blocks, heads, weight initialization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import linear

from townlet.allocation import require
from townlet.errors import TownletError
from townlet.interfaces.layout import Block
from townlet.nets.activations import activate_, activation_module
from townlet.nets.spec import Activation, BaseNetworkSpec

M = TypeVar("M", bound=nn.Module)

MAX_VALUES: Final = 1 << 20  # maximum number of values of an index block; each has its own embedding
# Keeps the variance of features through relu layers (Saxe et al. 2014, He et al. 2015).
HIDDEN_GAIN: Final = 2**0.5
MATRIX_OUTPUTS: Final = 32  # maximum number of actions for which a dueling head uses a matrix product


def require_memory(weights: Iterable[Tensor]) -> None:
    """Check that there is memory for these weights, their gradients and the two moments of an optimizer."""
    size = 4 * sum(weight.numel() * weight.element_size() for weight in weights)
    what = f"a network of {size // 16:,} weights, with gradients and moments of the optimizer,"
    require(size, what, "lower network.hidden or other sizes of the network")


def uninitialized(kind: type[M], *args: int, **options: bool | str | int | Tensor) -> M:
    """A torch module whose weights are 0 until `initialize` draws them, so that global random state is not used."""
    module = kind(*args, device="meta", **options)
    for part in module.modules():
        require_memory(part.parameters(recurse=False))
        for name, weights in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(torch.zeros(weights.shape)))  # `to_empty` imports all of sympy first
    return module


class MLP(nn.Sequential):
    """Linear layers, each with an activation and optional layer normalization: [..., inputs] → [..., features]."""

    def __init__(self, inputs: int, widths: Sequence[int], activation: Activation, layer_norm: bool) -> None:
        layers: list[nn.Module] = []
        for before, width in zip((inputs, *widths), widths, strict=False):
            norm = [nn.LayerNorm(width)] if layer_norm else []
            layers += [uninitialized(nn.Linear, before, width), *norm, activation_module(activation, inplace=True)]
        super().__init__(*layers)
        self.features = widths[-1] if widths else inputs
        # Set if there are only linear layers and an activation that works in place.
        self.inplace_activation = None if layer_norm or activation == "silu" else activation
        self._last = tuple(layers[-1:])  # in a tuple, so that torch does not register it twice

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inputs] → [..., features], by functional calls: calling a module takes as long as a small layer."""
        hooked = self._last and self._last[0]._forward_hooks  # hooks run only when modules are called
        if self.inplace_activation is None or hooked:
            return super().forward(x)  # type: ignore[no-any-return, no-untyped-call]
        for layer in self:
            if isinstance(layer, nn.Linear):
                x = activate_(linear(x, layer.weight, layer.bias), self.inplace_activation)
        return x


class Slice(nn.Module):
    """A range of the observation, unchanged: obs [B, D] → [B, features], a view."""

    def __init__(self, start: int, features: int) -> None:
        super().__init__()
        self.start, self.features = start, features

    def forward(self, obs: Tensor) -> Tensor:
        return obs.narrow(-1, self.start, self.features)


class BlockEmbedding(nn.Module):
    """Learned embeddings of a block of indices: obs [B, D] → [B, indices · width]. Each index has its own table."""

    def __init__(self, block: Block, width: int) -> None:
        super().__init__()
        values = block.high - block.low + 1
        if not (1 <= values <= MAX_VALUES) or values % 1 or block.low % 1:
            raise TownletError(
                f"block '{block.name}' is an index from {block.low:g} to {block.high:g}",
                f"an index needs integer bounds and at most {MAX_VALUES} values; use another encoding",
            )
        self.slice = Slice(block.start, block.size)
        rows = block.size * int(values)
        weight = torch.empty(rows, width, device="meta")  # otherwise its initialization imports all of sympy
        self.embedding = uninitialized(nn.Embedding, rows, width, _weight=weight)
        first = torch.arange(block.size) * int(values) - int(block.low)
        self.register_buffer("first", first, persistent=False)
        self.features = block.size * width

    def forward(self, obs: Tensor) -> Tensor:
        index = self.slice(obs).long() + self.get_buffer("first")
        return self.embedding(index).flatten(-2)  # type: ignore[no-any-return]


class Image(nn.Module):
    """A block as images scaled to [0, 1]: obs [B, D] → [B, *shape], or flat."""

    def __init__(self, block: Block, flat: bool = False) -> None:
        super().__init__()
        if not block.high > block.low or block.high - block.low == float("inf"):
            raise TownletError(f"image '{block.name}' has no finite range", "give its block a `low` and a `high`")
        self.slice, self.shape, self.flat = Slice(block.start, block.size), block.shape, flat
        self.low, self.scale = block.low, 1 / (block.high - block.low)
        self.features = block.size

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.slice(obs)
        if self.low or self.scale != 1:
            values = (values - self.low) * self.scale
        if self.flat:
            return values
        image = torch.unflatten(values, -1, self.shape)
        # With channels last in memory a gradient step takes two thirds of the time; acting in a few rows gains nothing.
        return image.contiguous(memory_format=torch.channels_last) if torch.is_grad_enabled() else image


class Concat(nn.Module):
    """Concatenated features of several encoders of one observation: obs [B, D] → [B, features]."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.features = sum(feature_count(part) for part in self.parts)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.cat([part(obs) for part in self.parts], -1)


def feature_count(module: nn.Module) -> int:
    """The number of features that an encoder returns."""
    features = getattr(module, "features", None)
    if not isinstance(features, int):
        raise TypeError(f"{type(module).__name__} has no attribute `features`")
    return features


def block_encoders(blocks: Iterable[Block], spec: BaseNetworkSpec) -> list[nn.Module]:
    """Encoders of blocks: values unchanged (adjacent blocks in one slice), indices embedded, images flat."""
    encoders: list[nn.Module] = []
    for block in blocks:
        last = encoders[-1] if encoders else None
        if block.kind == "index":
            encoders.append(BlockEmbedding(block, spec.embedding))
        elif block.kind == "picture":
            encoders.append(Image(block, flat=True))
        elif isinstance(last, Slice) and last.start + last.features == block.start:
            encoders[-1] = Slice(last.start, last.features + block.size)
        else:
            encoders.append(Slice(block.start, block.size))
    return encoders


class Head(nn.Linear):
    """A linear layer that is initialized with its own gain instead of `HIDDEN_GAIN`."""

    gain = 1.0


def make_head(features: int, outputs: int, gain: float) -> nn.Linear:
    """A linear output layer: [..., features] → [..., outputs]; orthogonal with this gain, and with zero bias.

    A small gain makes the initial policy nearly uniform.
    """
    layer = uninitialized(Head, features, outputs)
    layer.gain = gain
    return layer


class ZeroTable(nn.Module):
    """A table of weights [rows, columns] that start at 0, for linear models over hashed features."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, columns))


class GaussianHead(nn.Module):
    """Means, then log standard deviations that are learned but do not depend on the input: [..., F] → [..., 2A]."""

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

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.streams = make_head(features, 1 + outputs, gain=1.0)  # V, then A
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
        elif isinstance(part, ZeroTable):
            init.zeros_(part.weight)
        elif isinstance(part, GaussianHead):
            part.log_std.fill_(part.initial_log_std)
        elif isinstance(part, nn.RNNBase):
            _initialize_recurrent(part, generator)
        elif next(part.parameters(recurse=False), None) is not None:
            raise TypeError(f"initialize does not support {type(part).__name__}")


def _initialize_recurrent(part: nn.RNNBase, generator: torch.Generator) -> None:
    """Initialize every gate orthogonally, and biases with 0, or 1 for the forget gates of an LSTM, which start open."""
    for name, weights in part.named_parameters():
        if name.startswith("weight"):
            for gate in weights.chunk(len(weights) // part.hidden_size):
                _draw(gate, init.orthogonal_, generator)
        else:
            init.zeros_(weights)
            if isinstance(part, nn.LSTM) and name.startswith("bias_ih"):
                weights.chunk(4)[1].fill_(1.0)


def _draw(weights: Tensor, fill: Callable[..., Tensor], generator: torch.Generator) -> None:
    """Draw weights on the generator's device, so that they are the same on every device."""
    drawn = torch.empty(weights.shape, dtype=weights.dtype, device=generator.device)
    weights.copy_(fill(drawn, generator=generator))
