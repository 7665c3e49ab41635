"""Convolutional encoders: of images [C, H, W] as in Atari networks, and of the windows and maps of a town."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.nets.activations import activation_module
from townlet.nets.layers import MLP, Concat, Image, block_encoders, feature_count, uninitialized
from townlet.nets.spec import BaseNetworkSpec, BaseSpatialSpec, CnnSpec

NATURE_KERNELS: Final = ((8, 4), (4, 2), (3, 1))  # kernel size and stride of each layer
POOL_STRIDE: Final = 2  # each stage of impala halves height and width
GRID_BLOCKS: Final = ("window", "window_typed", "map_typed")
TIME_BLOCKS: Final = ("clock", "progress")  # share an encoder


def conv_layer(
    before: int, after: int, kernel: int, stride: int, padding: str | int, spec: BaseNetworkSpec
) -> list[nn.Module]:
    """A convolution, group normalization over all channels if `layer_norm` is set, and the activation."""
    norm = [nn.GroupNorm(1, after)] if spec.layer_norm else []
    conv = uninitialized(nn.Conv2d, before, after, kernel_size=kernel, stride=stride, padding=padding)
    return [conv, *norm, activation_module(spec.activation, inplace=True)]


class ResidualBlock(nn.Module):
    """x + conv(σ(conv(σ(x)))), same shape (He et al. 2016)."""

    def __init__(self, channels: int, spec: BaseNetworkSpec) -> None:
        super().__init__()
        self.path = nn.Sequential(
            activation_module(spec.activation),  # not in place: the input is added below
            *conv_layer(channels, channels, 3, 1, "same", spec),
            uninitialized(nn.Conv2d, channels, channels, kernel_size=3, padding="same"),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.path(x)  # type: ignore[no-any-return]


class ConvEncoder(nn.Sequential):
    """Convolutional layers over one block, flattened: obs [B, D] → [B, features]."""

    def __init__(self, image: nn.Module, layers: Sequence[nn.Module], features: int) -> None:
        super().__init__(image, *layers, nn.Flatten())
        self.features = features


class GridImage(nn.Module):
    """A window or map as an image: obs [B, D] → [B, channels, height, width].

    The kinds of things, which are the last axis of the block, become channels, and so do the levels of a 3-D map.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.start, self.size = block.start, block.size
        *cells, kinds = block.shape if block.name.endswith("_typed") else (*block.shape, 1)
        self.levels, self.height, self.width = (1, 1, *cells)[-3:]
        self.kinds = kinds
        self.channels = self.levels * kinds

    def forward(self, obs: Tensor) -> Tensor:
        values = obs.narrow(-1, self.start, self.size)
        if self.channels == 1:
            return torch.unflatten(values, -1, (1, self.height, self.width))
        values = torch.unflatten(values, -1, (self.levels, self.height, self.width, self.kinds))
        return values.permute(0, 1, 4, 2, 3).flatten(1, 2)


def grid_encoder(block: Block, channels: Sequence[int], features: int, spec: BaseNetworkSpec) -> nn.Module:
    """3×3 convolutions with same padding over a window, a map or an image, then a linear layer of `features`."""
    image: GridImage | Image = Image(block) if block.kind == "picture" else GridImage(block)
    inputs = image.channels if isinstance(image, GridImage) else block.shape[0]
    cells = image.height * image.width if isinstance(image, GridImage) else block.size // inputs
    layers = [part for a, b in pairwise((inputs, *channels)) for part in conv_layer(a, b, 3, 1, "same", spec)]
    flat = (channels[-1] if channels else inputs) * cells
    return Encoder(ConvEncoder(image, layers, flat), (features,), spec)


class Encoder(nn.Sequential):
    """Encoders of blocks, followed by an MLP: obs [B, D] → [B, features]."""

    def __init__(self, blocks: nn.Module, widths: Sequence[int], spec: BaseNetworkSpec) -> None:
        mlp = MLP(feature_count(blocks), widths, spec.activation, spec.layer_norm)
        super().__init__(blocks, mlp)
        self.features = mlp.features


def make_cnn(spec: CnnSpec, layout: ObservationLayout) -> Encoder:
    """Convolutions over every image; the encodings of other blocks are concatenated before the last layer."""
    images = [block for block in layout if block.kind == "picture"]
    if not images:
        raise TownletError(
            f"network '{spec.name}' needs an image, but the observation has only {', '.join(layout.names)}",
            "use mlp, or in a town spatial or keypoints",
        )
    convolve = _nature if spec.name == "nature" else _impala
    others = block_encoders((block for block in layout if block.kind != "picture"), spec)
    return Encoder(Concat([*(convolve(block, spec) for block in images), *others]), (spec.output_width,), spec)


def make_spatial(spec: BaseSpatialSpec, layout: ObservationLayout) -> Encoder:
    """For towns: convolutions over windows, maps and images, small encoders of the remaining blocks, then an MLP."""
    grids = [block for block in layout if block.kind == "picture" or block.name in GRID_BLOCKS]
    if not grids:
        raise TownletError(
            f"a spatial network needs a window, a map or an image, but the observation has {', '.join(layout.names)}",
            "use mlp, or add the block `window` to the world's observation",
        )
    encoders: list[nn.Module] = [grid_encoder(block, spec.channels, spec.features, spec) for block in grids]
    groups: dict[str, list[Block]] = {}  # blocks that share an encoder, in the order of their first blocks
    for block in layout:
        if block not in grids:
            groups.setdefault("time" if block.name in TIME_BLOCKS else block.name, []).append(block)
    for group in groups.values():
        parts = block_encoders(group, spec)
        encoders.append(Encoder(parts[0] if len(parts) == 1 else Concat(parts), (spec.block_features,), spec))
    return Encoder(Concat(encoders), spec.widths, spec)


def _nature(block: Block, spec: CnnSpec) -> ConvEncoder:
    before, *sides = _shape(block)
    layers: list[nn.Module] = []
    for (kernel, stride), channels in zip(NATURE_KERNELS, spec.conv_channels, strict=True):
        if min(sides) < kernel:
            height, width = block.shape[1:]
            raise TownletError(
                f"image '{block.name}' of {height}×{width} is too small for network 'nature'",
                "use impala, or resize it to at least 36×36",
            )
        layers += conv_layer(before, channels, kernel, stride, 0, spec)
        before, sides = channels, [(side - kernel) // stride + 1 for side in sides]
    return ConvEncoder(Image(block), layers, before * sides[0] * sides[1])


def _impala(block: Block, spec: CnnSpec) -> ConvEncoder:
    before, *sides = _shape(block)
    layers: list[nn.Module] = []
    for channels in spec.conv_channels:
        conv = uninitialized(nn.Conv2d, before, channels, kernel_size=3, padding="same")
        pool = nn.MaxPool2d(3, POOL_STRIDE, padding=1)
        layers += [conv, pool, ResidualBlock(channels, spec), ResidualBlock(channels, spec)]
        before, sides = channels, [-(-side // POOL_STRIDE) for side in sides]
    return ConvEncoder(
        Image(block), [*layers, activation_module(spec.activation, inplace=True)], before * sides[0] * sides[1]
    )


def _shape(block: Block) -> tuple[int, ...]:
    if len(block.shape) != 3:
        raise TownletError(f"image '{block.name}' has the shape {block.shape}", "an image is [channels, height, width]")
    return block.shape
