"""The spatial network has the documented structure for every observation of the shipped worlds."""

from __future__ import annotations

import pytest
import torch

from nets.layouts import make, observations
from townlet.errors import TownletError
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.nets.convolutional import GridImage
from townlet.nets.spec import MlpSpec, SpatialRecurrentSpec, SpatialSpec
from townlet.town.world.load import load


def weights(module: torch.nn.Module) -> int:
    return sum(w.numel() for w in module.parameters())


WINDOW = (9 * 1 * 16 + 16) + (9 * 16 * 32 + 32) + (25 * 32 * 128 + 128)
SMALL = (2 * 32 + 32) + (8 * 32 + 32) + (16 * 32 + 32)  # position, meters, affordance_here
AFTER = 256 * 128 + 128


def lstm(inputs: int) -> int:
    return 4 * 256 * (inputs + 256) + 2 * 4 * 256


def test_spatial_recurrent_has_the_documented_sizes() -> None:
    body = make(SpatialRecurrentSpec(), load("town-l2").layout)
    assert weights(body) == WINDOW + SMALL + lstm(128 + 3 * 32) + AFTER
    assert (body.features, body.hidden_size) == (128, 512)


def test_clock_and_progress_share_one_encoder() -> None:
    body = make(SpatialRecurrentSpec(), load("town-l3").layout)
    assert {"clock", "progress"} <= set(load("town-l3").layout.names)
    assert weights(body) == WINDOW + SMALL + (2 * 32 + 32) + lstm(128 + 4 * 32) + AFTER


def test_kinds_of_a_typed_window_are_channels() -> None:
    body = make(SpatialRecurrentSpec(), load("town-foggy").layout)
    assert weights(body) == WINDOW + 9 * 15 * 16 + SMALL + lstm(128 + 3 * 32) + AFTER


def test_unknown_blocks_get_their_own_encoder() -> None:
    known = ObservationLayout.of(("window", (5, 5), 0.0, 1.0))
    more = ObservationLayout.of(("window", (5, 5), 0.0, 1.0), ("smell", (3,), 0.0, 1.0), ("age", (1,), 0.0, 1.0))
    spec = SpatialSpec(hidden=())
    assert weights(make(spec, more)) - weights(make(spec, known)) == (3 * 32 + 32) + (1 * 32 + 32)
    assert make(spec, more).features == 128 + 2 * 32


def test_feed_forward_spatial_concatenates_its_blocks() -> None:
    body = make(SpatialSpec(), load("town-l2").layout)
    assert (body.features, body.hidden_size) == (128, 0)


def test_town_without_window_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"has position_onehot, meters, affordance_here.*use mlp"):
        make(SpatialSpec(), load("town").layout)


def test_cells_and_kinds_are_in_the_right_channels() -> None:
    obs = torch.arange(2.0 * 25).reshape(1, 50)
    typed = GridImage(Block("window_typed", 0, (5, 5, 2)))(obs)
    assert typed.shape == (1, 2, 5, 5)
    assert typed[0, 1, 3, 4] == (3 * 5 + 4) * 2 + 1
    plain = GridImage(Block("window", 3, (5, 5)))(obs)
    assert plain.shape == (1, 1, 5, 5)
    assert plain[0, 0, 2, 1] == 3 + 2 * 5 + 1
    tower = GridImage(Block("map_typed", 0, (2, 3, 4, 2)))(obs)  # levels, rows, columns, kinds
    assert tower.shape == (1, 4, 3, 4)
    assert tower[0, 1 * 2 + 1, 2, 3] == ((1 * 3 + 2) * 4 + 3) * 2 + 1


def test_layer_norm_ignores_the_scale_of_its_input() -> None:
    layout = load("town").layout
    body = make(MlpSpec(layer_norm=True), layout)
    obs = observations(layout, 3)
    torch.testing.assert_close(
        body(obs, body.initial_hidden(3))[0], body(obs * 50, body.initial_hidden(3))[0], atol=1e-3, rtol=1e-3
    )
