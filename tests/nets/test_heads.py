"""Heads and initial weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nets.layouts import draws, law
from townlet.nets.layers import DuelingHead, initialize, make_head
from townlet.rng import Streams


@law
@given(st.integers(1, 6), st.sampled_from((0.01, 1.0, 2.0)))
def test_head_is_orthogonal_with_its_gain(outputs: int, scale: float) -> None:
    layer = make_head(8, outputs, scale)
    initialize(layer, Streams(1).torch("weights"))
    product = layer.weight @ layer.weight.t()
    torch.testing.assert_close(product, scale**2 * torch.eye(outputs), atol=1e-5, rtol=1e-4)
    assert not layer.bias.any()


def test_hidden_layers_keep_their_gain_with_a_small_head() -> None:
    network = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), make_head(8, 2, 0.01))
    initialize(network, Streams(1).torch("weights"))
    assert torch.linalg.matrix_norm(network[0].weight, 2).item() == pytest.approx(2**0.5, rel=1e-5)
    assert torch.linalg.matrix_norm(network[2].weight, 2).item() == pytest.approx(0.01, rel=1e-5)


def test_dueling_by_hand() -> None:
    duel = DuelingHead(2, 3)
    with torch.no_grad():
        duel.streams.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0]]))
        duel.streams.bias.copy_(torch.tensor([0.5, 0.0, 0.0, 1.0]))
    # V = 3.5; A = 2, 4, 4, their mean 10/3.
    values = duel(torch.tensor([3.0, 2.0]))
    torch.testing.assert_close(values, torch.tensor([3.5 + 2 - 10 / 3, 3.5 + 4 - 10 / 3, 3.5 + 4 - 10 / 3]))


@pytest.mark.parametrize("actions", [4, 40])
def test_mean_of_dueling_values_is_the_state_value(actions: int) -> None:
    duel = DuelingHead(5, actions)
    initialize(duel, Streams(2).torch("weights"))
    features = draws(7, 3, 5)
    values = duel(features)
    assert values.shape == (7, 3, actions)
    torch.testing.assert_close(values.mean(-1), duel.streams(features)[..., 0], atol=1e-6, rtol=1e-5)


def test_weights_depend_on_the_stream_alone() -> None:
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    stream = Streams(5).torch("weights")
    initialize(one, stream)
    initialize(two, stream)
    assert not torch.equal(one.weight, two.weight)  # the stream has advanced
    initialize(two, Streams(5).torch("weights"))
    assert torch.equal(one.weight, two.weight)


def test_unknown_layers_are_rejected_by_initialization() -> None:
    with pytest.raises(TypeError, match="Bilinear"):
        initialize(nn.Sequential(nn.Bilinear(2, 2, 2)), Streams(0).torch("weights"))
