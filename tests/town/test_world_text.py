"""Short texts of worlds, and edits of texts that keep everything else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.errors import TownletError
from townlet.town.world.edits import add_entry, remove_entry, rename_entry, set_value
from townlet.town.world.load import from_text, load, shipped
from townlet.town.world.text import short_text
from townlet.town.world.yaml_text import WIDTH

MINE = """\
# My town.
extends: town # the standard one

meters:
  # hungry sooner
  - {name: satiation, decay: .012}
affordances:
  - name: Library # many books
    icon: 📚
    cell: [3, 3]
    each_tick: {mood: .05}
"""
NUMBERS = {
    ("affordances", "Bed", "price"): st.floats(0, 0.3),
    ("affordances", "Library", "price"): st.floats(0, 0.3),
    ("affordances", "Job", "ticks"): st.integers(1, 9),
    ("affordances", "Park", "each_tick", "mood"): st.floats(-0.5, 0.5),
    ("affordances", "Library", "at_end", "energy"): st.floats(-0.5, 0.5),
    ("meters", "satiation", "decay"): st.floats(0, 0.02),
    ("meters", "mood", "start"): st.floats(0.1, 1),
    ("max_steps",): st.integers(10, 900),
}


def value_at(spec: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of the compiled settings."""
    found = spec.model_dump(mode="json")
    for key in path:
        found = next(entry for entry in found if entry["name"] == key) if isinstance(found, list) else found[key]
    return found


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize(
    "change", [[], ["max_steps=77"], ["rewards=[{name: survival}]"]], ids=["same", "limit", "reward"]
)
def test_short_text_compiles_to_the_same_world(name: str, change: list[str]) -> None:
    world = load(name, change)
    text = short_text(world)
    assert from_text(text).content_hash == world.content_hash
    assert text.startswith("extends: ")
    assert "null" not in text
    assert len(text.splitlines()) < 12


def test_short_text_lists_only_what_is_different() -> None:
    world = from_text("extends: town\nremove: [Gym]\naffordances: [{name: Bed, price: .05}]\nclock: {temporal: true}\n")
    lines = short_text(world).splitlines()
    assert lines[0] == "extends: town"
    assert "  - {name: Bed, price: 0.05}" in lines
    assert "remove: [Gym]" in lines
    assert "clock: {temporal: true}" in lines


def test_world_that_extends_nothing_has_a_short_text_of_its_own() -> None:
    own = """
meters: [{name: energy, decay: .01, move: .01}]
lethal: [energy]
map: {size: [3, 3]}
affordances: [{name: Spring, cell: [1, 1], each_tick: {energy: .3}}]
observation: [position, meters, affordance_here]
"""
    text = short_text(from_text(own))
    assert from_text(text).content_hash == from_text(own).content_hash
    assert max(map(len, text.splitlines())) <= WIDTH


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_setting_a_value_changes_it_and_nothing_else(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(NUMBERS)))
    value = data.draw(NUMBERS[path])
    text = set_value(MINE, path, value)
    before, after = from_text(MINE).spec, from_text(text).spec
    assert value_at(after, path) == pytest.approx(value, abs=1e-6)
    for other in NUMBERS:
        if other != path and not (len(other) > 3 and other[2] in ("at_end", "each_tick")):
            assert value_at(after, other) == value_at(before, other)
    for comment in ("# My town.", "# the standard one", "# hungry sooner", "# many books"):
        assert comment in text


def test_restored_values_leave_no_trace() -> None:
    text = set_value(set_value(MINE, ["affordances", "Bed", "price"], 0.2), ["clock", "temporal"], True)
    for path in (["affordances", "Bed", "price"], ["clock", "temporal"]):
        text = set_value(text, path, None)
    assert from_text(text).content_hash == from_text(MINE).content_hash
    assert "Bed" not in text
    assert "clock" not in text


