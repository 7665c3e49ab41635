"""Both policies return probabilities of all 800 actions and start nearly uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decide.hive.reference import Sample, batch_of, law, samples, times_of
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.gate import HiveGateSettings
from townlet.decide.domains.hive.policies import FactoredPolicy, candidate_mask
from townlet.rng import Streams


def run(name: str, *samples: Sample, seed: int = 0) -> tuple[torch.Tensor, torch.nn.Module, np.ndarray]:
    batch, time = batch_of(*samples), times_of(*samples)
    gated = DOMAIN.gate(batch, time, HiveGateSettings())
    spec = DOMAIN.policies[name]
    network = spec.build(Streams(seed).torch("weights"))
    inputs = spec.inputs(batch, time, gated)
    assert all(part.dtype == np.float32 for part in inputs)
    return network(*map(torch.from_numpy, inputs)), network, candidate_mask(gated)


def test_factored_policy_has_15217_parameters() -> None:
    assert sum(weights.numel() for weights in FactoredPolicy().parameters()) == 15_217
    assert next(iter(DOMAIN.policies)) == "plain"


@law
@given(st.sampled_from(("plain", "candidates")), st.lists(samples, min_size=1, max_size=3))
def test_probabilities_sum_to_one(name: str, samples: list[Sample]) -> None:
    found, _, wanted = run(name, *samples)
    assert found.shape == (len(samples), 800)
    assert found.exp().sum(1).detach().numpy() == pytest.approx(1.0, abs=1e-4)
    possible = wanted if name == "candidates" else np.ones_like(wanted)
    assert (found.isfinite().numpy() == possible).all()


def test_factored_policy_is_chunk_times_type() -> None:
    network: Any = run("plain", Sample())[1]
    with torch.no_grad():
        network.combat.bias.fill_(1.5)
        network.chunk.weight.mul_(1000)
    features = torch.rand(2, 28, generator=Streams(0).torch("features"))
    probabilities = network(features).exp().reshape(2, 2, 400)
    by_type, by_chunk = probabilities.sum(2), probabilities.sum(1)
    torch.testing.assert_close(probabilities, by_type[:, :, None] * by_chunk[:, None])
    combat = torch.sigmoid(network.combat(network.body(features)))[:, 0]
    torch.testing.assert_close(by_type[:, 1], combat)
    assert by_chunk.max() > 2 * by_chunk.min()


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_weights_depend_only_on_the_generator(name: str) -> None:
    torch.manual_seed(1)
    one = run(name, Sample(), seed=3)[1].state_dict()
    torch.manual_seed(2)
    same, other = run(name, Sample(), seed=3)[1].state_dict(), run(name, Sample(), seed=4)[1].state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_initial_policies_are_nearly_uniform(name: str) -> None:
    found, _, wanted = run(name, Sample(present=(210, 45), protectors=(7,), time=500.0))
    log_p = found[0][torch.from_numpy(wanted[0])] if name == "candidates" else found[0]
    assert log_p.max() - log_p.min() < 0.5


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_gradient_step_raises_probability_of_action(name: str) -> None:
    sample = Sample(present=(210, 45), protectors=(7,), time=500.0)
    found, network, wanted = run(name, sample)
    action = int(np.flatnonzero(wanted[0])[20])
    before = found[0, action].item()
    (-found[0, action]).backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in network.parameters())
    with torch.no_grad():
        for weights in network.parameters():
            assert weights.grad is not None
            weights.sub_(0.05 * weights.grad)
    batch, time = batch_of(sample), times_of(sample)
    spec = DOMAIN.policies[name]
    inputs = spec.inputs(batch, time, DOMAIN.gate(batch, time, HiveGateSettings()))
    assert network(*map(torch.from_numpy, inputs))[0, action] > before


@law
@given(st.lists(samples, min_size=1, max_size=3), st.integers(0, 99), st.sampled_from((1.0, 30.0)))
def test_small_batch_matches_torch(samples: list[Sample], seed: int, sharp: float) -> None:
    batch, time = batch_of(*samples), times_of(*samples)
    spec = DOMAIN.policies["plain"]
    assert spec.small_batch
    network = spec.build(Streams(seed).torch("weights"))
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(sharp)  # in place, as loading weights does
        (features,) = spec.inputs(batch, time, DOMAIN.gate(batch, time, HiveGateSettings()))
        expected = network(torch.from_numpy(features)).exp().numpy()
    assert spec.small_batch(network, features) == pytest.approx(expected, abs=1e-4)
