"""`key=value` from the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet.config.merge import apply_overrides
from townlet.config.yaml import parse
from townlet.errors import ConfigError, SourceLocation

FILE = """
max_steps: 500
observation: full
bonus:
map: {size: [8, 8], start: random}
meters:
  - {name: energy, decay: .005}
  - {name: mood}
cascades:
  - {source: mood, target: energy, strength: .1}
rewards: [milestone]
"""


def applied(*overrides: str) -> Any:
    return apply_overrides(parse(FILE, "w.yaml"), overrides).to_python()


def refused(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        applied(*overrides)
    return [str(mistake) for mistake in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("5.0", 5.0), ("1e-4", 1e-4), (".5", 0.5), ("true", True), ("null", None), ("word", "word"),
        ("'5'", "5"), ("[1, a]", (1, "a")), ("{a: {b: 1}}", {"a": {"b": 1}}), ("a=b", "a=b"), ('"a: b"', "a: b"),
        ("''", ""),
    ],
)  # fmt: skip
def test_values_are_typed(text: str, value: object) -> None:
    found = applied(f"max_steps={text}")["max_steps"]
    assert found == value
    assert type(found) is type(value)


@given(st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none())
def test_any_number_can_be_set(value: object) -> None:
    assert applied(f"max_steps={json.dumps(value)}") == {**applied(), "max_steps": value}


def test_a_path_goes_through_mappings_and_named_entries() -> None:
    assert applied("map.size=[5, 5]")["map"] == {"size": (5, 5), "start": "random"}
    assert applied("meters.energy.decay=.01")["meters"] == ({"name": "energy", "decay": 0.01}, {"name": "mood"})
    assert applied("meters.mood.bonus.above=.9")["meters"][1] == {"name": "mood", "bonus": {"above": 0.9}}
    assert applied("cascades.mood->energy.strength=0")["cascades"][0]["strength"] == 0
    assert applied("bonus.reward=1")["bonus"] == {"reward": 1}


def test_a_bare_word_in_a_list_takes_settings() -> None:
    assert applied("rewards.milestone.death=-50")["rewards"] == ({"name": "milestone", "death": -50},)


def test_later_overrides_win_and_build_on_earlier_ones() -> None:
    assert applied("max_steps=1", "max_steps=2")["max_steps"] == 2
    assert applied("meters=[{name: rest}]", "meters.rest.decay=.5")["meters"] == ({"name": "rest", "decay": 0.5},)


def test_unknown_keys_are_left_to_validation() -> None:
    node = apply_overrides(parse(FILE, "w.yaml"), ["max_step=3", "map.new.deeper=1"])
    assert node.to_python()["max_step"] == 3
    assert node.to_python()["map"]["new"] == {"deeper": 1}
    assert node.location_of("max_step") == SourceLocation("command line: max_step=3")
    assert node.location_of("map", "new", "deeper") == SourceLocation("command line: map.new.deeper=1")


def test_only_overridden_values_are_located_on_command_line() -> None:
    node = apply_overrides(parse(FILE, "w.yaml"), ["meters.energy.decay=.01", "description=" + "x" * 100])
    assert str(node.location_of("meters", 0, "decay")) == "command line: meters.energy.decay=.01"
    assert str(node.location_of("meters", 0, "name")) == "w.yaml:7:6"
    assert str(node.location_of("meters")) == "w.yaml:6:1"
    assert len(str(node.location_of("description"))) < 80


def test_input_tree_is_not_modified() -> None:
    node = parse(FILE, "w.yaml")
    before = node.to_python()
    apply_overrides(node, ["meters.energy.decay=.9", "map.size=[1]", "rewards.milestone.death=0"])
    assert node.to_python() == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("meters.enrgy.decay=1", "meters has no 'enrgy'; did you mean 'energy'?"),
        ("cascades.mood->helth.strength=1", "cascades has no 'mood->helth'; did you mean 'mood->energy'?"),
        ("map.size.0=5", "the entries of map.size have no names; set the entire list: map.size=[…]"),
        ("max_steps.x=1", "max_steps is 500 and has no keys; set max_steps itself"),
        ("observation.window.size=3", "observation is 'full' and has no keys; set observation itself"),
        ("max_steps", "this is not key=value; write it like max_steps=VALUE, as in max_steps=200 or agent.lr=1e-3"),
        ("=5", "this is not key=value;"),
        ("max_steps=", "there is no value; write null for no value, '' for an empty string"),
        ("max_steps=#5", "there is no value;"),
        ("map..size=5", "this is not key=value;"),
        ("a.=5", "this is not key=value;"),
        ("max_steps=*x", "aliases are not accepted (*x)"),
        ("max_steps=!!int 5", "tags are not accepted (!!int)"),
        ("max_steps=.nan", ".nan is not a finite number"),
        ("max_steps=[1", "a list in [ ] lacks a comma or its ]"),
        (
            "description=a: b",
            "a list or mapping needs brackets here; write [a, list] or {a: mapping}, or quote the string",
        ),
        (".".join("a" * 40) + "=1", "the path has more than 32 keys"),
    ],
)
def test_a_wrong_override_is_refused(override: str, message: str) -> None:
    found = refused(override)
    assert len(found) == 1
    assert found[0].startswith("command line: " + override[:40])
    assert f": {message}" in found[0]


@pytest.mark.parametrize("override", ["a\x1b=1", "a=\udc80", "\udc80=1"])
def test_hidden_characters_are_refused_and_shown_as_escapes(override: str) -> None:
    assert refused(override)[0].isprintable()


def test_all_wrong_overrides_are_reported_at_once() -> None:
    assert len(refused("max_steps", "meters.x.decay=1", "max_steps=4", "map.size.1=2")) == 3
