"""Properties of every network on every layout that it accepts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from nets.layouts import draws, law, make, networks, observations
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.body import build_body
from townlet.nets.spec import MlpSpec, NetworkSpec, RecurrentSpec
from townlet.town.world.load import load

T, B = 5, 4
Given = tuple[NetworkSpec, ObservationLayout]


@law
@given(networks())
def test_shapes_match_the_declared_sizes(given: Given) -> None:
    body, layout = make(*given), given[1]
    start = body.initial_hidden(B)
    assert start.shape == (B, body.hidden_size)
    assert not start.any()
    features, hidden = body(observations(layout, B), start)
    assert features.shape == (B, body.features)
    assert hidden.shape == (B, body.hidden_size)
    features, hidden = body(observations(layout, T, B), start)
    assert features.shape == (T, B, body.features)
    assert hidden.shape == (B, body.hidden_size)
    assert features.isfinite().all()


@law
@given(networks(smooth=True))
def test_every_weight_gets_a_gradient(given: Given) -> None:
    body, layout = make(*given), given[1]
    assume(any(True for _ in body.parameters()))
    features, _ = body(observations(layout, T, B), draws(B, body.hidden_size))
    (features * draws(T, B, body.features, seed=1)).sum().backward()  # any loss; squares of normed layers are constant
    for name, weights in body.named_parameters():
        assert weights.grad is not None, name
        assert weights.grad.abs().max() > 0, name


@law
@given(networks())
def test_without_carry_every_step_is_a_first_step(given: Given) -> None:
    body, layout = make(*given), given[1]
    obs = observations(layout, T, B)
    firsts = torch.stack([body(step, body.initial_hidden(B))[0] for step in obs])
    body.carry = False
    features, hidden = body(obs, body.initial_hidden(B))
    torch.testing.assert_close(features, firsts)
    assert not hidden.any()
    assert not body.advance_hidden(obs, body.initial_hidden(B)).any()


@law
@given(networks(), st.integers(0, B - 1))
def test_rows_are_independent(given: Given, row: int) -> None:
    body, layout = make(*given), given[1]
    obs, hidden, fresh = observations(layout, T, B), draws(B, body.hidden_size), draws(T, B) > 0.5
    features, after = body(obs, hidden, fresh)
    other_obs, other_hidden, other_fresh = obs.clone(), hidden.clone(), fresh.clone()
    other_obs[:, row] = observations(layout, T, seed=1)
    other_hidden[row] += 1
    other_fresh[:, row] = ~fresh[:, row]
    other, other_after = body(other_obs, other_hidden, other_fresh)
    same = torch.arange(B) != row
    torch.testing.assert_close(other[:, same], features[:, same], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(other_after[same], after[same], atol=1e-5, rtol=1e-5)


@law
@given(networks(), st.sampled_from((0.0, 0.1, 0.5)))
def test_sequence_equals_single_steps(given: Given, chance: float) -> None:
    body, layout = make(*given), given[1]
    obs, hidden, fresh = observations(layout, T, B), draws(B, body.hidden_size), (draws(T, B, seed=2) + 1) / 2 < chance
    features, after = body(obs, hidden, fresh)
    for t in range(T):
        step, hidden = body(obs[t], hidden, fresh[t])
        torch.testing.assert_close(step, features[t], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(hidden, after, atol=1e-5, rtol=1e-5)


@law
@given(networks(memory=True), st.integers(0, T - 1))
def test_rows_at_an_episode_start_have_no_memory(given: Given, at: int) -> None:
    body, layout = make(*given), given[1]
    obs, fresh = observations(layout, T, B), torch.zeros(T, B, dtype=torch.bool)
    fresh[at, 1] = True
    poisoned = draws(B, body.hidden_size)
    poisoned[1] = 1e3 if at else torch.nan  # even an invalid hidden state is cleared here
    features, after = body(obs, poisoned, fresh)
    alone, alone_after = body(obs[at:, 1:2], body.initial_hidden(1))
    torch.testing.assert_close(features[at:, 1:2], alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after[1:2], alone_after, atol=1e-5, rtol=1e-5)


@law
@given(networks(memory=True))
def test_earlier_observations_change_later_features(given: Given) -> None:
    body, layout = make(*given), given[1]
    obs = observations(layout, B)
    one, _ = body(obs, body.initial_hidden(B))
    two, _ = body(obs, draws(B, body.hidden_size) * 3)
    assert (one != two).any()


@law
@given(networks(), st.integers(0, 9))
def test_same_stream_gives_the_same_weights(given: Given, seed: int) -> None:
    before = torch.random.get_rng_state()
    one, two, other = (make(*given, seed=s).state_dict() for s in (seed, seed, seed + 1))
    assert torch.equal(torch.random.get_rng_state(), before)  # no global random state is used up
    assert all(torch.equal(one[name], two[name]) for name in one)
    weights = [name for name in one if one[name].dim() > 1]
    assert not weights or any(not torch.equal(one[name], other[name]) for name in weights)


@law
@given(networks())
def test_state_dict_restores_a_body(given: Given) -> None:
    one, two = make(*given), build_body(*given)
    two.load_state_dict(one.state_dict())
    obs, hidden = observations(given[1], B), draws(B, one.hidden_size)
    assert torch.equal(one(obs, hidden)[0], two(obs, hidden)[0])
    assert set(one.state_dict()) == {name for name, _ in one.named_parameters()}


def test_mlp_has_the_declared_layers() -> None:
    body = make(MlpSpec(), load("town").layout)
    obs = observations(load("town").layout, 3)
    first, second = (m for m in body.modules() if isinstance(m, torch.nn.Linear))
    expected = torch.relu(second(torch.relu(first(obs))))
    torch.testing.assert_close(body(obs, body.initial_hidden(3))[0], expected)
    assert (first.in_features, body.features, body.hidden_size) == (88, 128, 0)


def test_recurrent_layer_is_between_hidden_and_post_layers() -> None:
    spec = MlpSpec(hidden="tiny", recurrent=RecurrentSpec(kind="gru", size=16, post_widths=(8,)))
    body = make(spec, load("town").layout)
    assert (body.features, body.hidden_size) == (8, 16)
    both = make(MlpSpec(recurrent=RecurrentSpec(kind="lstm", size=16, post_widths=())), load("town").layout)
    assert (both.features, both.hidden_size) == (16, 32)


def test_each_index_value_has_its_own_embedding() -> None:
    layout = ObservationLayout.of(
        ("state", (), 0.0, 3.0, "index"), ("dice", (2,), 1.0, 6.0, "index"), ("x", (1,), 0.0, 1.0)
    )
    body = make(MlpSpec(hidden=(), embedding=5), layout)
    obs = torch.tensor([[0.0, 1, 6, 0.5], [3.0, 6, 1, 0.25], [3.0, 1, 1, 0.0]])
    features, _ = body(obs, body.initial_hidden(3))
    assert features.shape == (3, 5 + 2 * 5 + 1)
    assert features[:, -1].tolist() == [0.5, 0.25, 0.0]
    assert torch.equal(features[1, :5], features[2, :5])
    assert not torch.equal(features[0, :5], features[1, :5])
    assert torch.equal(features[0, 5:10], features[2, 5:10])  # the first die shows 1 twice
    assert torch.equal(features[1, 10:15], features[2, 10:15])
    assert not torch.equal(features[2, 5:10], features[2, 10:15])  # the second index has its own embedding


@pytest.mark.parametrize("high", [2.5, 1e9, float("inf")])
def test_unbounded_index_is_rejected(high: float) -> None:
    with pytest.raises(TownletError, match="'state' is an index from 0 to"):
        build_body(MlpSpec(), ObservationLayout.of(("state", (), 0.0, high, "index")))
