"""The keyboard alone: it reaches every control, one sees where one is, and the shortcuts work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser"]

# All that can be operated now, as it is called.
CONTROLS = """() => [...document.querySelectorAll('button, select, input, textarea, a[href], summary')]
  .filter((one) => !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest('.toasts'))
  .map((one, k) => { one.dataset.control = k; return `${k} ${one.tagName} ${one.ariaLabel ?? one.textContent}`; })"""
# Where the keyboard is: which control, and whether one can see that.
FOCUS = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const on = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return {
    control: one.dataset.control ?? null,
    name: `${one.tagName} ${one.id} ${one.ariaLabel ?? one.textContent.slice(0, 40)}`,
    ringed: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    uncovered: on !== null && (one === on || one.contains(on) || on.contains(one)),
    inside: box.top >= 0 && box.left >= 0 && box.top < innerHeight && box.right <= innerWidth,
  };
}"""


@pytest.fixture
def look(visit: Visit, shown: Served) -> Look:
    """The page over a finished run, whose latest checkpoint plays."""
    return visit(shown)


def tour(look: Look) -> list[dict[str, Any]]:
    """Tab by Tab once around the page."""
    places: list[dict[str, Any]] = []
    for _ in range(120):
        look.page.keyboard.press("Tab")
        focus = look.page.evaluate(FOCUS)
        if focus["name"].startswith("BODY"):
            continue  # between the end and the beginning
        if places and focus["control"] == places[0]["control"]:
            return places
        places.append(focus)
    raise AssertionError("Tab never comes back to where it began")


def reached_all(look: Look) -> None:
    """Every control that is there can be reached, is seen then, and can be left again."""
    controls = look.page.evaluate(CONTROLS)
    places = tour(look)
    reached = {place["control"] for place in places}
    assert [name for name in controls if name.split()[0] not in reached] == []
    assert [place["name"] for place in places if not place["ringed"]] == []
    assert [place["name"] for place in places if not (place["uncovered"] and place["inside"])] == []


def test_tab_reaches_every_control(look: Look) -> None:
    look.pause()
    reached_all(look)
    assert len(look.page.evaluate(CONTROLS)) > 25


def test_tab_reaches_every_control_of_the_world(look: Look) -> None:
    look.pause()
    look.button("World").click()
    look.page.get_by_label("The world as YAML").fill("nonsense: 1\n")
    expect(look.page.locator(".mistake-list button").first).to_be_visible()
    reached_all(look)


@pytest.mark.long
def test_tab_reaches_every_control_of_two_towns(look: Look) -> None:
    look.pause()
    look.choose("Compare with", value="best")
    expect(look.button("Right")).to_be_visible()
    reached_all(look)


@pytest.mark.long
def test_tab_reaches_every_control_of_kept_lives(look: Look) -> None:
    look.button("Recordings").click()
    expect(look.page.get_by_label("Recorded episode")).to_be_visible()
    look.pause()
    reached_all(look)


def test_the_first_tab_leads_to_the_town(look: Look) -> None:
    look.letting_go()
    look.page.keyboard.press("Tab")
    link = look.page.get_by_role("link", name="Skip to the town")
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()
    look.page.keyboard.press("Enter")
    look.page.keyboard.press("Tab")
    assert look.page.evaluate("document.activeElement.closest('#town') !== null")


def test_space_plays_and_pauses(look: Look) -> None:
    look.letting_go()
    look.page.keyboard.press("Space")
    expect(look.button("Play")).to_be_visible()
    look.stands()
    look.page.keyboard.press("Space")
    look.moves()


def test_space_on_a_button_presses_that_button(look: Look) -> None:
    look.button("World").focus()
    look.page.keyboard.press("Space")
    expect(look.page.locator("#world")).to_be_visible()
    look.moves()


def test_arrows_step(look: Look) -> None:
    step = look.pause()
    look.letting_go()
    for key, there in (("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("Shift+ArrowLeft", 0)):
        look.page.keyboard.press(key)
        look.until(lambda there=there: look.step() == step + there, why=f"{key} leads to {look.step()}")


def test_letters_and_the_question_mark(look: Look) -> None:
    look.until(lambda: look.step() >= 4)
    look.letting_go()
    before = len(look.starts)
    look.page.keyboard.press("r")
    look.until(lambda: len(look.starts) > before)
    look.until(lambda: look.step() < 4)
    look.page.keyboard.press("v")
    expect(look.page.locator("#overlay-note")).to_contain_text("Visits in this episode")
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog")).to_be_visible()
    look.page.keyboard.press("Escape")
    expect(look.page.get_by_role("dialog")).to_be_hidden()


def test_what_is_typed_is_no_shortcut(look: Look) -> None:
    look.button("World").click()
    before = len(look.starts)
    look.page.get_by_label("Name").press_sequentially("rv ?")
    assert look.page.get_by_label("Name").input_value() == "rv ?"
    look.moves()
    assert len(look.starts) == before
    expect(look.page.get_by_role("dialog")).to_be_hidden()
    expect(look.page.locator("#overlay-note")).to_be_hidden()


def test_the_list_of_runs_by_keyboard(look: Look, runs: tuple[Run, Run]) -> None:
    switch = look.page.get_by_role("button", name="Choose a run")
    switch.focus()
    look.page.keyboard.press("Enter")
    lines = look.page.locator("#run-list [role=option]")
    expect(look.page.locator("#run-list [aria-selected=true]")).to_be_focused()
    at = lines.evaluate_all("lines => lines.findIndex(line => line.ariaSelected === 'true')")
    look.page.keyboard.press("ArrowDown" if at == 0 else "ArrowUp")
    expect(lines.nth(1 - at)).to_be_focused()
    look.page.keyboard.press("Enter")
    expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    expect(switch).to_be_focused()


def test_sliders_and_lists_by_keyboard(look: Look) -> None:
    look.pause()
    scrub = look.page.get_by_label("Position in this episode")
    scrub.press("End")
    look.until(lambda: look.step() == 40)
    scrub.press("ArrowLeft")
    look.until(lambda: look.step() == 39)
    who = look.page.get_by_label("Checkpoint to play")
    who.focus()
    look.page.keyboard.press("ArrowDown")
    expect(look.page.locator("#town-label")).to_have_text(re.compile("^best checkpoint"))


def test_news_of_the_runs_take_nobody_away_from_the_list(look: Look) -> None:
    look.page.get_by_role("button", name="Choose a run").focus()
    look.page.keyboard.press("Enter")
    chosen = look.page.locator("#run-list [aria-selected=true]")
    expect(chosen).to_be_focused()
    chosen.evaluate("(line) => { line.id = 'before'; }")
    look.until(lambda: look.page.locator("#before").count() == 0, seconds=60)  # the list was written anew
    expect(chosen).to_be_focused()
