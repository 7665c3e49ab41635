"""One layer laid over another."""

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


def laid(*texts: str) -> Any:
    return reduce(merge, (normalize(parse(text, f"{i}.yaml")) for i, text in enumerate(texts))).to_python()


def test_mappings_merge_at_every_depth_and_lists_are_replaced() -> None:
    found = laid("a: {b: {c: 1, d: 2}, e: [1, 2]}\nf: 3", "a: {b: {d: 5}, e: [9]}\ng: 4")
    assert found == {"a": {"b": {"c": 1, "d": 5}, "e": (9,)}, "f": 3, "g": 4}


def test_another_name_drops_the_settings_of_the_part_below() -> None:
    assert laid("agent: {name: dqn, replay: 5}", "agent: {name: ppo, clip: .1}")["agent"] == {
        "name": "ppo",
        "clip": 0.1,
    }
    assert laid(
        "explore: {action_selection: {name: epsilon, end: .2}, bonus: rnd}", "explore: {action_selection: boltzmann}"
    ) == {"explore": {"action_selection": {"name": "boltzmann"}, "bonus": {"name": "rnd"}}}


def test_the_same_name_or_none_keeps_them() -> None:
    below = "agent: {name: dqn, replay: 5}"
    for above in ("agent: {lr: 1}", "agent: {name: dqn, lr: 1}"):
        assert laid(below, above)["agent"] == {"name": "dqn", "replay": 5, "lr": 1}
    assert laid(below, "agent: dqn")["agent"] == {"name": "dqn", "replay": 5}


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
def test_a_number_below_part_of_a_schedule_is_its_start(below: str, expected: dict[str, Any]) -> None:
    assert laid(f"agent: {{lr: {below}}}", "agent: {lr: {end: .5}}")["agent"]["lr"] == expected


def test_a_whole_schedule_or_another_mapping_replaces_a_number() -> None:
    assert laid("a: 3", "a: {start: 1, end: 2}")["a"] == {"start": 1, "end": 2}
    assert laid("a: 3", "a: {size: 1}")["a"] == {"size": 1}


def test_a_mapping_over_a_list_speaks_of_its_entries_by_name() -> None:
    below = "rewards: [milestone, {name: potential, weight: 2}]"
    assert laid(below, "rewards: {potential: {weight: 3}, milestone: {death: -1}}")["rewards"] == (
        {"name": "milestone", "death": -1},
        {"name": "potential", "weight": 3},
    )
    assert laid(below, "rewards: {survival: {weight: 3}}")["rewards"] == {"survival": {"weight": 3}}


@pytest.mark.parametrize(
    ("text", "value"), [("1e5", 100_000), ("2.5e6", 2_500_000), ("1.0", 1.0), ("0.0", 0.0), ("2.5", 2.5), ("-3.0", -3)]
)
def test_whole_numbers_are_whole_however_they_are_written(text: str, value: float) -> None:
    found = laid(f"a: [{{b: {text}}}]")["a"][0]["b"]
    assert found == value
    assert type(found) is type(value)


def test_values_keep_the_place_they_came_from() -> None:
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
def test_what_is_laid_over_twice_is_laid_over_once_and_grouping_does_not_matter(a: Any, b: Any, c: Any) -> None:
    ab, bc = merge(node(a), node(b)), merge(node(b), node(c))
    assert merge(ab, node(b)).to_python() == ab.to_python()
    assert merge(node({}), node(a)).to_python() == merge(node(a), node({})).to_python() == a
    # A scalar between two mappings hides the lower one only when they are laid one by one.
    if not _cut(a, b) and not _cut(b, c) and not _cut(a, c):
        assert merge(ab, node(c)).to_python() == merge(node(a), bc).to_python()


def _cut(a: Any, b: Any) -> bool:
    """Whether a mapping meets something else anywhere."""
    if isinstance(a, dict) != isinstance(b, dict):
        return True
    return isinstance(a, dict) and any(_cut(a[key], b[key]) for key in a.keys() & b.keys())
