"""Tables, explanations, and new worlds."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from townlet.errors import TownletError
from townlet.town.world.load import load, shipped
from townlet.town.world.report import meter_table, world_list, world_tables
from townlet.town.world.template import SCHEMA_FILE, new_world, world_schema


def text_of(renderable: RenderableType) -> str:
    page = StringIO()
    Console(width=200, file=page).print(renderable)
    return page.getvalue()


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize("name", shipped())
def test_show_prints_every_meter_affordance_block_and_warning(name: str) -> None:
    world = load(name)
    text = text_of(world_tables(world))
    for word in (*world.meters, *world.affordances, *world.layout.names, *world.rewards, *world.warnings):
        assert word in text
    assert world.content_hash[:16] in text


def test_show_gives_prices_in_dollars_and_hours() -> None:
    text = text_of(world_tables(load("town")))
    assert lines_with(text, "Bar", "7,0", "$15 ($7.5 per tick)", "18–4", "social +0.5")
    assert lines_with(text, "Job", "free", "money +$22.5", "energy −0.15")


def test_explain_lists_everything_that_changes_a_meter() -> None:
    text = text_of(meter_table(load("town"), "energy"))
    assert "At 0 the agent dies. Decay alone empties it in 200 steps." in text
    assert lines_with(text, "WAIT", "−0.001")
    assert lines_with(text, "mood (cascade)", "−0.005", "mood 0.3 to 0")
    assert lines_with(text, "Bed", "+0.5", "$5 ($1 per tick)", "always")
    assert lines_with(text, "CoffeeShop", "+0.15", "$2", "8–18")
    assert lines_with(text, "Labor", "−0.2", "8–18")
    for unrelated in ("Shower", "Therapist", "hygiene (modulation)"):
        assert unrelated not in text


def test_explain_lists_effects_on_meters_and_rewards() -> None:
    text = text_of(meter_table(load("town", ["rewards=[meter_bonus, potential]"]), "fitness"))
    assert lines_with(text, "health (modulation)", "−0.0005 to −0.003")
    assert lines_with(text, "meter_bonus", "+0.15 above 0.8, −0.8 below 0.2")


def test_explain_counts_prices_for_the_currency() -> None:
    text = text_of(meter_table(load("town"), "money"))
    assert lines_with(text, "Labor", "+$30")
    assert lines_with(text, "Hospital", "−$15")


def test_explain_of_an_unknown_meter_suggests_the_nearest() -> None:
    with pytest.raises(TownletError, match="did you mean 'energy'"):
        meter_table(load("town"), "enrgy")


def test_list_has_every_shipped_world() -> None:
    text = text_of(world_list())
    for name in shipped():
        assert lines_with(text, f" {name} ", load(name).spec.description)


@pytest.mark.parametrize("parent", shipped())
def test_new_world_behaves_like_its_parent_until_edited(parent: str, tmp_path: Path) -> None:
    path = new_world("mine", parent, tmp_path / "worlds")
    assert load(path).content_hash == load(parent).content_hash
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert (path.parent / SCHEMA_FILE).is_file()


def test_new_world_may_extend_a_file_and_keeps_its_rewards(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("extends: town\nrewards: [vitality, {name: survival, weight: .5}]\n")
    path = new_world("mine", str(tmp_path / "base.yaml"), tmp_path / "deep" / "er")
    assert load(path).content_hash == load(tmp_path / "base.yaml").content_hash


def test_new_world_never_overwrites(tmp_path: Path) -> None:
    new_world("mine", folder=tmp_path).write_text("precious")
    with pytest.raises(TownletError, match="already exists"):
        new_world("mine", folder=tmp_path)
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    for name in ("../mine", "", "a b", "town"):
        with pytest.raises(TownletError):
            new_world(name, folder=tmp_path)


def test_schema_has_every_key_and_requires_none() -> None:
    known = world_schema()
    assert {"extends", "remove", "meters", "affordances", "rewards"} <= set(known["properties"])
    assert "required" not in known
    assert "Raise it" in known["$defs"]["Meter"]["properties"]["decay"]["description"]
