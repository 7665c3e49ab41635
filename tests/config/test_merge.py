"""Inheritance: laws of merging, and merging of lists by name."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from townlet.config.merge import entry_name, merge
from townlet.config.yaml import Node, parse
from townlet.errors import SourceLocation

NAMED = ("meters", "rewards")

keys = st.sampled_from("abcd")
values = st.recursive(
    st.integers(0, 9) | st.text("xy", max_size=2),
    lambda v: st.lists(v, max_size=2) | st.dictionaries(keys, v, max_size=3),
    max_leaves=8,
)
entries = st.lists(
    st.builds(
        lambda name, rest: {"name": name, **rest}, st.sampled_from("NOPQ"), st.dictionaries(keys, values, max_size=2)
    ),
    max_size=4,
    unique_by=lambda entry: entry["name"],
)
files = st.builds(
    lambda top, meters: {"id": 1, **top, **meters},
    st.dictionaries(keys, values, max_size=4),
    st.dictionaries(st.just("meters"), entries, max_size=1),
)


def node(data: dict[str, Any], source: str = "x") -> Node:
    return parse(json.dumps(data), source)


def merged(parent: str, child: str) -> Any:
    return merge(parse(parent, "parent"), parse(child, "child"), NAMED).to_python()


@given(files)
def test_merging_an_empty_file_changes_nothing(data: dict[str, Any]) -> None:
    empty = Node({}, SourceLocation("empty"))
    assert merge(node(data), empty, NAMED).to_python() == node(data).to_python()
    assert merge(empty, node(data), NAMED).to_python() == node(data).to_python()


@given(files)
def test_merging_a_file_with_itself_changes_nothing(data: dict[str, Any]) -> None:
    assert merge(node(data), node(data), NAMED).to_python() == node(data).to_python()


@given(files, files)
def test_parent_order_stays_and_child_wins(a: dict[str, Any], b: dict[str, Any]) -> None:
    result = merge(node(a), node(b), NAMED).to_python()
    assert list(result) == [*a, *(key for key in b if key not in a)]
    for key, value in node(b).to_python().items():
        if not isinstance(value, (dict, tuple)):
            assert result[key] == value
    old, new = ([m["name"] for m in f.get("meters", ())] for f in (a, b))
    assert [m["name"] for m in result.get("meters", ())] == [*old, *(name for name in new if name not in old)]


def test_mappings_merge_at_every_depth_and_lists_are_replaced() -> None:
    assert merged("map: {size: [8, 8], a: {b: 1, c: 2}}", "map: {size: [5], a: {c: 3}}") == {
        "map": {"size": (5,), "a": {"b": 1, "c": 3}}
    }
    assert merged("map: {size: 1}", "map: null") == {"map": None}
    assert merged("x: [{name: a, v: 1}]", "x: [{name: a}]") == {"x": ({"name": "a"},)}


def test_named_entries_merge_by_name() -> None:
    parent = "meters: [{name: a, v: 1, w: {x: 1}}, {name: b, v: 2}]"
    assert merged(parent, "meters: [{name: c}, {name: a, v: 9, w: {y: 2}}]") == {
        "meters": ({"name": "a", "v": 9, "w": {"x": 1, "y": 2}}, {"name": "b", "v": 2}, {"name": "c"})
    }


def test_only_top_level_lists_merge_by_name() -> None:
    assert merged("deep: {meters: [{name: a, v: 1}]}", "deep: {meters: [{name: b}]}") == {
        "deep": {"meters": ({"name": "b"},)}
    }


def test_links_are_named_by_source_and_target() -> None:
    parent = "meters: [{source: a, target: b, v: 1}, {source: a, target: c, v: 2}]"
    assert merged(parent, "meters: [{source: a, target: c, v: 3}]")["meters"][1] == {
        "source": "a",
        "target": "c",
        "v": 3,
    }
    assert merged(parent, "meters: [{name: a->b, v: 4}]")["meters"][0]["v"] == 4


def test_bare_words_are_their_own_names() -> None:
    assert merged("rewards: [a, b]", "rewards: [{name: b, v: 1}, c]") == {"rewards": ("a", {"name": "b", "v": 1}, "c")}
    assert merged("rewards: [{name: a, v: 1}]", "rewards: [a]") == {"rewards": ({"name": "a", "v": 1},)}


def test_repeated_name_stays_repeated_for_later_checks() -> None:
    found = merged("meters: [{name: a, v: 1}]", "meters: [{name: a, v: 2}, {name: a, v: 3}]")["meters"]
    assert [entry["v"] for entry in found] == [2, 3]


def test_locations_name_the_file_of_each_value() -> None:
    whole = merge(parse("a: {b: 1, c: 2}\nd: 1", "parent"), parse("a: {c: 3}", "child"), NAMED)
    assert whole.location_of("a", "b") == SourceLocation("parent", 1, 5)
    assert whole.location_of("a", "c") == SourceLocation("child", 1, 5)
    assert whole.location_of("a") == SourceLocation("child", 1, 1)
    assert whole.location_of("d") == SourceLocation("parent", 2, 1)


def test_entries_without_a_name_have_none() -> None:
    for text in ("{a: 1}", "{name: 5}", "[x]", "5", "{source: a}"):
        entry = parse(f"k: {text}", "x").child("k")
        assert entry is not None
        assert entry_name(entry) is None