def test_entries_are_added_removed_and_renamed() -> None:
    pool = {"name": "Pool", "icon": "🏊", "cell": [5, 5], "ticks": 2, "each_tick": {"fitness": 0.05}}
    text = add_entry(MINE, "affordances", pool)
    assert from_text(text).affordances[-2:] == ("Library", "Pool")
    text = rename_entry(text, "affordances", "Pool", "Lake")
    text = remove_entry(remove_entry(text, "affordances", "Gym"), "affordances", "Library")
    names = from_text(text).affordances
    assert "Lake" in names
    assert not {"Gym", "Library", "Pool"} & {*names}
    assert "# hungry sooner" in text
    assert "remove: [Gym]" in text


def test_meters_of_a_world_can_be_changed_in_a_text_without_lists() -> None:
    text = set_value("extends: town\n", ["meters", "energy", "decay"], 0.004)
    assert text == "extends: town\nmeters:\n  - {name: energy, decay: 0.004}\n"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda: set_value(MINE, ["affordances", "Bedd", "price"], 0.1),
            "no 'Bedd' in affordances; did you mean",
        ),
        (lambda: add_entry(MINE, "affordances", {"name": "Bed"}), "already 'Bed' in affordances; choose another name"),
        (lambda: remove_entry(MINE, "affordances", "Cinema"), "no 'Cinema' in affordances"),
        (lambda: rename_entry(MINE, "affordances", "Bed", "Couch"), "'Bed' is inherited and cannot be renamed"),
        (lambda: rename_entry(MINE, "affordances", "Library", "Bed"), "already 'Bed'"),
        (lambda: set_value("a: [", ["max_steps"], 3), "a value is missing here"),
    ],
)
def test_impossible_edits_are_refused(edit: Any, message: str) -> None:
    with pytest.raises(TownletError, match=message):
        edit()


ODD = (
    "affordances: 3",
    "extends: town\nremove: 3",
    "extends: town\nremove: Bed",
    "extends: town\naffordances: {Bed: {}}",
    "extends: town\naffordances: {Bed: {price: .1}}",
    "extends: town\naffordances: [3, [], Bed, {price: 1}, null, {name: [Bed]}]",
    "extends: [town]\nmeters: null",
    "extends: town\nclock: 3\nremove: [Bed, Bed, 3, {a: b}]",
    "extends: town\nremove: [Bed]\naffordances: [{name: Bed, price: .1}]",
    "extends: town\naffordances: [{name: Bed, each_tick: 7}]",
    "? [a, b]\n: 3",
    "a: 2001-99-99\nb: !!python/object:os.system {}",
    "[]",
    "",
)
NAMES = st.sampled_from(["Bed", "Gym", "Pool", "energy", "name", "3", "", "a->b"])
VALUES = st.sampled_from([None, 3, 0.5, "x: [", "Bed", True, [1, 2], {"energy": 1}, {}, float("nan"), 1e308, "\x00"])
SECTIONS = st.sampled_from(["affordances", "meters"])
KEYS = st.sampled_from(["affordances", "meters", "remove", "extends", "clock", "price", "each_tick", "cascades"])


@st.composite
def any_edit(draw: st.DrawFn) -> Callable[[str], str]:
    """An edit as the page may send it."""
    section, name, other = draw(SECTIONS), draw(NAMES), draw(NAMES)
    path = [draw(KEYS), *draw(st.lists(st.one_of(NAMES, KEYS), max_size=3))]
    value, entry = draw(VALUES), draw(st.dictionaries(st.one_of(KEYS, st.just("name"), st.just("cell")), VALUES))
    edits: list[Callable[[str], str]] = [
        lambda text: set_value(text, path, value),
        lambda text: add_entry(text, section, {"name": name, **entry}),
        lambda text: add_entry(text, section, entry),
        lambda text: remove_entry(text, section, name),
        lambda text: rename_entry(text, section, name, other),
    ]
    return draw(st.sampled_from(edits))


