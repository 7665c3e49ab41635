"""The world editor with mouse and keyboard: map, palette, form, and the YAML in step with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, expect

from live.conftest import LiveServer

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

TALL = (1366, 1200)  # map and palette are on screen together
LIVABLE, UNLIVABLE = "An agent can live here.", "Hardly anything can live here."
# Changes several controls of the form at once, faster than the server answers.
CHANGE_AT_ONCE = """(values) => {
  for (const [id, value] of values) {
    const control = document.getElementById(id);
    control.value = value;
    control.dispatchEvent(new Event('change'));
  }
}"""


@pytest.fixture
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page with the world editor open, once its map is drawn."""
    one = open_page(town_server, size=TALL)
    one.button("World").click()
    expect(place(one, "Bed")).to_be_visible()
    return one


def place(view: PageView, name: str) -> Locator:
    """A place on the map."""
    return view.page.locator(f".map-place[data-place='{name}']")


def cell(view: PageView, x: int, y: int) -> Locator:
    return view.page.locator(f".map-cell[data-cell='{x},{y}']")


def control(view: PageView, *path: str, meter: str = "") -> Locator:
    """A control of the form by the path of its setting, and the meter of an effect."""
    return view.page.locator("#field-" + "_".join(path) + (f"-{meter}" if meter else ""))


def yaml(view: PageView) -> str:
    return view.page.get_by_label("The world as YAML").input_value()


def expect_yaml(view: PageView, *parts: str) -> None:
    """The text contains all parts."""
    view.wait_until(lambda: all(part in yaml(view) for part in parts), why=f"{parts} not in\n{yaml(view)}")
    expect(view.page.locator(".editor-bar .check-result")).to_have_text("This world is valid.")


def center(target: Locator) -> tuple[float, float]:
    box = target.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(view: PageView, start: Locator, end: Locator) -> None:
    """Drag with the mouse."""
    mouse = view.page.mouse
    mouse.move(*center(start))
    mouse.down()
    mouse.move(*center(end), steps=5)
    mouse.up()


def expect_verdict(view: PageView, text: str) -> None:
    expect(view.page.locator(".verdict:not(.old) strong")).to_have_text(text)


def test_place_is_dragged_and_the_change_is_undone(view: PageView) -> None:
    original = yaml(view)
    expect(view.button("Undo")).to_be_disabled()
    drag(view, place(view, "Bed"), cell(view, 4, 0))
    expect(cell(view, 4, 0).locator(".map-place")).to_have_attribute("data-place", "Bed")
    expect_yaml(view, "- {name: Bed, cell: [4, 0]}")
    changed = yaml(view)
    drag(view, place(view, "Bed"), place(view, "Gym"))  # the cell is taken
    expect(cell(view, 4, 0).locator(".map-place")).to_have_attribute("data-place", "Bed")
    assert yaml(view) == changed
    view.button("Undo").click()
    expect(cell(view, 1, 1).locator(".map-place")).to_have_attribute("data-place", "Bed")
    assert yaml(view) == original
    view.button("Redo").click()
    expect(cell(view, 4, 0).locator(".map-place")).to_have_attribute("data-place", "Bed")
    assert yaml(view) == changed
    expect(view.button("Redo")).to_be_disabled()
    expect(view.button("Try it with this agent")).to_be_enabled()  # the agent sees and does the same


def test_places_move_and_go_by_keyboard(view: PageView) -> None:
    bed = place(view, "Bed")
    bed.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):  # without waiting; the first skips the luxury bed
        view.page.keyboard.press(key)
    expect(cell(view, 4, 2).locator(".map-place")).to_have_attribute("data-place", "Bed")
    expect_yaml(view, "cell: [4, 2]")
    expect(bed).to_be_focused()
    view.page.keyboard.press("Delete")
    expect(bed).to_have_count(0)
    expect_yaml(view, "remove: [Bed]")
    expect(view.button("Try it with this agent")).to_be_enabled()
    view.page.locator(".palette-place", has_text=re.compile("^Bed$")).click()
    expect(bed).to_be_visible()
    expect(view.page.locator(".differences")).to_be_hidden()
    view.wait_until(lambda: "remove" not in yaml(view))


