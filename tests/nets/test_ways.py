"""The way back that is written out gives the gradients that torch finds."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nets.layouts import draws, law
from townlet.agents.actor_critic import ActorCritic, make_actor_critic
from townlet.agents.q_network import QNetwork, make_q_network
from townlet.contract.layout import Layout
from townlet.nets import bends
from townlet.nets.optimizers import Optimizer
from townlet.nets.spec import MlpSpec, NetworkSpec, RecurrentSpec
from townlet.nets.ways import Plain, Recorded, way
from townlet.rng import Streams

INPUTS = 5
NUMBERS = Layout.of(("numbers", (INPUTS,), -1.0, 1.0))
Network = ActorCritic | QNetwork


def q_network(spec: NetworkSpec, actions: int, dueling: bool) -> QNetwork:
    draws = Streams(3).torch("network")
    return make_q_network(spec, NUMBERS, actions, dueling=dueling, generator=draws, device="cpu")


def actor_critic(spec: NetworkSpec, actions: int, shared: bool, log_std: float | None = None) -> ActorCritic:
    draws = Streams(3).torch("network")
    return make_actor_critic(spec, NUMBERS, actions, shared=shared, generator=draws, device="cpu", log_std=log_std)


@st.composite
def plain_networks(draw: st.DrawFn) -> Network:
    """Every network that consists of plain layers, with weights that are not those of the beginning."""
    widths = draw(st.sampled_from(((), (7,), (16, 40), (40, 16, 13))))
    spec = MlpSpec(hidden=widths, activation=draw(st.sampled_from(("relu", "tanh"))))
    made = draw(st.sampled_from((q_network, actor_critic)))(spec, draw(st.integers(1, 4)), draw(st.booleans()))
    with torch.no_grad():
        for place, weight in enumerate(made.parameters()):
            weight += 0.3 * draws(*weight.shape, seed=place)
    return made


def followed(network: Network, obs: Tensor, recorded: bool, parts: int) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Outputs, and the gradient of a loss that is their sum, each times some number; added up over so many parts."""
    network = deepcopy(network)
    optimizer = Optimizer("sgd", network, 0.1)
    path = Recorded(network, optimizer) if recorded else way(network, network.chains(), optimizer)
    assert isinstance(path, Recorded if recorded else Plain)
    outputs = []
    for part in obs.chunk(parts):
        found = path.there(part, network.start(len(part)))
        flat = [output if output.dim() == 2 else output.unsqueeze(1) for output in found]
        slopes = [torch.cos(torch.arange(output.numel())).view(output.shape) for output in flat]
        if len(slopes) > 1:
            slopes[1] = slopes[1].squeeze(1)  # the value's
        path.back(slopes)
        outputs += flat
    return outputs, {name: gradient.clone() for name, gradient in optimizer.gradients().items()}


@law
@given(plain_networks(), st.sampled_from((1, 2, 20, 65)), st.integers(1, 2), st.booleans())
def test_both_ways_lead_to_the_same(network: Network, rows: int, parts: int, arm: bool) -> None:
    obs = draws(rows, INPUTS)
    theirs, expected = followed(network, obs, True, min(parts, rows))
    with pytest.MonkeyPatch.context() as machine:
        machine.setattr(bends, "ARM", arm)
        ours, found = followed(network, obs, False, min(parts, rows))
    for output, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(output, other, rtol=1e-5, atol=1e-5)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    "network",
    [
        q_network(MlpSpec(hidden=(8,), activation="silu"), 3, dueling=True),
        q_network(MlpSpec(hidden=(8,), layer_norm=True), 3, dueling=False),
        actor_critic(MlpSpec(hidden=(8,), recurrent=RecurrentSpec(size=6)), 3, shared=True),
        actor_critic(MlpSpec(hidden=(8,)), 2, shared=False, log_std=0.0),
    ],
)
def test_torch_finds_the_way_where_there_is_more_than_plain_layers(network: Network) -> None:
    assert isinstance(way(network, network.chains(), Optimizer("sgd", network, 0.1)), Recorded)


def test_a_weight_that_no_chain_has_is_noticed() -> None:
    network = actor_critic(MlpSpec(hidden=(8,)), 3, shared=False)
    with pytest.raises(ValueError, match="not the whole network"):
        way(network, network.chains()[:1], Optimizer("sgd", network, 0.1))
