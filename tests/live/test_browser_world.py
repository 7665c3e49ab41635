"""The text of a world beside the town: checked while one types, tried with the present agent, and kept."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from pace import slower
from townlet.town.world.load import FOLDER
from townlet.web.tokens import generate_tokens

if TYPE_CHECKING:
    from live.browser import Look, Visit
    from townlet.runs.folder import Run

pytest_plugins = ["live.browser"]

# Milliseconds from the last key to a mistake that is seen.
MEASURE = """() => {
  const text = document.querySelector('.yaml-editor'), list = document.querySelector('.mistake-list');
  window.took = null;
  let key = 0;
  text.addEventListener('keydown', () => { key = performance.now(); });
  const watch = new MutationObserver(() => requestAnimationFrame(() => {
    if (window.took !== null || !list.querySelector('button')?.checkVisibility()) return;
    window.took = performance.now() - key;
    watch.disconnect();
  }));
  watch.observe(list, { childList: true });
}"""


@pytest.fixture
def look(visit: Visit, shown: Served) -> Look:
    """The page with the world of the run in the editor."""
    one = visit(shown)
    one.button("World").click()
    return one


def written(look: Look) -> str:
    return look.page.get_by_label("The world as YAML").input_value()


def write(look: Look, text: str, verdict: str) -> None:
    """Put this text into the editor, and wait until it was judged."""
    look.page.get_by_label("The world as YAML").fill(text)
    expect(look.page.locator(".check-result")).to_have_text(re.compile(verdict))


def test_a_mistake_shows_its_line_while_one_types(look: Look) -> None:
    text = look.page.get_by_label("The world as YAML")
    took, allowed = [1000.0], 300.0
    while min(took) >= allowed and len(took) < 12:  # on a busy machine not every try can be quick
        allowed = 300 * slower(time.monotonic)
        text.press("Control+End")
        look.page.evaluate(MEASURE)
        text.press_sequentially("\nnonsense: 1")
        expect(look.page.locator(".mistake-list button").first).to_be_visible()
        look.until(lambda: look.page.evaluate("window.took") is not None)
        took.append(look.page.evaluate("window.took"))
        line = len(written(look).split("\n"))
        mistake = look.page.locator(".mistake-list button").first
        expect(mistake).to_contain_text(f"line {line}")
        expect(mistake).to_contain_text("nonsense")
        expect(look.page.locator(".gutter .wrong")).to_have_text(str(line))
        expect(look.page.locator(".check-result")).to_have_text("1 mistake")
        expect(look.button("Try it with this agent")).to_be_disabled()
        look.button("Back to the run’s world").first.click()
        expect(look.page.locator(".mistake-list button")).to_have_count(0)
        expect(look.button("Try it with this agent")).to_be_enabled()
    assert min(took) < allowed, took


def test_a_mistake_leads_to_its_line(look: Look) -> None:
    original = written(look)
    write(look, original.replace("start: 1.0", "start: 7.0", 1), "mistake")
    line = next(k for k, one in enumerate(written(look).split("\n"), 1) if "start: 7.0" in one)
    mistake = look.page.locator(".mistake-list button").first
    expect(mistake).to_contain_text(f"line {line}")
    mistake.click()
    chosen = look.page.get_by_label("The world as YAML").evaluate(
        "(text) => text.value.slice(text.selectionStart, text.selectionEnd)"
    )
    assert "start: 7.0" in chosen
    look.moves()  # a mistake disturbs nobody who plays


@pytest.mark.long
def test_yaml_that_cannot_be_read_shows_its_line(look: Look) -> None:
    write(look, "description: a\nmap: {size: [8, 8\nmax_steps: 3\n", "mistake")
    assert re.match(r"line [23]", look.text(".mistake-list button"))


def test_the_agent_tries_a_changed_world_and_goes_back(look: Look) -> None:
    original = written(look)
    assert "max_steps: 40" in original
    write(look, original.replace("max_steps: 40", "max_steps: 30"), "This world is valid.")
    look.page.get_by_label("Speed").press("End")
    look.button("Try it with this agent").click()
    expect(look.page.locator(".check-result")).to_have_text("The agent now plays in this world.")
    expect(look.page.locator("#town-label")).to_contain_text("latest checkpoint, after")
    expect(look.page.locator(".end-card").first).to_contain_text("limit of 30 steps")
    look.page.locator("#controls").get_by_role("button", name="Back to the run’s world").click()
    expect(look.page.locator("#town-label")).to_have_text(re.compile("^latest checkpoint"))
    expect(look.page.locator(".end-card").first).to_contain_text("limit of 40 steps")
    assert "max_steps: 30" in written(look)  # what was written is not lost by looking elsewhere
    look.page.locator("#world").get_by_role("button", name="Back to the run’s world").click()
    assert written(look) == original


def test_a_place_that_was_moved_is_drawn_elsewhere(look: Look) -> None:
    look.pause()
    before = look.starts[-1]["cell_of"]
    write(look, written(look).replace("cell: [1, 1]", "cell: [4, 0]", 1), "This world is valid.")
    look.page.get_by_label("The world as YAML").press("Control+Enter")
    expect(look.page.locator("#town-label")).to_contain_text("in your edited world")
    after = look.starts[-1]["cell_of"]
    assert (before[0], after[0]) == (9, 4)
    assert before[1:] == after[1:]
    look.pause()
    # Of the tile where the bed stood and of the one where it stands now, with what is drawn on them.
    tile = """(canvas, [x, y]) => {
      const side = Math.min(canvas.width, canvas.height) / 8, left = (canvas.width - 8 * side) / 2;
      const found = canvas.getContext('2d').getImageData(left + x * side, y * side, side, side).data;
      return new Set(new Uint32Array(found.buffer)).size;
    }"""
    canvas = look.page.locator(".town-canvas").first
    moved = [canvas.evaluate(tile, place) for place in ([1, 1], [4, 0])]
    look.page.locator("#controls").get_by_role("button", name="Back to the run’s world").click()
    look.pause()
    usual = [canvas.evaluate(tile, place) for place in ([1, 1], [4, 0])]
    assert usual[0] > 3 * moved[0]  # many colours where a place is, few where there is none
    assert moved[1] > 3 * usual[1]


def test_a_world_for_which_the_agent_has_no_eyes_is_refused(look: Look) -> None:
    write(look, "extends: town-l0\n", "This world is valid.")
    look.button("Try it with this agent").click()
    expect(look.page.locator(".check-result")).to_contain_text("The agent cannot play in it")
    expect(look.page.locator("#town-label")).not_to_contain_text("your version")
    look.moves()


def test_what_was_written_survives_a_reload(look: Look) -> None:
    changed = written(look) + "# mine\n"
    write(look, changed, "This world is valid.")
    look.page.reload()
    look.until(lambda: look.step() >= 0)
    look.button("World").click()
    assert written(look) == changed


def test_a_world_is_saved_as_a_new_file(look: Look, shown: Served) -> None:
    changed = written(look).replace("max_steps: 40", "max_steps: 33")
    write(look, changed, "This world is valid.")
    look.page.get_by_label("Name", exact=True).fill("my-town")
    look.button("Save as new world").click()
    file = shown.worlds / "my-town.yaml"
    expect(look.page.locator(".save-result")).to_contain_text(f"Saved as {file}")
    assert file.read_text("utf-8") == changed
    look.forgive(r"/api/worlds")  # the browser notes what is refused
    write(look, changed + "# more\n", "This world is valid.")
    look.button("Save as new world").click()
    expect(look.page.locator(".save-result")).to_contain_text("already exists")
    assert file.read_text("utf-8") == changed


def test_a_viewer_tries_worlds_and_cannot_save_them(visit: Visit, shown: Served) -> None:
    look = visit(shown, link=shown.server.link("viewer"))
    look.button("World").click()
    expect(look.page.locator(".read-only")).to_contain_text("This link is read-only")
    expect(look.page.locator("form.save-form")).to_be_hidden()
    expect(look.button("Try it with this agent")).to_be_visible()


def test_a_page_whose_token_is_out_of_date_says_so(visit: Visit, runs: tuple[Run, Run], tmp_path: Path) -> None:
    """The server was started again, with new tokens at the same port."""
    before = Served(runs[0].path.parent, runs[0].name, tmp_path / "worlds", generate_tokens("operator"))
    look = visit(before)
    look.forgive("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket|401")
    before.stop()
    port = before.server.port
    after = Served(runs[0].path.parent, runs[0].name, tmp_path / "worlds", generate_tokens("operator"), port)
    expect(look.page.locator(".toast")).to_contain_text("token of this page is no longer valid")
    look.page.goto(after.link)
    expect(look.page.locator("body")).to_have_attribute("data-phase", "ready")
    after.stop()


def test_a_shipped_world_stays_as_it_is(look: Look, shown: Served) -> None:
    shipped = {path: path.read_bytes() for path in FOLDER.glob("*.yaml")}
    look.forgive(r"/api/worlds")
    write(look, written(look).replace("max_steps: 40", "max_steps: 33"), "This world is valid.")
    for name in ("town", "town-l0"):
        look.page.get_by_label("Name", exact=True).fill(name)
        look.button("Save as new world").click()
        expect(look.page.locator(".save-result")).to_contain_text(
            f"'{name}' is a shipped world and cannot be overwritten"
        )
    assert {path: path.read_bytes() for path in FOLDER.glob("*.yaml")} == shipped
    assert not shown.worlds.exists()


@pytest.mark.long
def test_a_name_that_is_none_is_not_sent(look: Look, shown: Served) -> None:
    name = look.page.get_by_label("Name", exact=True)
    for wrong in ("", "../out", "Mine", "a b"):
        name.fill(wrong)
        look.button("Save as new world").click()
        assert name.evaluate("(field) => !field.validity.valid")
    assert not shown.worlds.exists()
