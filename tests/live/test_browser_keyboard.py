"""Keyboard access: every control is reachable with visible focus, and shortcuts work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

# Names of all visible controls.
CONTROLS = """() => [...document.querySelectorAll('button, select, input, textarea, a[href], summary')]
  .filter((one) => !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest('.toasts'))
  .map((one, k) => { one.dataset.control = k; return `${k} ${one.tagName} ${one.ariaLabel ?? one.textContent}`; })"""
# The focused control, and whether its focus is visible.
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
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page of a finished run, playing its best checkpoint."""
    return open_page(town_server)


# Buttons without words that lack a label or a tooltip.
UNNAMED = """() => [...document.querySelectorAll('button')]
  .filter((one) => one.textContent.trim().length < 2 && !(one.ariaLabel && one.title) && !one.closest('#world'))
  .map((one) => one.outerHTML.slice(0, 120))"""


def tour(view: PageView) -> list[dict[str, Any]]:
    """Focus states of one Tab cycle through the page."""
    places: list[dict[str, Any]] = []
    for _ in range(120):
        view.page.keyboard.press("Tab")
        focus = view.page.evaluate(FOCUS)
        if focus["name"].startswith("BODY"):
            continue  # between the last and the first control
        if places and focus["control"] == places[0]["control"]:
            return places
        places.append(focus)
    raise AssertionError("Tab does not cycle")


def reached_all(view: PageView) -> None:
    """Every control is reachable, visibly focused and unobscured."""
    controls = view.page.evaluate(CONTROLS)
    places = tour(view)
    reached = {place["control"] for place in places}
    assert [name for name in controls if name.split()[0] not in reached] == []
    assert [place["name"] for place in places if not place["ringed"]] == []
    assert [place["name"] for place in places if not (place["uncovered"] and place["inside"])] == []


def test_tab_reaches_every_control(view: PageView) -> None:
    view.pause()
    reached_all(view)
    assert len(view.page.evaluate(CONTROLS)) > 25
    assert view.page.evaluate(UNNAMED) == []


def test_tab_reaches_every_control_of_the_world_editor(view: PageView) -> None:
    view.pause()
    view.button("World").click()
    view.page.get_by_label("The world as YAML").fill("nonsense: 1\n")
    expect(view.page.locator(".error-list button").first).to_be_visible()
    reached_all(view)


@pytest.mark.long
def test_tab_reaches_every_control_in_comparison(view: PageView) -> None:
    view.pause()
    view.agent("planner (knows the rules)", "Compare with")
    expect(view.button("Right")).to_be_visible()
    reached_all(view)


@pytest.mark.long
def test_tab_reaches_every_control_of_recordings(view: PageView) -> None:
    view.button("Recordings").click()
    expect(view.page.get_by_label("Recorded episode")).to_be_visible()
    view.pause()
    reached_all(view)


def test_skip_link_and_playback_keys(view: PageView) -> None:
    view.blur()
    view.page.keyboard.press("Tab")
    link = view.page.get_by_role("link", name="Skip to the town")
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()
    view.page.keyboard.press("Enter")
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("document.activeElement.closest('#town') !== null")

    view.blur()
    view.page.keyboard.press("Space")
    expect(view.button("Play")).to_be_visible()
    view.wait_until_still()
    view.page.keyboard.press("Space")
    view.expect_moving()

    view.button("New episode").click()
    view.wait_until(lambda: view.step() < 20)
    step = view.pause()
    view.blur()
    for key, there in (("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("Shift+ArrowLeft", 0)):
        view.page.keyboard.press(key)
        view.wait_for_step(step + there)


def test_letter_shortcuts_sliders_and_lists(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 4)
    view.blur()
    before = len(view.starts)
    view.page.keyboard.press("r")
    view.wait_until(lambda: len(view.starts) > before)
    view.wait_until(lambda: view.step() < 4)
    view.page.keyboard.press("v")
    expect(view.page.locator("#overlay-note")).to_contain_text("Visits in this episode")
    view.page.keyboard.press("?")
    expect(view.page.get_by_role("dialog")).to_be_visible()
    view.page.keyboard.press("Escape")
    expect(view.page.get_by_role("dialog")).to_be_hidden()

    view.pause()
    scrub = view.page.get_by_label("Position in this episode")
    scrub.press("End")
    view.wait_until(lambda: view.step() == 40)
    scrub.press("ArrowLeft")
    view.wait_until(lambda: view.step() == 39)
    view.page.get_by_label("Who plays: training progress").focus()
    view.page.keyboard.press("ArrowLeft")
    expect(view.page.locator("#town-label")).to_have_text(re.compile("best checkpoint"))


def test_space_on_a_button_and_typing_are_no_shortcuts(view: PageView) -> None:
    view.button("World").focus()
    view.page.keyboard.press("Space")
    expect(view.page.locator("#world")).to_be_visible()
    view.expect_moving()
    before = len(view.starts)
    view.page.locator("#save-name").fill("")
    view.page.locator("#save-name").press_sequentially("rv ?")
    assert view.page.locator("#save-name").input_value() == "rv ?"
    view.expect_moving()
    assert len(view.starts) == before
    expect(view.page.get_by_role("dialog")).to_be_hidden()
    expect(view.page.locator("#overlay-note")).to_be_hidden()


def test_run_list_by_keyboard_keeps_focus_when_refreshed(view: PageView, runs: tuple[Run, Run]) -> None:
    switch = view.page.get_by_role("button", name="Choose a run")
    switch.focus()
    view.page.keyboard.press("Enter")
    lines = view.page.locator("#run-list [role=option]")
    chosen = view.page.locator("#run-list [aria-selected=true]")
    expect(chosen).to_be_focused()
    chosen.evaluate("(line) => { line.id = 'before'; }")
    view.wait_until(lambda: view.page.locator("#before").count() == 0, seconds=60)  # the list was refreshed
    expect(chosen).to_be_focused()
    at = lines.evaluate_all("lines => lines.findIndex(line => line.ariaSelected === 'true')")
    view.page.keyboard.press("ArrowDown" if at == 0 else "ArrowUp")
    expect(lines.nth(1 - at)).to_be_focused()
    view.page.keyboard.press("Enter")
    expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    expect(switch).to_be_focused()