def test_own_place_with_icon_price_hours_and_effects(view: PageView) -> None:
    drag(view, view.page.locator(".palette-place", has_text="A place of your own"), cell(view, 5, 5))
    expect(place(view, "Spot")).to_have_attribute("aria-pressed", "true")
    expect_yaml(view, "- name: Spot", "cell: [5, 5]")
    # Said before the agent tries, with the cure.
    differences = view.page.locator(".differences")
    expect(differences).to_contain_text("This agent can play here, but it does not see Spot.")
    expect(differences).to_contain_text("use “Start training” below")
    expect(view.button("Try it with this agent")).to_be_enabled()
    expect(view.page.get_by_role("heading", name="Train an agent here")).to_be_visible()

    own = ("affordances", "Spot")
    control(view, *own, "icon").fill("🦆")
    control(view, *own, "icon").press("Enter")
    expect(place(view, "Spot").locator("svg")).to_have_text("🦆")
    expect_yaml(view, "icon: 🦆")
    control(view, *own, "name").fill("DuckPond")
    control(view, *own, "name").press("Enter")
    expect(place(view, "DuckPond")).to_contain_text("Duck pond")
    own = ("affordances", "DuckPond")
    control(view, *own, "price").fill("0.05")
    field = view.page.locator(".form-field[data-field=price]")
    expect(field.locator("output")).to_have_text("$5")
    expect(field.locator("small")).to_contain_text("costs")
    control(view, *own, "ticks").press("ArrowRight")
    control(view, *own, "each_tick", meter="mood").press("Home")
    expect_yaml(view, "icon: 🦆", "price: 0.05", "ticks: 2", "mood: -0.5")
    view.select("Effect of each step: add a meter", value="social")
    expect_yaml(view, "social: 0.1")
    view.button("Remove the effect on social").click()
    expect(control(view, *own, "each_tick", meter="social")).to_have_count(0)
    view.page.get_by_label("always open").uncheck()
    view.select("Closes at", value="20")
    expect_yaml(view, "hours: [8, 20]")
    expect_verdict(view, LIVABLE)
    view.button("Remove").click()
    expect(place(view, "DuckPond")).to_have_count(0)
    expect(view.page.get_by_label("What to edit")).to_have_value("world:")


def test_a_place_that_replaces_another_is_named_before_and_while_the_agent_tries(view: PageView) -> None:
    differences = view.page.locator(".differences")
    place(view, "Bar").focus()
    view.page.keyboard.press("Delete")
    expect(differences).to_contain_text("This agent can play here, but it knows Bar only from its training.")
    view.button("A place of your own").click()
    expect(differences).to_contain_text("it does not see Spot, and it knows Bar only from its training.")
    view.button("Try it with this agent").click()
    expect(view.page.locator("body")).to_contain_text("cannot see Spot and knows Bar only from its training")


def test_verdict_follows_the_sliders(view: PageView) -> None:
    limit = control(view, "max_steps")
    expect(limit).to_have_value("40")
    limit.press("End")
    expect_yaml(view, "max_steps: 29")
    expect_verdict(view, LIVABLE)
    view.select("What to edit", value="meter:energy")
    decay = control(view, "meters", "energy", "decay")
    decay.press("End")
    # Until the new verdict is there, the old one is marked as such.
    expect(view.page.locator(".verdict.old em")).to_contain_text("the verdict on the previous one")
    expect(view.page.locator(".verdict.old strong")).to_have_text(LIVABLE)
    expect(view.page.locator(".form-field[data-field=decay] output")).to_have_text("5%")
    expect_yaml(view, "- {name: energy, decay: 0.05}")
    expect_verdict(view, UNLIVABLE)
    expect(view.page.locator(".verdict p").first).to_contain_text("even the planner survives only")
    view.button("Undo").click()
    expect_verdict(view, LIVABLE)
    control(view, "meters", "energy", "start").fill("0.5")
    expect_yaml(view, "- {name: energy, start: 0.5}")


def test_typed_text_and_form_stay_in_step(view: PageView) -> None:
    text = view.page.get_by_label("The world as YAML")
    text.fill(yaml(view) + "# my beds\naffordances: [{name: Bed, price: .07, cell: [0, 0]}]\n")
    expect(cell(view, 0, 0).locator(".map-place")).to_have_attribute("data-place", "Bed")
    place(view, "Bed").click()
    expect(control(view, "affordances", "Bed", "price")).to_have_value("0.07")
    control(view, "affordances", "Bed", "price").fill("0.03")
    expect_yaml(view, "# my beds", "price: 0.03")
    text.fill("extends: town\nmap: {size: [200, 200]}\n")
    expect(view.page.locator(".world-map p")).to_contain_text("too large to be drawn")
    expect(view.page.locator(".map-cell")).to_have_count(0)
    text.fill("extends: town-l0\n")
    expect(view.page.locator(".map-cell")).to_have_count(25)
    text.fill("extends: town\nmap: {size: [4")
    expect(view.page.locator(".error-list button")).to_contain_text("line")
    expect(view.page.locator(".map-cell")).to_have_count(25)  # the last valid world
    expect(view.page.locator(".verdict")).to_be_hidden()