LINES = st.sampled_from(
    [
        "extends: town",
        "remove: [Bed]",
        "remove: 3",
        "affordances:",
        "  - Bed",
        "  - {name: Pool}",
        "meters: {}",
        "- 3",
        "a",
    ]
)
TEXTS = st.one_of(st.sampled_from(ODD), st.lists(LINES, max_size=6).map("\n".join), st.text(max_size=40))


@settings(deadline=None, max_examples=150)
@given(TEXTS, st.lists(any_edit(), min_size=1, max_size=3))
def test_any_edit_of_any_text_is_made_or_refused(text: str, edits: list[Callable[[str], str]]) -> None:
    with suppress(TownletError):
        for edit in edits:
            text = edit(text)
    with suppress(TownletError):
        from_text(text)


@pytest.mark.parametrize("text", ODD[:5])
def test_entries_that_are_not_in_a_list_are_not_lost(text: str) -> None:
    edits: list[Callable[[], str]] = [
        lambda: set_value(text, ["affordances", "Bed", "price"], 0.2),
        lambda: add_entry(text, "affordances", {"name": "Pool", "cell": [5, 5]}),
        lambda: remove_entry(text, "affordances", "Gym"),
    ]
    for edit in edits:
        with pytest.raises(TownletError, match=r"`(affordances|remove)` is not a list here"):
            edit()


@pytest.mark.parametrize("path", [["affordances"], ["affordances", "Library"], ["affordances", "Library", "name"]])
def test_whole_lists_and_entries_cannot_be_set(path: list[str]) -> None:
    values: list[Any] = [None, 3, {}]
    for value in values:
        with pytest.raises(TownletError, match="cannot be set"):
            set_value(MINE, path, value)


def test_mapping_in_place_of_a_value_is_not_written_over() -> None:
    with pytest.raises(TownletError, match="`clock` is not a mapping"):
        set_value("extends: town\nclock: [3]\n", ["clock", "temporal"], True)


@pytest.mark.parametrize("name", ["Bed", "Job", "Bar"])
def test_removed_place_can_be_added_again(name: str) -> None:
    (place,) = (one for one in load("town").spec.affordances if one.name == name)
    settings = place.model_dump(mode="json", exclude_defaults=True)
    text = add_entry(remove_entry(MINE, "affordances", name), "affordances", settings)
    assert text == MINE
    moved = add_entry(remove_entry(MINE, "affordances", name), "affordances", settings | {"cell": [7, 7]})
    assert f"- {{name: {name}, cell: [7, 7]}}" in moved
    assert "remove" not in moved
    other = {"name": name, "cell": [7, 7], "ticks": 3, "each_tick": {"mood": 0.1}}
    text = add_entry(remove_entry(remove_entry(MINE, "affordances", "Gym"), "affordances", name), "affordances", other)
    assert "remove: [Gym]" in text
    (found,) = (one for one in from_text(text).spec.affordances if one.name == name)
    by = {meter: change for meter, change in found.each_tick.items() if change}
    assert (found.cell, found.ticks, found.price, found.icon, by) == ((7, 7), 3, 0, "", {"mood": 0.1})


def test_entry_that_replaces_a_removed_one_is_edited_like_any_own_one() -> None:
    text = "extends: town\nremove: [Bed]\naffordances:\n  - {name: Bed, cell: [1, 1]}\n"
    with pytest.raises(TownletError, match="already 'Bed'"):
        add_entry(text, "affordances", {"name": "Bed"})
    assert "price: 0.1" in (changed := set_value(text, ["affordances", "Bed", "price"], 0.1))
    assert set_value(changed, ["affordances", "Bed", "price"], None) == text
    assert remove_entry(text, "affordances", "Bed") == "extends: town\nremove: [Bed]\n"
    assert "name: Couch" in rename_entry(text, "affordances", "Bed", "Couch")
