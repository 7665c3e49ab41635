"""Both policies give probabilities of all 800 actions, and begin alike everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decide.hive.reference import Seen, law, scene_of, sights, times_of
from townlet.decide.domains.hive import DOMAIN
from townlet.decide.domains.hive.features import candidates
from townlet.decide.domains.hive.gate import GateSettings
from townlet.decide.domains.hive.networks import Plain
from townlet.rng import Streams


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(name: str, *seen: Seen, seed: int = 0) -> tuple[torch.Tensor, torch.nn.Module, np.ndarray]:
    scene, time = scene_of(*seen), times_of(*seen)
    verdicts = DOMAIN.gate(scene, time, GateSettings())
    kind = DOMAIN.policies[name]
    network = kind.build(Streams(seed).torch("weights"))
    inputs = kind.inputs(scene, time, verdicts)
    assert all(part.dtype == np.float32 for part in inputs)
    return network(*map(torch.from_numpy, inputs)), network, candidates(verdicts)


def test_the_plain_network_has_15217_parameters() -> None:
    assert sum(weights.numel() for weights in Plain().parameters()) == 15_217
    assert next(iter(DOMAIN.policies)) == "plain"


@law
@given(st.sampled_from(("plain", "candidates")), st.lists(sights, min_size=1, max_size=3))
def test_probabilities_add_up_to_one(name: str, seen: list[Seen]) -> None:
    found, _, wanted = run(name, *seen)
    assert found.shape == (len(seen), 800)
    assert found.exp().sum(1).detach().numpy() == pytest.approx(1.0, abs=1e-4)
    possible = wanted if name == "candidates" else np.ones_like(wanted)
    assert (found.isfinite().numpy() == possible).all()


def test_the_plain_policy_is_a_chunk_times_a_type() -> None:
    _, network, _ = run("plain", Seen())
    with torch.no_grad():
        network.combat.bias.fill_(1.5)
        network.chunk.weight.mul_(1000)
    features = torch.rand(2, 28, generator=Streams(0).torch("features"))
    chances = network(features).exp().reshape(2, 2, 400)
    by_type, by_chunk = chances.sum(2), chances.sum(1)
    torch.testing.assert_close(chances, by_type[:, :, None] * by_chunk[:, None])
    combat = torch.sigmoid(network.combat(network.body(features)))[:, 0]
    torch.testing.assert_close(by_type[:, 1], combat)
    assert by_chunk.max() > 2 * by_chunk.min()


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_weights_come_from_the_generator_alone(name: str) -> None:
    torch.manual_seed(1)
    one = run(name, Seen(), seed=3)[1].state_dict()
    torch.manual_seed(2)
    same, other = run(name, Seen(), seed=3)[1].state_dict(), run(name, Seen(), seed=4)[1].state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_first_policies_are_nearly_uniform(name: str) -> None:
    found, _, wanted = run(name, Seen(present=(210, 45), protectors=(7,), time=500.0))
    log_p = found[0][torch.from_numpy(wanted[0])] if name == "candidates" else found[0]
    assert log_p.max() - log_p.min() < 0.5


@pytest.mark.parametrize("name", ["plain", "candidates"])
def test_an_action_can_be_learned(name: str) -> None:
    seen = Seen(present=(210, 45), protectors=(7,), time=500.0)
    found, network, wanted = run(name, seen)
    action = int(np.flatnonzero(wanted[0])[20])
    before = found[0, action].item()
    (-found[0, action]).backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in network.parameters())
    with torch.no_grad():
        for weights in network.parameters():
            weights -= 0.05 * weights.grad
    scene, time = scene_of(seen), times_of(seen)
    kind = DOMAIN.policies[name]
    inputs = kind.inputs(scene, time, DOMAIN.gate(scene, time, GateSettings()))
    assert network(*map(torch.from_numpy, inputs))[0, action] > before


@law
@given(st.lists(sights, min_size=1, max_size=3), st.integers(0, 99), st.sampled_from((1.0, 30.0)))
def test_a_few_observations_get_the_same_without_torch(seen: list[Seen], seed: int, sharp: float) -> None:
    scene, time = scene_of(*seen), times_of(*seen)
    kind = DOMAIN.policies["plain"]
    assert kind.small_batch
    network = kind.build(Streams(seed).torch("weights"))
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(sharp)  # in place, as whoever loads weights does
        (features,) = kind.inputs(scene, time, DOMAIN.gate(scene, time, GateSettings()))
        expected = network(torch.from_numpy(features)).exp().numpy()
    assert kind.small_batch(network, features) == pytest.approx(expected, abs=1e-5)
