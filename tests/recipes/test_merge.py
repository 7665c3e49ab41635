"""Merging of recipe layers."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet.config.merge import merge
from townlet.config.yaml import Node, parse
from townlet.errors import SourceLocation
from townlet.recipes.layers import normalize


def merged(*texts: str) -> Any:
    return reduce(merge, (normalize(parse(text, f"{i}.yaml")) for i, text in enumerate(texts))).to_python()


def test_mappings_merge_at_every_depth_and_lists_are_replaced() -> None:
    found = merged("a: {b: {c: 1, d: 2}, e: [1, 2]}\nf: 3", "a: {b: {d: 5}, e: [9]}\ng: 4")
    assert found == {"a": {"b": {"c": 1, "d": 5}, "e": (9,)}, "f": 3, "g": 4}


def test_other_name_replaces_inherited_settings() -> None:
    assert merged("agent: {name: dqn, replay: 5}", "agent: {name: ppo, clip: .1}")["agent"] == {
        "name": "ppo",
        "clip": 0.1,
    }
    assert merged(
        "explore: {action_selection: {name: epsilon, end: .2}, bonus: rnd}", "explore: {action_selection: boltzmann}"
    ) == {"explore": {"action_selection": {"name": "boltzmann"}, "bonus": {"name": "rnd"}}}


def test_same_or_missing_name_keeps_inherited_settings() -> None:
    below = "agent: {name: dqn, replay: 5}"
    for above in ("agent: {lr: 1}", "agent: {name: dqn, lr: 1}"):
        assert merged(below, above)["agent"] == {"name": "dqn", "replay": 5, "lr": 1}
    assert merged(below, "agent: dqn")["agent"] == {"name": "dqn", "replay": 5}


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("1e-3", {"start": 1e-3, "end": 0.5}),
        ("cos_.2", {"start": 0.2, "shape": "cosine", "end": 0.5}),
        ("{start: 7, to: .3}", {"start": 7, "to": 0.3, "end": 0.5}),
        ("word", {"end": 0.5}),
        ("lin_word", {"end": 0.5}),
        ("true", {"end": 0.5}),
        ("null", {"end": 0.5}),
    ],
)
def test_partial_schedule_over_number_starts_at_it(below: str, expected: dict[str, Any]) -> None:
    assert merged(f"agent: {{lr: {below}}}", "agent: {lr: {end: .5}}")["agent"]["lr"] == expected


def test_complete_schedule_or_other_mapping_replaces_number() -> None:
    assert merged("a: 3", "a: {start: 1, end: 2}")["a"] == {"start": 1, "end": 2}
    assert merged("a: 3", "a: {size: 1}")["a"] == {"size": 1}


def test_mapping_over_list_changes_named_entries() -> None:
    below = "rewards: [milestone, {name: potential, weight: 2}]"
    assert merged(below, "rewards: {potential: {weight: 3}, milestone: {death: -1}}")["rewards"] == (
        {"name": "milestone", "death": -1},
        {"name": "potential", "weight": 3},
    )
    assert merged(below, "rewards: {survival: {weight: 3}}")["rewards"] == {"survival": {"weight": 3}}


@pytest.mark.parametrize(
    ("text", "value"), [("1e5", 100_000), ("2.5e6", 2_500_000), ("1.0", 1.0), ("0.0", 0.0), ("2.5", 2.5), ("-3.0", -3)]
)
def test_integral_numbers_become_integers(text: str, value: float) -> None:
    found = merged(f"a: [{{b: {text}}}]")["a"][0]["b"]
    assert found == value
    assert type(found) is type(value)


def test_values_keep_their_source_location() -> None:
    found = merge(parse("a: {b: 1,\n c: 2}", "x.yaml"), parse("\n\na: {b: 3}", "y.yaml"))
    assert str(found.location_of("a", "b")) == "y.yaml:3:5"
    assert str(found.location_of("a", "c")) == "x.yaml:2:2"


scalars = st.integers(-5, 5) | st.text("abc", max_size=2)
trees = st.recursive(scalars, lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=3), max_leaves=8)
roots = st.dictionaries(st.sampled_from("abcd"), trees, max_size=3)


def node(value: Any) -> Node:
    below = {key: node(part) for key, part in value.items()} if isinstance(value, dict) else value
    return Node(below, SourceLocation("x"))


@given(roots, roots, roots)
def test_merge_is_idempotent_and_associative(a: Any, b: Any, c: Any) -> None:
    ab, bc = merge(node(a), node(b)), merge(node(b), node(c))
    assert merge(ab, node(b)).to_python() == ab.to_python()
    assert merge(node({}), node(a)).to_python() == merge(node(a), node({})).to_python() == a
    # A scalar between two mappings hides the lower one only when they are merged one by one.
    if not _cut(a, b) and not _cut(b, c) and not _cut(a, c):
        assert merge(ab, node(c)).to_python() == merge(node(a), bc).to_python()


def _cut(a: Any, b: Any) -> bool:
    """Whether a mapping is merged with a value of another kind anywhere."""
    if isinstance(a, dict) != isinstance(b, dict):
        return True
    return isinstance(a, dict) and any(_cut(a[key], b[key]) for key in a.keys() & b.keys())
