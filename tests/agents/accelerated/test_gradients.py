"""Fast paths give the gradients of autograd: float64, random networks, batches and settings."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from narrow import instance
from nets.layouts import law
from townlet.agents.accelerated.analytic_mlp import AnalyticMLP, mlp_layers
from townlet.agents.accelerated.analytic_ppo import AnalyticPpo
from townlet.agents.distributions import DistributionFamily, distribution_family
from townlet.agents.networks import ActorCritic
from townlet.agents.ppo import Coefficients, ppo_loss
from townlet.buffers.rollout import Minibatch
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Binary, Discrete
from townlet.nets import activations
from townlet.nets.layers import initialize
from townlet.nets.optimizers import FlatOptimizer
from townlet.nets.spec import MlpSpec, NetworkSpec, RecurrentSpec
from townlet.rng import Streams

INPUTS = 5
LAYOUT = ObservationLayout.of(("numbers", (INPUTS,), -1.0, 1.0))
Gradients = dict[str, Tensor]


def actor_critic(spec: NetworkSpec, actions: int, shared: bool, log_std: float | None = None) -> ActorCritic:
    network = ActorCritic(spec, LAYOUT, actions, shared, log_std)
    initialize(network, Streams(3).torch("network"))
    return network


def specs() -> st.SearchStrategy[MlpSpec]:
    widths = st.sampled_from(((), (7,), (16, 40), (40, 16, 13)))
    return st.builds(
        lambda hidden, name: MlpSpec(hidden=hidden, activation=name), widths, st.sampled_from(("relu", "tanh"))
    )


def perturbed(network: ActorCritic, seed: int) -> ActorCritic:
    """The network in float64 with random weights, and with a gradient to accumulate into."""
    draws = torch.Generator().manual_seed(seed)
    network = network.double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draws, dtype=torch.float64))
    return network


def twin(network: ActorCritic) -> tuple[ActorCritic, FlatOptimizer]:
    network = deepcopy(network)
    return network, FlatOptimizer("sgd", network, 0.1)


def gradients_of(network: nn.Module) -> Gradients:
    return {name: instance(weight.grad, Tensor) for name, weight in network.named_parameters()}


def assert_equal(found: Gradients, wanted: Gradients) -> None:
    """Within 1e-6 of the norm of each gradient."""
    for name, gradient in found.items():
        scale = float(wanted[name].norm())
        assert float((gradient - wanted[name]).norm()) <= 1e-6 * max(scale, 1e-9), name


def minibatch(kind: DistributionFamily, rows: int, actions: int, seed: int) -> Minibatch:
    draws = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draws, dtype=torch.float64)

    mask = torch.rand(rows, actions, generator=draws) < 0.7
    mask[:, 0] = True
    taken = torch.zeros(rows, dtype=torch.int64)
    if kind.kind == "binary":
        taken = torch.randint(2, (rows, actions), generator=draws)
    else:
        taken = (torch.rand(rows, actions, generator=draws) * mask).argmax(1)
    return Minibatch(
        normal(rows, INPUTS), mask, taken, 0.5 * normal(rows) - 1, normal(rows), normal(rows), normal(rows),
        torch.zeros(rows, 0, dtype=torch.float64),
    )  # fmt: skip


@law
@given(
    specs(), st.integers(1, 4), st.booleans(), st.booleans(), st.sampled_from((1, 2, 20, 65)), st.integers(0, 99),
    st.sampled_from((0.0, 0.1, 0.5)), st.sampled_from((None, 0.05, 0.5)), st.sampled_from((0.0, 0.02)),
)  # fmt: skip
def test_analytic_ppo_gradients_match_autograd(
    spec: MlpSpec, actions: int, shared: bool, binary: bool, rows: int, seed: int, clip: float,
    value_clip: float | None, entropy: float,
) -> None:  # fmt: skip
    names = tuple(map(str, range(actions)))
    kind = distribution_family(Binary(names) if binary else Discrete(names))
    network = perturbed(actor_critic(spec, actions, shared), seed)
    batch, coefficients = minibatch(kind, rows, actions, seed), Coefficients(clip, value_clip, entropy, 0.5)
    readable, _ = twin(network)
    loss, wanted = ppo_loss(readable, kind, batch, coefficients)
    (0.7 * loss).backward()
    fast, _ = twin(network)
    found = mlp_layers(fast)
    assert found is not None
    evaluated = AnalyticPpo(found, kind, torch.float64).backward(batch, coefficients, 0.7)
    assert_equal(gradients_of(fast), gradients_of(readable))
    for name, values in evaluated._asdict().items():
        torch.testing.assert_close(values, getattr(wanted, name).detach(), rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("arm", [True, False])
def test_gradients_accumulate_and_numpy_tanh_matches_torch(arm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "ARM", arm)
    network = actor_critic(MlpSpec(hidden=(16, 8), activation="tanh"), 3, True)
    readable, slow = twin(network)
    fast, quick = twin(network)
    found = mlp_layers(fast)
    assert found is not None
    mlp = AnalyticMLP(found)
    for part in torch.randn(40, INPUTS, generator=torch.Generator().manual_seed(1)).chunk(2):
        outputs, value, _ = readable(part, readable.initial_hidden(len(part)))
        (outputs.sum() + 2 * value.sum()).backward()
        logits, values = mlp.forward(part)
        torch.testing.assert_close(logits, outputs.detach(), rtol=1e-5, atol=1e-6)
        mlp.backward([torch.ones_like(logits), torch.full((len(part),), 2.0)])
        assert values.shape == (len(part), 1)
    torch.testing.assert_close(quick.gradient, slow.gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "network",
    [
        actor_critic(MlpSpec(hidden=(8,), activation="silu"), 3, shared=True),
        actor_critic(MlpSpec(hidden=(8,), layer_norm=True), 3, shared=True),
        actor_critic(MlpSpec(hidden=(8,), recurrent=RecurrentSpec(size=6)), 3, shared=True),
        actor_critic(MlpSpec(hidden=(8,)), 2, shared=False, log_std=0.0),
    ],
)
def test_networks_with_other_layers_have_no_fast_path(network: ActorCritic) -> None:
    assert mlp_layers(network) is None
