"""Convolutional networks."""

from __future__ import annotations

import pytest
import torch

from nets.layouts import make, observations
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.convolutional import ResidualBlock
from townlet.nets.spec import CnnSpec, MlpSpec, NetworkSpec
from townlet.town.world.load import load


def picture(*shape: int, high: float = 255.0) -> ObservationLayout:
    return ObservationLayout.of(("camera", shape, 0.0, high, "picture"))


def test_nature_cnn_has_as_many_weights_as_the_paper() -> None:
    body = make(CnnSpec(name="nature"), picture(4, 84, 84))
    convs = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64)
    assert sum(w.numel() for w in body.parameters()) == convs + 3136 * 512 + 512
    assert body.features == 512
    assert body(observations(picture(4, 84, 84), 2), body.initial_hidden(2))[0].shape == (2, 512)


@pytest.mark.parametrize("shape", [(3, 7, 7), (1, 16, 5), (3, 64, 64), (2, 1, 1)])
def test_impala_accepts_images_of_any_size(shape: tuple[int, int, int]) -> None:
    body = make(CnnSpec(name="impala"), picture(*shape))
    assert body(observations(picture(*shape), 2), body.initial_hidden(2))[0].shape == (2, 256)


def test_impala_has_two_residuals_in_each_of_three_blocks() -> None:
    body = make(CnnSpec(name="impala"), picture(3, 64, 64))
    convs = [(3, 16), *[(16, 16)] * 4, (16, 32), *[(32, 32)] * 4, (32, 32), *[(32, 32)] * 4]
    expected = sum(9 * a * b + b for a, b in convs) + 8 * 8 * 32 * 256 + 256
    assert sum(w.numel() for w in body.parameters()) == expected


def test_residual_blocks_add_to_their_input() -> None:
    block = ResidualBlock(2, CnnSpec(name="impala"))  # weights are zero before they are drawn
    x = torch.linspace(-1, 1, 2 * 3 * 3).reshape(1, 2, 3, 3)
    assert torch.equal(block(x.clone()), x)


@pytest.mark.parametrize("spec", [CnnSpec(name="impala"), MlpSpec()])
def test_byte_and_unit_range_images_give_the_same_features(spec: NetworkSpec) -> None:
    in_bytes, in_shares = make(spec, picture(1, 8, 8)), make(spec, picture(1, 8, 8, high=1.0))
    obs = observations(picture(1, 8, 8), 3)
    one, _ = in_bytes(obs, in_bytes.initial_hidden(3))
    two, _ = in_shares(obs / 255, in_shares.initial_hidden(3))
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
    assert one.abs().max() < 100


def test_other_blocks_are_concatenated_with_the_image_features() -> None:
    layout = ObservationLayout.of(
        ("speed", (2,), 0.0, 1.0), ("camera", (1, 8, 8), 0.0, 1.0, "picture"), ("gear", (), 0.0, 5.0, "index")
    )
    body = make(CnnSpec(name="impala"), layout)
    obs = observations(layout, 1).repeat(3, 1)
    obs[1, 0] += 1
    obs[2, -1] = 5 - obs[2, -1]
    features, _ = body(obs, body.initial_hidden(3))
    assert (features[0] != features[1]).any()
    assert (features[0] != features[2]).any()


def test_nature_cnn_rejects_small_images() -> None:
    with pytest.raises(TownletError, match=r"'camera' of 20×84 is too small .* use impala"):
        make(CnnSpec(name="nature"), picture(3, 20, 84))
    assert make(CnnSpec(name="nature"), picture(3, 36, 36)).features == 512  # as small as the message says


def test_convolutions_reject_a_town() -> None:
    with pytest.raises(TownletError, match="needs an image, but the observation has only"):
        make(CnnSpec(name="nature"), load("town").layout)


def test_flat_image_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"\[channels, height, width\]"):
        make(CnnSpec(name="impala"), picture(8, 8))
