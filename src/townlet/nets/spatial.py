"""The network for towns that are seen through a window: convolutions there, a small encoder for every other part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torch import nn

from townlet.contract.layout import Block, Layout
from townlet.errors import TownletError
from townlet.nets.layers import Parts, Stack, readers, width
from townlet.nets.pictures import Summed, grid_encoder
from townlet.nets.spec import Spatial

GRIDS: Final = ("window", "window_typed", "map_typed")
TOGETHER: Final = (("clock", "progress"),)  # blocks that share an encoder: both tell the time


def make_spatial(spec: Spatial, layout: Layout) -> Summed:
    """Every part summed up by itself and set side by side: obs [B, D] → [B, features]."""
    grids = [block for block in layout if block.kind == "picture" or block.name in GRIDS]
    if not grids:
        raise TownletError(
            f"network 'spatial' looks at windows, maps or pictures; the observation has {', '.join(layout.names)}",
            "use mlp, or add the block `window` to the world's observation",
        )
    encoders: list[nn.Module] = [grid_encoder(block, spec.channels, spec.features, spec) for block in grids]
    for group in _groups(block for block in layout if block not in grids):
        found = readers(group, spec)
        reader = found[0] if len(found) == 1 else Parts(found)
        encoders.append(Summed(reader, Stack(width(reader), (spec.parts,), spec.activation, spec.layer_norm)))
    parts = Parts(encoders)
    return Summed(parts, Stack(parts.features, spec.widths, spec.activation, spec.layer_norm))


def _groups(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Blocks that share an encoder, in the order of the first of each."""
    groups: dict[str, list[Block]] = {}
    for block in blocks:
        together = next((names for names in TOGETHER if block.name in names), (block.name,))
        groups.setdefault(together[0], []).append(block)
    yield from groups.values()
