"""Editing of worlds over the WebSocket: changes, what an agent must relearn, and the verdict."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from live.conftest import LiveServer, Page
from townlet.errors import ConfigError, TownletError
from townlet.live import world_check
from townlet.live.world_editing import (
    error_json,
    free_name,
    interface_changes,
    palette,
    parse_world,
    save_world,
    store_world,
)
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
    assert (answer["differences"], answer["unobserved"]) == ([], ["Pool"])
    assert answer["description"] == "8×8 town with 16 places; each use of a place takes one step."
    renamed = edit(page, answer["text"], 2, op="rename", section="affordances", name="Pool", to="Lake")
    assert "name: Lake" in renamed["text"]
    removed = edit(page, renamed["text"], 3, op="remove", section="affordances", name="Lake")
    assert removed["differences"] == removed["unobserved"] == []


def test_a_replaced_place_is_one_that_an_agent_does_not_see(page: Page, run: Run) -> None:
    """Although the number of places is that of its training."""
    page.send("subscribe", run=run.name, source="checkpoint")
    text = "extends: town\naffordances: [{name: Cafe Mia, cell: [3, 5], at_end: {mood: .1}}]\nremove: [Bar]\n"
    answer = edit(page, text, 1)
    assert (answer["differences"], answer["unobserved"], answer["missing"]) == ([], ["Cafe Mia"], ["Bar"])
    renamed = edit(page, text, 2, op="rename", section="affordances", name="Cafe Mia", to="Bistro")
    assert (renamed["unobserved"], renamed["missing"]) == (["Bistro"], ["Bar"])


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
    assert interface_changes(load("town", ["max_steps=10", "affordances.Bed.price=.1"]), town) == ([], (), ())
    assert interface_changes(from_text("extends: town\nremove: [Gym]\n"), town) == ([], (), ("Gym",))
    found = interface_changes(load("town-house"), town).differences
    assert "The map has 8×8×3 cells, in training it had 8×8." in found
    other = from_text("extends: town\nobservation: [meters, affordance_here]\n")
    assert "is not observed" in interface_changes(other, town).differences[0]


def test_palette_can_be_added_to_any_world() -> None:
    missing = [{"name": name} for name in load("town").meters if name not in load("town-l0").meters]
    for entry in palette():
        place = {**entry, "name": "New", "cell": [0, 0]}
        world = from_text(f"extends: town-l0\nmeters: {missing}\naffordances: [{place}]\n")
        assert world.affordances[-1] == "New"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("affordances: 3\n", "affordances"),
        ("extends: town\nremove: 3\n", "`remove` is not a list of names"),
        ("extends: town\nremove: Bed\n", "`remove` is not a list of names"),
    ],
)
def test_change_of_an_odd_text_is_answered_with_its_errors(page: Page, run: Run, text: str, what: str) -> None:
    page.send("subscribe", run=run.name, source="none")
    for change in (
        {"op": "set", "path": ["affordances", "Bed", "price"], "value": 0.1},
        {"op": "add", "section": "affordances", "entry": {"name": "Pool", "cell": [5, 5]}},
        {"op": "remove", "section": "affordances", "name": "Gym"},
    ):
        answer = edit(page, text, 1, **change)
        assert answer["type"] == "world_checked"
        assert answer["text"] is None
        assert any(what in error["what"] for error in answer["errors"]), answer


def test_change_that_would_lose_a_mapping_is_refused(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="none")
    text = "extends: town\naffordances: {Bed: {price: .1}}\n"
    answer = edit(page, text, 7, op="set", path=["affordances", "Bed", "price"], value=0.2)
    assert (answer["type"], answer["number"]) == ("error", 7)
    assert answer["fix"] == "write it as a list"
    assert edit(page, "extends: town\n", 8, op="set", path=["affordances"], value=3)["number"] == 8


def test_error_of_the_program_keeps_the_connection_open(
    page: Page, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page.send("subscribe", run=run.name, source="none")
    page.send("edit_world", text="extends: town\n", number=1)
    assert page.receive("world_checked")["errors"] == []
    monkeypatch.setattr(world_check, "world_json", None)  # as a bug would
    page.send("edit_world", text="extends: town\n", number=2, preview=True)
    answer = page.receive("error")
    assert (answer["number"], answer["what"]) == (2, "the world could not be checked")
    assert "Traceback" in caplog.text
    page.send("edit_world", text="extends: town\n", number=3)
    assert page.receive("world_checked")["number"] == 3


def test_of_many_edits_the_last_is_answered_and_others_are_replaced(page: Page, served: LiveServer, run: Run) -> None:
    """A viewer who edits without end gets some checks per second, and another one is answered in between."""
    for number in range(1, 41):
        page.send("edit_world", text=f"extends: town\nmax_steps: {100 + number}\n", number=number)
    with served.connect() as connection:
        other = Page(connection)
        other.send("edit_world", text="extends: town-l0\n", number=7)
        assert other.receive("world_checked", seconds=5)["number"] == 7
    numbers = [0]
    while numbers[-1] != 40:
        numbers.append(page.receive("world_checked", seconds=20)["number"])
    assert numbers == sorted(numbers)
    assert len(numbers) < 30


def test_messages_after_an_edit_wait_for_it(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    page.receive("frame")
    page.send("edit_world", text="extends: town\nmax_steps: 300\n", number=1, preview=True)
    page.send("subscribe", run=run.name, source="checkpoint")
    assert page.receive("world_checked")["world"] is not None
    assert "edited" in page.receive("episode_start")["label"]
    assert "edited" not in page.receive("episode_start")["label"]


def test_worlds_saved_at_once_under_one_name_get_successive_numbers(tmp_path: Path) -> None:
    texts = [f"extends: town\nmax_steps: {100 + number}\n" for number in range(100)]
    with ThreadPoolExecutor(16) as pool:
        paths = list(pool.map(lambda text: store_world(tmp_path, "my-town", text), texts))
    assert [path.read_text() for path in paths] == texts
    numbers = sorted(int(path.stem.removeprefix("my-town-") if path.stem != "my-town" else 1) for path in paths)
    assert numbers == list(range(1, 101))


def test_only_trained_agents_need_their_own_world(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    page.send("watch", agents=[{"kind": "planner"}])
    text = "extends: town-l0\n"
    assert edit(page, text, 1)["differences"] == []
    page.send("edit_world", text=text, number=2, preview=True)
    assert page.receive("world_checked", "error")["world"]["name"] == "edited"
    assert page.receive("episode_start")["label"] == "planner, which knows the rules, in your edited world"
    page.send("subscribe", run=run.name, source="none")
    page.send("watch", agents=[{"kind": "human"}, {"kind": "policy"}])
    assert edit(page, text, 3)["differences"][0].startswith("The map has ")


def test_error_in_an_inherited_world_has_no_line_of_the_text() -> None:
    text = "extends: town\nmeters: [{name: energy, start: 7.0}]\nlethal: [nothing]\n"
    with pytest.raises(ConfigError) as found:
        parse_world(text)
    own = [error_json(error, text) for error in found.value.diagnostics]
    assert [(error["line"], error["path"]) for error in own] == [
        (2, ["meters", "energy", "start"]), (3, ["lethal", "nothing"]),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as found:
        parse_world("extends: town\nremove: [energy]\nmap: {size: [2, 2]}\n")
    errors = [error_json(error, text) for error in found.value.diagnostics]
    inherited = [error for error in errors if "in town.yaml, which this world extends, line" in error["what"]]
    assert inherited
    assert {(error["line"], error["column"]) for error in inherited} == {(0, 0)}


def test_saved_text_is_compared_byte_by_byte(tmp_path: Path) -> None:
    unix, windows = "extends: town\nmax_steps: 50\n", "extends: town\r\nmax_steps: 50\r\n"
    for text in (unix, windows):
        name = free_name(tmp_path, "my-town", text)
        assert save_world(tmp_path, name, text).read_bytes() == text.encode()
        assert free_name(tmp_path, "my-town", text) == name
    assert {path.name for path in tmp_path.iterdir()} == {"my-town.yaml", "my-town-2.yaml"}
    assert free_name(tmp_path, "my-town-2", unix + "#\n") == "my-town-3"
    long = "x" * 40
    save_world(tmp_path, long, unix)
    save_world(tmp_path, free_name(tmp_path, long, windows), windows)
    with pytest.raises(TownletError, match="already exists"):
        save_world(tmp_path, "my-town", unix)
