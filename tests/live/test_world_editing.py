"""Editing of worlds over the WebSocket: changes, what an agent must relearn, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from live.conftest import Page
from townlet.live.world_editing import interface_changes, palette
from townlet.runs.folder import Run
from townlet.town.world.load import from_text, load


def edit(page: Page, text: str, number: int, **change: Any) -> dict[str, Any]:
    page.send("edit_world", text=text, number=number, change=change or None)
    return page.receive("world_checked", "error")


def test_change_is_made_in_the_text_and_checked(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    answer = edit(page, "extends: town # mine\n", 1, op="set", path=["affordances", "Bed", "price"], value=0.05)
    assert answer["text"] == "extends: town # mine\naffordances:\n  - {name: Bed, price: 0.05}\n"
    assert answer["errors"] == answer["differences"] == []
    (bed,) = (place for place in answer["spec"]["affordances"] if place["name"] == "Bed")
    assert bed["price"] == 0.05
    answer = edit(page, answer["text"], 2, op="set", path=["meters", "energy", "decay"], value=3.0)
    assert answer["errors"][0]["what"].startswith("meters.energy.decay")
    assert "decay: 3" in answer["text"]  # the mistake can be seen and undone


def test_new_place_changes_what_an_agent_sees(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    entry = {"name": "Pool", "cell": [5, 5], "each_tick": {"fitness": 0.05}}
    answer = edit(page, "extends: town\n", 1, op="add", section="affordances", entry=entry)
    assert answer["differences"] == [
        "The place “Pool” is new.", "An agent sees 89 numbers per step, it saw 88.",
    ]  # fmt: skip
    renamed = edit(page, answer["text"], 2, op="rename", section="affordances", name="Pool", to="Lake")
    assert "name: Lake" in renamed["text"]
    removed = edit(page, renamed["text"], 3, op="remove", section="affordances", name="Lake")
    assert removed["differences"] == []


def test_verdict_follows_the_last_text(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="none")
    page.send("edit_world", text="extends: town\n", number=1)
    page.send("edit_world", text="extends: town\nmeters: [{name: energy, decay: .2}]\n", number=2)
    verdict = page.receive("world_verdict", seconds=30)
    assert (verdict["number"], verdict["livable"]) == (2, False)
    assert "even the planner survives only" in verdict["sentences"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"op": "set", "path": [], "value": 1},
        {"op": "set", "path": ["affordances", "Bed", "each_tick", "energy", "x"], "value": 1},
        {"op": "add", "section": "extends", "entry": {}},
        {"op": "exec", "section": "affordances"},
        {"op": "remove", "section": "affordances", "name": ""},
    ],
)
def test_malformed_changes_are_refused(page: Page, run: Run, change: dict[str, Any]) -> None:
    page.send("subscribe", run=run.name, source="none")
    assert edit(page, "extends: town\n", 1, **change)["type"] == "error"
    page.send("edit_world", text="extends: town\n", number=2)
    assert page.receive("world_checked")["number"] == 2


def test_impossible_change_is_answered_with_an_error(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="none")
    answer = edit(page, "extends: town\n", 1, op="remove", section="affordances", name="Cinema")
    assert (answer["type"], answer["what"]) == ("error", "there is no 'Cinema' in affordances")


def test_differences_are_sentences() -> None:
    town = load("town")
    assert interface_changes(load("town", ["max_steps=10", "affordances.Bed.price=.1"]), town) == []
    assert "The map is 8×8×3, it was 8×8." in interface_changes(load("town-house"), town)
    fewer = from_text("extends: town\nremove: [Gym]\n")
    assert interface_changes(fewer, town)[0] == "The place “Gym” is gone."
    other = from_text("extends: town\nobservation: [meters, position_onehot, affordance_here]\n")
    assert interface_changes(other, town) != []


def test_palette_can_be_added_to_any_world() -> None:
    missing = [{"name": name} for name in load("town").meters if name not in load("town-l0").meters]
    for entry in palette():
        place = {**entry, "name": "New", "cell": [0, 0]}
        world = from_text(f"extends: town-l0\nmeters: {missing}\naffordances: [{place}]\n")
        assert world.affordances[-1] == "New"