def test_errors_are_shown_at_their_fields(view: PageView) -> None:
    view.select("What to edit", value="meter:energy")
    wait = control(view, "meters", "energy", "wait")
    wait.press("End")
    error = view.page.locator(".form-field[data-field=wait] .field-error")
    expect(error).to_contain_text("waiting must be cheaper: lower `wait` or raise `move`.")
    expect(wait).to_have_attribute("aria-invalid", "true")
    expect(wait).to_have_value("0.05")  # what was entered stays
    expect(view.page.locator(".error-list button")).to_contain_text("energy, extra loss by waiting: WAIT costs 0.05")
    view.button("Undo").click()
    expect(error).to_have_count(0)
    place(view, "Bed").click()
    text = view.page.get_by_label("The world as YAML")
    text.fill(yaml(view) + "affordances: [{name: Bed, each_tick: {sleep: 1}}, {name: Gym, price: 7}]\n")
    expect(view.page.locator(".form-field[data-field=each_tick] .field-error")).to_contain_text("sleep")
    expect(view.page.locator(".error-list button").nth(1)).to_contain_text("Gym, price per step: ")
    expect(view.page.locator(".field-error")).to_have_count(1)  # that of the gym is not about the bed


def test_any_text_becomes_a_valid_name(view: PageView) -> None:
    view.button("A place of your own").click()
    name = control(view, "affordances", "Spot", "name")
    name.fill("1")
    name.press("Enter")
    expect(view.page.locator(".form-field[data-field=name] .field-error")).to_have_text(
        "A name needs a letter: begin with one."
    )
    name.fill("Mia’s Café!")
    name.press("Enter")
    expect(place(view, "Mias Cafe")).to_be_visible()


def test_quick_changes_are_all_made(view: PageView) -> None:
    """Each change needs the text of the one before, which the server sends."""
    place(view, "Bed").click()
    values = [["field-affordances_Bed_price", "0.1"], ["field-affordances_Bed_ticks", "3"]]
    view.page.evaluate(CHANGE_AT_ONCE, values)
    expect_yaml(view, "price: 0.1", "ticks: 3")


def test_places_added_quickly_get_names_and_cells_of_their_own(view: PageView) -> None:
    view.page.locator(".palette-place").first.evaluate("(button) => { button.click(); button.click(); }")
    for name in ("Spot", "Spot2"):
        expect(place(view, name)).to_be_visible()
    expect_yaml(view, "name: Spot\n", "name: Spot2\n")


def change_price_and(view: PageView, script: str) -> None:
    """Change the price of the Bed to 0.1, and run a script before the server has answered."""
    place(view, "Bed").click()
    change = "price.value = '0.1'; price.dispatchEvent(new Event('change'));"
    view.page.evaluate(
        f"() => {{ const price = document.getElementById('field-affordances_Bed_price'); {change} {script} }}"
    )


def test_typing_keeps_a_change_that_is_underway(view: PageView) -> None:
    """The answer to the change must not overwrite what was typed meanwhile, and the change is not lost."""
    change_price_and(
        view,
        """
        const text = document.querySelector('.yaml-editor');
        text.value += '# typed';
        text.dispatchEvent(new Event('input'));
        """,
    )
    expect_yaml(view, "# typed", "price: 0.1")


def test_change_that_is_underway_is_part_of_the_world_that_is_tried(view: PageView) -> None:
    change_price_and(view, "document.querySelector('.editor-bar .primary').click();")
    expect(view.page.locator("#town-label")).to_contain_text("in your edited world")
    assert "price: 0.1" in yaml(view)


def test_answer_does_not_end_the_drag_of_a_slider(view: PageView) -> None:
    place(view, "Bed").click()
    slider = control(view, "affordances", "Bed", "price")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    assert box is not None
    mouse, middle = view.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 8, middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] / 3, middle, steps=3)
    # The answer to another change arrives during the drag.
    view.page.evaluate(CHANGE_AT_ONCE, [["field-affordances_Bed_ticks", "3"]])
    expect_yaml(view, "ticks: 3")
    mouse.move(box["x"] + box["width"] - 9, middle, steps=3)
    mouse.up()
    view.wait_until(lambda: re.search(r"price: 0\.(2[5-9]|3)", yaml(view)), why=yaml(view))
    expect(control(view, "affordances", "Bed", "ticks")).to_have_value("3")


