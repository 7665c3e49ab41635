"""Laws of hashed features and of exploration."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from townlet.decide.domain import InvalidMessage
from townlet.decide.domains.rank.features import MAX_ACTIONS, encode, flatten
from townlet.decide.domains.rank.networks import LinearRewards, MlpRewards
from townlet.decide.exploration import ExplorationSettings, explore
from townlet.nets.layers import initialize

names = st.text("abcde", min_size=1, max_size=3)
scalars = st.booleans() | st.floats(-100, 100) | st.text(max_size=5) | st.none()
objects = st.lists(
    st.dictionaries(names, scalars | st.dictionaries(names, scalars, max_size=3), max_size=4), max_size=3
)


@given(objects)
def test_features_do_not_depend_on_the_order_of_keys(given: list[dict[str, Any]]) -> None:
    turned = [dict(reversed(item.items())) for item in given]
    assert sorted(flatten(given, "x")) == sorted(flatten(turned, "x"))
    assert list(flatten(given, "x")) == list(flatten(given, "x"))


@given(names, names, st.floats(-100, 100), st.text(max_size=5))
def test_a_number_keeps_its_place_and_a_text_is_an_indicator(space: str, key: str, number: float, text: str) -> None:
    (one,), (two,) = (list(flatten([{space: {key: value}}], "x")) for value in (number, number + 1))
    assert one.hash == two.hash < 0
    assert (one.value, two.value) == (number, number + 1)
    (word,) = flatten([{space: {key: text}}], "x")
    assert word.hash >= 0
    assert word.value == 1.0


@given(objects, st.integers(1, MAX_ACTIONS))
def test_bounds_delimit_context_and_actions(context: list[dict[str, Any]], count: int) -> None:
    row = encode(context, [(str(k), [{"price": k}]) for k in range(count)], ["0"]).row
    bounds = row["bounds"]
    assert (np.diff(bounds) >= 0).all()
    assert bounds[1] == len(list(flatten(context, "x")))
    assert np.diff(bounds)[1 : count + 1].tolist() == [2] * count  # the id and the price
    assert row["allowed"].tolist() == [False, *[True] * (count - 1), *[False] * (MAX_ACTIONS - count)]


def test_two_namespaces_and_two_sides_have_different_features() -> None:
    found = {one.hash for one in flatten([{"a": {"x": "1"}, "b": {"x": "1"}, "x": "1", "a.x": "1"}], "x")}
    assert len(found) == 4


def test_too_many_features_are_refused_early() -> None:
    with pytest.raises(InvalidMessage, match="at most 1024 features"):
        encode([{"a": ["x"] * 100_000}], [("a", [])], [])


def event(count: int) -> tuple[torch.Tensor, ...]:
    actions = [(str(k), [{"price": float(k), "kind": "ab"[k % 2]}]) for k in range(count)]
    row = encode([{"user": {"age": 40, "home": "north"}}], actions, []).row
    return tuple(torch.from_numpy(row[name][None]) for name in ("index", "value", "bounds", "allowed"))


def test_gradient_of_the_linear_network_is_exact() -> None:
    network = LinearRewards(10, 2, True, ExplorationSettings())
    index, value, bounds, _ = event(4)
    network.table.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    scores = network.predict(index, value, bounds)
    assert (scores[0, 4:] == 0).all()
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))
    (scores * weights).sum().backward()
    gradient = network.table.weight.grad
    assert gradient is not None
    # Linear: the directional derivative along the weights is the value itself.
    along, value = (gradient * network.table.weight.detach()).sum(), (scores.detach() * weights).sum()
    assert float(along) == pytest.approx(float(value), rel=1e-4)


@pytest.mark.parametrize("kind", [LinearRewards, MlpRewards])
def test_order_of_actions_does_not_matter(kind: type[Any]) -> None:
    network = kind(*([12] if kind is LinearRewards else []), 1, True, ExplorationSettings())
    initialize(network, torch.Generator().manual_seed(3))
    for weights in network.parameters():
        weights.data.normal_(generator=torch.Generator().manual_seed(4))
    actions: list[tuple[str, list[dict[str, Any]]]] = [(name, [{"kind": name * 2}]) for name in "abcd"]
    rewards = []
    for order in (actions, actions[::-1]):
        row = encode([{"home": "north"}], order, []).row
        columns = (torch.from_numpy(row[name][None]) for name in ("index", "value", "bounds"))
        rewards.append(network.predict(*columns)[0, :4, 0].tolist())
    assert rewards[0] == pytest.approx(rewards[1][::-1], rel=1e-4)
    assert len(set(rewards[0])) == 4


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=6), st.sampled_from(["epsilon", "softmax", "squarecb"]),
    st.integers(0, 10_000),
)  # fmt: skip
def test_probabilities_are_a_distribution_that_prefers_better_actions(
    rewards: list[float], kind: Any, events: int
) -> None:
    allowed = torch.tensor([[k != 1 for k in range(len(rewards))]])
    probabilities = explore(
        torch.tensor([rewards]), allowed, torch.tensor(float(events)), ExplorationSettings(kind=kind)
    )[0]
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)
    assert float(probabilities[1]) == 0
    assert (probabilities[allowed[0]] > 0).all()
    order = sorted((value, float(p)) for k, (value, p) in enumerate(zip(rewards, probabilities, strict=True)) if k != 1)
    assert all(p <= q + 1e-6 for (_, p), (_, q) in pairwise(order))
