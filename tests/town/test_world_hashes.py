"""Two hashes: content, to resume a run; interface, to reuse an agent in another world."""

from __future__ import annotations

import pytest

from townlet.town.world.load import from_text, load

BEHAVIOR = (
    "max_steps=501", "map.size=[8, 9]", "map.boundary=wrap", "map.start=[0, 0]", "clock.temporal=true", "clock.day=30",
    "clock.start=1", "currency=mood", "lethal=[energy]", "lethal=[energy, health, mood]", "mask_unaffordable=true",
    "observation=partial", "rewards=[survival]", "rewards=[{name: milestone, bonus: .6}]", "meters.mood.start=.9",
    "meters.mood.decay=.002", "meters.energy.move=.006", "meters.energy.wait=.002", "meters.mood.bonus.above=.7",
    "modulations.fitness->health.base=.001", "cascades.mood->energy.threshold=.4", "cascades.mood->energy.strength=0",
    "affordances.Bed.cell=[0, 0]", "affordances.Bed.ticks=4", "affordances.Bed.price=.02",
    "affordances.Bed.hours=[1, 2]", "affordances.Bed.each_tick.energy=.08", "affordances.Bed.at_end.mood=.1",
)  # fmt: skip


@pytest.mark.parametrize("change", BEHAVIOR)
def test_content_hash_changes_with_behavior(change: str) -> None:
    assert load("town", [change]).content_hash != load("town").content_hash


@pytest.mark.parametrize("change", ["description=other", "affordances.Bed.icon=B", "meters.mood.group=tertiary"])
def test_content_hash_ignores_texts_and_icons(change: str) -> None:
    assert load("town", [change]).content_hash == load("town").content_hash


def test_content_hash_ignores_order_of_keys_comments_names_and_spelling(small: str) -> None:
    blocks = small.replace("\n  ", "@@  ").splitlines(keepends=True)
    other = "".join(["# a comment\n", *reversed(blocks)]).replace("@@", "\n")
    other = other.replace("{name: energy, decay: .01, move: .01", "{move: 1.0e-2, decay: 0.010, name: energy")
    other = other.replace("start: .5}", 'start: 0.50, wait: -0.0, decay: 0, "move": 0.0}')
    assert other != small
    assert from_text(other, "b.yaml").content_hash == from_text(small, "a.yaml").content_hash


def test_content_hash_depends_on_the_order_of_entries(small: str) -> None:
    bed, job = (line for line in small.splitlines(keepends=True) if "cell:" in line)
    assert from_text(small.replace(bed + job, job + bed)).content_hash != from_text(small).content_hash


def test_town_and_town_l1_are_equal() -> None:
    assert load("town-l1").content_hash == load("town").content_hash


@pytest.mark.parametrize(
    "text",
    [
        "extends: town\naffordances: [{name: Cafe, cell: [3, 5]}]\nremove: [Bar]\n",
        "extends: town\nmap: {size: [16, 4], layout: shuffled, allow_hidden_layout: true}\n",
    ],
)
def test_interface_hash_depends_on_what_the_columns_stand_for(text: str) -> None:
    world = from_text(text)
    assert world.interface_hash != load("town").interface_hash


def test_interface_hash_is_that_of_actions_and_observation_only() -> None:
    town = load("town")
    for same in ("cascades-strong", "cascades-weak", "town-l1"):
        assert load(same).interface_hash == town.interface_hash
    assert load("town", ["max_steps=2000", "affordances.Bed.price=.03"]).interface_hash == town.interface_hash
    assert load("town", ["map.layout=shuffled", "map.allow_hidden_layout=true"]).interface_hash == town.interface_hash
    others = [
        load(name).interface_hash for name in ("town", "town-l2", "town-l3", "town-foggy", "town-house", "town-l0")
    ]
    assert len(set(others)) == len(others)


def test_interface_hash_depends_on_the_encoding_of_the_clock() -> None:
    hashes = {
        load("town-l3", [f"observation=[meters, {{name: clock, encoding: {e}}}]"]).interface_hash
        for e in ("hour", "sincos")
    }
    assert len(hashes) == 2