def test_half_typed_name_survives_an_answer(view: PageView) -> None:
    view.button("A place of your own").click()
    expect_yaml(view, "name: Spot")
    name = control(view, "affordances", "Spot", "name")
    name.press("End")
    name.press_sequentially("Lake")
    view.page.evaluate(CHANGE_AT_ONCE, [["field-affordances_Spot_ticks", "3"]])
    expect_yaml(view, "ticks: 3")
    expect(name).to_have_value("SpotLake")
    name.press("Enter")
    expect(place(view, "SpotLake")).to_be_visible()


def test_person_can_try_a_world_that_the_agent_does_not_know(view: PageView) -> None:
    view.page.get_by_label("The world as YAML").fill("extends: town-l0\n")
    tries = view.page.locator(".editor-bar .primary")
    expect(tries).to_be_disabled()
    view.button("Watch").click()
    view.agent("planner (knows the rules)")
    view.button("World").click()
    expect(tries).to_be_enabled()
    tries.click()
    expect(view.page.locator("#town-label")).to_contain_text("planner, which knows the rules, in your edited world")


def test_refused_change_leaves_the_world_as_it_was(view: PageView) -> None:
    original = yaml(view)
    place(view, "Bed").click()
    name = control(view, "affordances", "Bed", "name")
    name.fill("Couch")
    name.press("Enter")
    expect(view.page.locator(".toast")).to_contain_text("'Bed' is inherited and cannot be renamed")
    expect(name).to_have_value("Bed")
    assert yaml(view) == original
    drag(view, place(view, "Bed"), cell(view, 4, 0))
    expect_yaml(view, "cell: [4, 0]")


# Number of pixels of a color of the palette on the canvas of the town.
RED = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let k = 0; k < data.length; k += 4) found += data[k] === 0xdd && data[k + 1] === 0x3f && data[k + 2] === 0x3b;
  return found;
}"""


def test_icon_is_drawn_and_seen_in_the_town(view: PageView) -> None:
    town, mouse = view.page.locator(".town-canvas").first, view.page.mouse
    assert town.evaluate(RED) == 0
    place(view, "Bed").click()
    view.page.get_by_text("Draw an icon").click()
    drawing = view.page.locator(".pixel-editor canvas")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    pixel = box["width"] / 12
    row = [box["y"] + (k + 0.5) * pixel for k in range(12)]
    mouse.move(box["x"] + pixel * 2.5, row[1])
    mouse.down()
    mouse.move(box["x"] + pixel * 9.5, row[1])  # a fast pointer leaves no gap
    mouse.up()
    expect_yaml(view, "      ............\n      ..rrrrrrrr..\n")
    view.button("Fill").click()
    mouse.click(box["x"] + pixel / 2, row[11])
    view.button("blue").click()
    view.button("Draw").click()
    drawing.focus()
    for key in ("ArrowUp", "ArrowRight", "Space"):
        view.page.keyboard.press(key)
    expect(view.page.locator(".pixel-status")).to_have_text("Column 2, row 11: blue")
    expect_yaml(view, "      rbrrrrrrrrrr\n      rrrrrrrrrrrr\n")
    expect(drawing).to_be_focused()
    expect(place(view, "Bed").locator("svg.drawn-icon path")).to_have_count(2)  # one for each color
    view.button("Try it with this agent").click()
    expect(view.page.locator("#town-label")).to_contain_text("in your edited world")
    view.wait_until(lambda: town.evaluate(RED) > 100, why="the drawing is not in the town")
    view.button("World").click()
    view.button("Clear").click()
    expect(place(view, "Bed").locator("svg.drawn-icon")).to_have_count(0)
    view.wait_until(lambda: "icon" not in yaml(view), why="the YAML still has the icon")


# Names of places that do not fit their cells.
CUT = """() => [...document.querySelectorAll('.map-cell .map-name')].filter((name) => {
  const box = name.getBoundingClientRect(), cell = name.closest('.map-cell').getBoundingClientRect();
  const fits = box.left >= cell.left - 1 && box.right <= cell.right + 1 && box.bottom <= cell.bottom + 1;
  return !fits || !box.height || name.scrollWidth > name.clientWidth + 1;
}).map((name) => name.textContent)"""


@pytest.mark.parametrize("width", [390, 1366])
def test_names_of_places_fit_their_cells(open_page: OpenPage, town_server: LiveServer, width: int) -> None:
    view = open_page(town_server, size=(width, 844))
    view.button("World").click()
    expect(place(view, "LuxuryBed").locator(".map-name")).to_be_visible()
    assert view.page.evaluate(CUT) == []
