"""Convolutions: over pictures [C, H, W] as in Atari networks, and over the windows and maps of a town."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

from townlet.contract.layout import Block, Layout
from townlet.errors import TownletError
from townlet.nets.activations import activation_module
from townlet.nets.layers import Parts, Picture, Stack, readers, undrawn
from townlet.nets.spec import CnnSpec, Network

NATURE: Final = ((8, 4), (4, 2), (3, 1))  # kernel and stride
SHRINK: Final = 2  # every block of impala halves the picture


def conv_layer(before: int, after: int, kernel: int, stride: int, padding: str | int, spec: Network) -> list[nn.Module]:
    """A convolution, normalised over the whole picture if asked, and bent."""
    norm = [nn.GroupNorm(1, after)] if spec.layer_norm else []
    conv = undrawn(nn.Conv2d, before, after, kernel_size=kernel, stride=stride, padding=padding)
    return [conv, *norm, activation_module(spec.activation, inplace=True)]


class Residual(nn.Module):
    """x + conv(σ(conv(σ(x)))), same shape (He et al. 2016)."""

    def __init__(self, channels: int, spec: Network) -> None:
        super().__init__()
        self.path = nn.Sequential(
            activation_module(spec.activation),  # not in place: the input is added below
            *conv_layer(channels, channels, 3, 1, "same", spec),
            undrawn(nn.Conv2d, channels, channels, kernel_size=3, padding="same"),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x)  # type: ignore[no-any-return]


class Convolved(nn.Sequential):
    """A block through layers, flat: obs [B, D] → [B, features]."""

    def __init__(self, picture: nn.Module, layers: Sequence[nn.Module], features: int) -> None:
        super().__init__(picture, *layers, nn.Flatten())
        self.features = features


class Grid(nn.Module):
    """A window or map as a picture: obs [B, D] → [B, channels, height, width].

    Kinds come last in the observation and are channels here; levels of a map in 3-D are channels as well.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.start, self.size = block.start, block.size
        *cells, kinds = block.shape if block.name.endswith("_typed") else (*block.shape, 1)
        self.levels, self.height, self.width = (1, 1, *cells)[-3:]
        self.kinds = kinds
        self.channels = self.levels * kinds

    def forward(self, obs: Tensor) -> Tensor:
        seen = obs.narrow(-1, self.start, self.size)
        if self.channels == 1:
            return torch.unflatten(seen, -1, (1, self.height, self.width))
        seen = torch.unflatten(seen, -1, (self.levels, self.height, self.width, self.kinds))
        return seen.permute(0, 1, 4, 2, 3).flatten(1, 2)


def grid_encoder(block: Block, channels: Sequence[int], features: int, spec: Network) -> nn.Module:
    """3×3 convolutions with same padding over a window, a map or a picture, then one layer of `features`."""
    picture: Grid | Picture = Picture(block) if block.kind == "picture" else Grid(block)
    inputs = picture.channels if isinstance(picture, Grid) else block.shape[0]
    cells = picture.height * picture.width if isinstance(picture, Grid) else block.size // inputs
    layers = [part for a, b in pairwise((inputs, *channels)) for part in conv_layer(a, b, 3, 1, "same", spec)]
    flat = (channels[-1] if channels else inputs) * cells
    convolved = Convolved(picture, layers, flat)
    return Summed(convolved, Stack(flat, (features,), spec.activation, spec.layer_norm))


class Summed(nn.Sequential):
    """A reader of the observation and the layers that sum up what it read: obs [B, D] → [B, features]."""

    def __init__(self, reader: nn.Module, stack: Stack) -> None:
        super().__init__(reader, stack)
        self.features = stack.features


def make_cnn(spec: CnnSpec, layout: Layout) -> Summed:
    """Convolutions over every picture; other blocks join before the last layer."""
    pictures = [block for block in layout if block.kind == "picture"]
    if not pictures:
        raise TownletError(
            f"network '{spec.name}' looks at pictures and the observation has none ({', '.join(layout.names)})",
            "use mlp, or for a town spatial or keypoints",
        )
    convolve = _nature if spec.name == "nature" else _impala
    others = readers((block for block in layout if block.kind != "picture"), spec)
    joined = Parts([*(convolve(block, spec) for block in pictures), *others])
    return Summed(joined, Stack(joined.features, (spec.width,), spec.activation, spec.layer_norm))


def _nature(block: Block, spec: CnnSpec) -> Convolved:
    before, *sides = _shape(block)
    layers: list[nn.Module] = []
    for (kernel, stride), channels in zip(NATURE, spec.widths, strict=True):
        if min(sides) < kernel:
            height, width = block.shape[1:]
            raise TownletError(
                f"picture '{block.name}' of {height}×{width} is too small for network 'nature'",
                "use impala, or resize it to at least 36×36",
            )
        layers += conv_layer(before, channels, kernel, stride, 0, spec)
        before, sides = channels, [(side - kernel) // stride + 1 for side in sides]
    return Convolved(Picture(block), layers, before * sides[0] * sides[1])


def _impala(block: Block, spec: CnnSpec) -> Convolved:
    before, *sides = _shape(block)
    layers: list[nn.Module] = []
    for channels in spec.widths:
        conv = undrawn(nn.Conv2d, before, channels, kernel_size=3, padding="same")
        pool = nn.MaxPool2d(3, SHRINK, padding=1)
        layers += [conv, pool, Residual(channels, spec), Residual(channels, spec)]
        before, sides = channels, [-(-side // SHRINK) for side in sides]
    return Convolved(
        Picture(block), [*layers, activation_module(spec.activation, inplace=True)], before * sides[0] * sides[1]
    )


def _shape(block: Block) -> tuple[int, ...]:
    if len(block.shape) != 3:
        raise TownletError(
            f"picture '{block.name}' has the shape {block.shape}", "a picture is [channels, height, width]"
        )
    return block.shape
