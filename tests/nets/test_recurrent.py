"""Recurrent layers: the fused unrolling and the stepwise one with resets are the same function."""

from __future__ import annotations

import math

import pytest
import torch

from nets.layouts import draws
from townlet.nets.layers import initialize
from townlet.nets.recurrent import RECURRENT_LAYERS, RecurrentLayer
from townlet.rng import Streams

T, B, E, H = 20, 6, 5, 16
KINDS = ("lstm", "gru")


def core_of(kind: str, inputs: int = E, size: int = H) -> RecurrentLayer:
    core = RECURRENT_LAYERS[kind](inputs, size)
    initialize(core, Streams(3).torch("weights"))
    with torch.no_grad():  # biases begin at zero, where a mistake with them would not show
        for name, weights in core.named_parameters():
            if "bias" in name:
                weights.add_(draws(*weights.shape, seed=len(name)))
    return core


@pytest.mark.parametrize("kind", KINDS)
def test_fused_and_stepwise_unrolling_agree(kind: str) -> None:
    core = core_of(kind)
    x, hidden, episode_start = (
        draws(T, B, E) * 2,
        draws(B, core.hidden_size, seed=1),
        torch.zeros(T, B, dtype=torch.bool),
    )
    episode_start[7, -1] = True  # one episode start makes all rows take the stepwise path
    found = []
    for starts in (None, episode_start):
        core.zero_grad()
        start, seen = hidden.clone().requires_grad_(), x.clone().requires_grad_()
        outputs, after = core(seen, start, starts)
        (outputs[:, :-1].square().sum() + after[:-1].sum()).backward()
        grads = [start.grad, seen.grad, *(w.grad for w in core.parameters())]
        found.append([outputs[:, :-1].detach(), after[:-1].detach(), *(g for g in grads if g is not None)])
    assert len(found[0]) == 2 + 2 + 4
    for quick, slow in zip(*found, strict=True):
        torch.testing.assert_close(quick, slow, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_episode_start_splits_a_sequence(kind: str) -> None:
    core = core_of(kind)
    x, hidden, episode_start = draws(T, B, E), draws(B, core.hidden_size), torch.zeros(T, B, dtype=torch.bool)
    episode_start[9] = True
    outputs, after = core(x, hidden, episode_start)
    first, _ = core(x[:9], hidden)
    second, last = core(x[9:], torch.zeros(B, core.hidden_size))
    torch.testing.assert_close(outputs, torch.cat([first, second]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after, last, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_flows_across_an_episode_start(kind: str) -> None:
    core = core_of(kind)
    x, episode_start = draws(T, B, E).requires_grad_(), torch.zeros(T, B, dtype=torch.bool)
    episode_start[9, 0] = True
    outputs, _ = core(x, torch.zeros(B, core.hidden_size), episode_start)
    outputs[-1].sum().backward()
    assert x.grad is not None
    reach = x.grad.abs().sum(-1)
    assert not reach[:9, 0].any()
    assert (reach[9:, 0] > 0).all()
    assert (reach[:, 1:] > 0).all()


def test_lstm_by_hand() -> None:
    core = RECURRENT_LAYERS["lstm"](1, 1)
    gates, again = [0.5, -0.3, 0.8, 1.1], [0.2, 0.4, -0.6, 0.3]
    bias, more = [0.1, 1.0, 0.0, -0.2], [0.0, 0.1, 0.2, 0.3]
    with torch.no_grad():
        for weights, values in zip(core.parameters(), (gates, again, bias, more), strict=True):
            weights.copy_(torch.tensor(values).reshape(weights.shape))
    x, h, c = 0.7, 0.25, -0.5
    i, f, g, o = (a * x + b * h + u + v for a, b, u, v in zip(gates, again, bias, more, strict=True))

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    new_c = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
    new_h = sigmoid(o) * math.tanh(new_c)
    outputs, hidden = core(torch.tensor([[x]]), torch.tensor([[h, c]]))
    assert outputs.item() == pytest.approx(new_h, abs=1e-6)
    assert hidden[0].tolist() == pytest.approx([new_h, new_c], abs=1e-6)


def test_gru_by_hand() -> None:
    core = RECURRENT_LAYERS["gru"](1, 1)
    gates, again, bias, more = ([0.5, -0.3, 0.8], [0.2, 0.4, -0.6], [0.1, 1.0, 0.0], [0.0, 0.1, 0.2])
    with torch.no_grad():
        for weights, values in zip(core.parameters(), (gates, again, bias, more), strict=True):
            weights.copy_(torch.tensor(values).reshape(weights.shape))
    x, h = 0.7, 0.25
    r = 1 / (1 + math.exp(-(0.5 * x + 0.1 + 0.2 * h)))
    z = 1 / (1 + math.exp(-(-0.3 * x + 1.0 + 0.4 * h + 0.1)))
    n = math.tanh(0.8 * x + r * (-0.6 * h + 0.2))
    outputs, hidden = core(torch.tensor([[x]]), torch.tensor([[h]]))
    assert hidden.item() == outputs.item() == pytest.approx((1 - z) * n + z * h, abs=1e-6)


def test_lstm_forget_gate_starts_open() -> None:
    core = RECURRENT_LAYERS["lstm"](E, H)
    initialize(core, Streams(0).torch("weights"))
    one = torch.cat([torch.zeros(B, H), torch.ones(B, H)], 1)
    _, hidden = core(torch.zeros(B, E), one)
    # With no input and open forget gates (bias 1) sigmoid(1) of the memory stays after one step.
    torch.testing.assert_close(hidden[:, H:], torch.full((B, H), 1 / (1 + math.exp(-1))))
