"""Observation layouts of every kind, and networks that accept them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from examples import examples
from townlet.interfaces.layout import BlockSpec, ObservationLayout
from townlet.nets.body import Body, build_body
from townlet.nets.layers import initialize
from townlet.nets.spec import CnnSpec, KeypointsSpec, MlpSpec, NetworkSpec, RecurrentSpec, SpatialSpec
from townlet.rng import Streams

side = st.integers(1, 4)
law = settings(max_examples=examples(10, 30), deadline=None, derandomize=True, database=None)


@st.composite
def layouts(draw: st.DrawFn) -> ObservationLayout:
    """Blocks of a town with a map of 1 to 3 dimensions, discrete blocks and images, in any order."""
    size = draw(st.lists(side, min_size=1, max_size=3))
    kinds, window = draw(st.integers(2, 4)), (draw(st.sampled_from((1, 3))),) * min(len(size), 2)
    cells = torch.zeros(size).numel()
    every: tuple[BlockSpec, ...] = (
        ("position_onehot", (cells,), 0.0, 1.0),
        ("position", (len(size),), 0.0, 1.0),
        ("window", window, 0.0, 1.0),
        ("window_typed", (*window, kinds), 0.0, 1.0),
        ("map_typed", (*reversed(size), kinds), 0.0, 1.0),
        ("meters", (draw(side),), 0.0, 1.0),
        ("clock", (2,), -1.0, 1.0),
        ("progress", (1,), 0.0, 1.0),
        ("mystery", (2, 2), -3.0, 3.0),
        ("state", (), 0.0, 5.0, "index"),
        ("cards", (draw(side),), 2.0, 4.0, "index"),
        ("camera", (draw(side), draw(side), draw(side)), 0.0, 255.0, "picture"),
    )
    return ObservationLayout.of(*draw(st.lists(st.sampled_from(every), min_size=1, unique_by=lambda part: part[0])))


@st.composite
def networks(
    draw: st.DrawFn, memory: bool | None = None, smooth: bool = False
) -> tuple[NetworkSpec, ObservationLayout]:
    """A small network and a layout that it accepts. `memory`: must be recurrent; `smooth`: without dead units."""
    layout = draw(layouts())
    recurrent = st.builds(
        RecurrentSpec, kind=st.sampled_from(("lstm", "gru")), size=st.just(6), post_widths=st.just((7,))
    )
    part = {None: st.none() | recurrent, True: recurrent, False: st.none()}[memory]
    common: dict[str, Any] = {
        "activation": draw(st.sampled_from(("tanh", "silu") if smooth else ("tanh", "silu", "relu"))),
        "layer_norm": draw(st.booleans()),
        "embedding": 3,
        "recurrent": draw(part),
    }
    hidden = draw(st.sampled_from(((), (9,), (8, 9))))
    fitting: list[NetworkSpec] = [MlpSpec(hidden=hidden, **common)]
    if any("_typed" in name for name in layout.names):
        fitting.append(KeypointsSpec(hidden=hidden, **common))
    if any(b.kind == "picture" or b.name in ("window", "window_typed", "map_typed") for b in layout):
        fitting.append(SpatialSpec(hidden=hidden, channels=(3, 4), features=8, block_features=5, **common))
    if "camera" in layout:
        fitting.append(CnnSpec(name="impala", channels=(3,), features=8, **common))
    return draw(st.sampled_from(fitting)), layout


def make(spec: NetworkSpec, layout: ObservationLayout, seed: int = 0) -> Body:
    """A body with initial weights."""
    body = build_body(spec, layout)
    initialize(body, Streams(seed).torch("weights"))
    return body


def observations(layout: ObservationLayout, *shape: int, seed: int = 0) -> Tensor:
    """Random observations [*shape, D] in the ranges of the blocks; indices are whole."""
    chance = Streams(seed).torch("observations")
    parts = []
    for block in layout:
        share = torch.rand(*shape, block.size, generator=chance)
        if block.kind == "index":
            parts.append((share * (block.high - block.low + 1)).floor() + block.low)
        else:
            parts.append(share * (block.high - block.low) + block.low)
    return torch.cat(parts, -1)


def draws(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers in [−1, 1)."""
    return torch.rand(*shape, generator=Streams(seed).torch("draws")) * 2 - 1
