"""The world editor: validation while typing, preview with the current agent, and saving."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from shared_runs import train_once
from time_limit import slowdown
from townlet.live.world_editing import WORLD_NAME
from townlet.town.world.load import FOLDER
from townlet.train.session import start
from train.tiny import tiny
from web.generated import generate_tokens

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView
    from townlet.runs.folder import Run

pytest_plugins = ["live.browser"]

# Milliseconds from the last key to a visible error.
MEASURE = """() => {
  const text = document.querySelector('.yaml-editor'), list = document.querySelector('.error-list');
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
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page with the world editor open."""
    one = open_page(town_server)
    one.button("World").click()
    return one


def written(view: PageView) -> str:
    return view.page.get_by_label("The world as YAML").input_value()


def write(view: PageView, text: str, verdict: str) -> None:
    """Fill the editor and wait for the result."""
    view.page.get_by_label("The world as YAML").fill(text)
    expect(view.page.locator(".editor-bar .check-result")).to_have_text(re.compile(verdict))


def test_errors_show_and_select_their_line(view: PageView) -> None:
    text = view.page.get_by_label("The world as YAML")
    took, allowed = [1000.0], 300.0
    while min(took) >= allowed and len(took) < 12:  # a busy machine may delay some attempts
        allowed = 300 * slowdown(time.monotonic)
        text.press("Control+End")
        view.page.evaluate(MEASURE)
        text.press_sequentially("\nnonsense: 1")
        expect(view.page.locator(".error-list button").first).to_be_visible()
        view.wait_until(lambda: view.page.evaluate("window.took") is not None)
        took.append(view.page.evaluate("window.took"))
        line = len(written(view).split("\n"))
        error = view.page.locator(".error-list button").first
        expect(error).to_contain_text(f"line {line}")
        expect(error).to_contain_text("nonsense")
        expect(view.page.locator(".gutter .wrong")).to_have_text(str(line))
        expect(view.page.locator(".editor-bar .check-result")).to_have_text("1 error")
        expect(view.button("Try it with this agent")).to_be_disabled()
        view.button("Start over").click()
        expect(view.page.locator(".error-list button")).to_have_count(0)
        expect(view.button("Try it with this agent")).to_be_enabled()
    assert min(took) < allowed, took

    original = written(view)
    write(view, original + "meters: [{name: energy, start: 7.0}]\n", "error")
    line = next(k for k, one in enumerate(written(view).split("\n"), 1) if "start: 7.0" in one)
    error = view.page.locator(".error-list button").first
    expect(error).to_contain_text(f"line {line}")
    error.click()
    chosen = view.page.get_by_label("The world as YAML").evaluate(
        "(text) => text.value.slice(text.selectionStart, text.selectionEnd)"
    )
    assert "start: 7.0" in chosen
    view.expect_moving()  # playback continues


@pytest.mark.long
def test_invalid_yaml_shows_its_line(view: PageView) -> None:
    write(view, "description: a\nmap: {size: [8, 8\nmax_steps: 3\n", "error")
    assert re.match(r"line [23]", view.text(".error-list button"))


def test_preview_of_an_edited_world_and_back(view: PageView) -> None:
    view.button("Watch").click()
    view.page.get_by_label("Speed").press("End")
    view.button("World").click()
    original = written(view)
    assert "max_steps: 40" in original
    write(view, original.replace("max_steps: 40", "max_steps: 30"), "This world is valid.")
    view.button("Try it with this agent").click()
    expect(view.page.locator("#town-label")).to_contain_text("best checkpoint, after")
    expect(view.page.locator(".end-card").first).to_contain_text("limit of 30 steps")
    view.page.locator("#controls").get_by_role("button", name="Back to the run’s world").click()
    expect(view.page.locator("#town-label")).to_have_text(re.compile(r"best checkpoint, after [\d,]+ steps$"))
    expect(view.page.locator(".end-card").first).to_contain_text("limit of 40 steps")
    assert "max_steps: 30" in written(view)  # the draft is kept
    view.button("World").click()
    view.button("Start over").click()
    assert written(view) == original


def test_moved_affordance_is_drawn_elsewhere(view: PageView) -> None:
    view.button("Watch").click()
    view.pause()
    view.button("World").click()
    before = view.starts[-1]["cell_of"]
    write(view, written(view) + "affordances: [{name: Bed, cell: [4, 0]}]\n", "This world is valid.")
    view.page.get_by_label("The world as YAML").press("Control+Enter")
    expect(view.page.locator("#town-label")).to_contain_text("in your edited world")
    after = view.starts[-1]["cell_of"]
    assert (before[0], after[0]) == (9, 4)
    assert before[1:] == after[1:]
    view.pause()
    # Number of colors of a tile, before and after the bed was moved.
    tile = """(canvas, [x, y]) => {
      const side = Math.min(canvas.width, canvas.height) / 8, left = (canvas.width - 8 * side) / 2;
      const found = canvas.getContext('2d').getImageData(left + x * side, y * side, side, side).data;
      return new Set(new Uint32Array(found.buffer)).size;
    }"""
    canvas = view.page.locator(".town-canvas").first
    moved = [canvas.evaluate(tile, place) for place in ([1, 1], [4, 0])]
    view.page.locator("#controls").get_by_role("button", name="Back to the run’s world").click()
    view.pause()
    usual = [canvas.evaluate(tile, place) for place in ([1, 1], [4, 0])]
    assert usual[0] > 3 * moved[0]  # affordances have many colors, empty tiles few
    assert moved[1] > 3 * usual[1]


def test_world_for_other_agents_is_said_before_trying_and_the_draft_survives_a_reload(view: PageView) -> None:
    original = written(view)
    write(view, "extends: town-l0\n", "This world is valid.")
    expect(view.page.locator(".differences")).to_contain_text("This agent cannot play in your world")
    expect(view.page.locator(".differences li").first).to_contain_text("The map has")
    expect(view.button("Try it with this agent")).to_be_disabled()
    changed = original + "# mine\n"
    write(view, changed, "This world is valid.")
    view.page.reload()
    view.wait_until(lambda: view.step() >= 0)
    view.button("World").click()
    assert written(view) == changed


def test_world_is_saved_as_a_new_file_only(view: PageView, town_server: LiveServer) -> None:
    shipped = {path: path.read_bytes() for path in FOLDER.glob("*.yaml")}
    view.allow_error(r"/api/worlds")  # the browser logs refused requests
    changed = written(view).replace("max_steps: 40", "max_steps: 33")
    write(view, changed, "This world is valid.")
    name, save, result = view.page.locator("#save-name"), view.button("Save"), view.page.locator(".save-result")
    for title in ("Town", "town-l0"):
        name.fill(title)
        save.click()
        expect(result).to_contain_text(f"'{title.lower()}' is a shipped world and cannot be overwritten")
    assert {path: path.read_bytes() for path in FOLDER.glob("*.yaml")} == shipped
    assert not town_server.worlds.exists()
    name.fill("Mia’s Größte Town!")
    expect(view.page.locator("#world-file")).to_contain_text("Stored as mias-grosste-town.yaml")
    save.click()
    file, second = (town_server.worlds / f"mias-grosste-town{number}.yaml" for number in ("", "-2"))
    expect(result).to_contain_text(f"Saved as {file}")
    save.click()  # the same text is the same file
    write(view, changed + "# more\n", "This world is valid.")
    save.click()
    expect(result).to_contain_text(f"Saved as {second}")
    assert file.read_text("utf-8") == changed
    assert second.read_text("utf-8") == changed + "# more\n"
    assert len(list(town_server.worlds.iterdir())) == 2


# Titles and the file names that the page derives from them.
TITLES = {
    "Mia’s town!": "mias-town", "Élan  Vital": "elan-vital", "7 Zwerge": "town-7-zwerge", "../out": "out",
    "城": "my-town", "": "my-town", "Straße": "strasse", "a" * 39 + " b": "a" * 39,
}  # fmt: skip


def test_every_title_gives_a_valid_file_name(view: PageView) -> None:
    name, file = view.page.locator("#save-name"), view.page.locator("#world-file")
    for title, stored in TITLES.items():
        name.fill(title)
        expect(file).to_contain_text(f"Stored as {stored}.yaml,")
        assert WORLD_NAME.fullmatch(stored)


def test_viewer_can_preview_but_not_save_worlds(open_page: OpenPage, town_server: LiveServer) -> None:
    view = open_page(town_server, link=town_server.server.link("viewer"))
    view.button("World").click()
    expect(view.page.locator(".read-only")).to_contain_text("This link is read-only")
    expect(view.page.locator("form.train-form")).to_be_hidden()
    expect(view.button("Try it with this agent")).to_be_visible()


def test_stale_token_is_reported(open_page: OpenPage, runs: tuple[Run, Run], tmp_path: Path) -> None:
    """The server restarted with new tokens on the same port."""
    before = LiveServer(runs[0].path.parent, runs[0].name, tmp_path / "worlds", generate_tokens("operator"))
    view = open_page(before)
    view.allow_error("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket|401")
    before.stop()
    port = before.server.port
    after = LiveServer(runs[0].path.parent, runs[0].name, tmp_path / "worlds", generate_tokens("operator"), port)
    expect(view.page.locator("#banner")).to_contain_text("Open the link that it printed")
    view.page.goto(after.link)
    expect(view.page.locator("body")).to_have_attribute("data-phase", "ready")
    after.stop()


def test_small_numbers_are_written_out(view: PageView) -> None:
    written = view.page.evaluate("""async () => {
      const { formatNumber } = await import('/static/format.js');
      return [-0.00099999, 0.000123456, -3e-7, 0.5].map((value) => formatNumber(value));
    }""")
    assert written == ["−0.001", "0.00012", "−3 × 10⁻⁷", "0.5"]


OWN_ICON = """
extends: town-l0
map: {size: [2, 2]}
affordances:
  - {name: Bed, cell: [1, 1]}
  - {name: DuckPond, icon: 🦆, cell: [0, 0], each_tick: {energy: .5}}
  - {name: TeaHouse, cell: [1, 0], each_tick: {energy: .5}}
"""


def test_affordance_icons_come_from_the_world_file(
    open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Map, places, last actions and transitions show it: a known emoji as a drawing; without an icon, initials."""

    def train(root: Path) -> dict[str, Run]:
        root.mkdir()
        (root / "pond.yaml").write_text(OWN_ICON, encoding="utf-8")
        return {"pond": start(tiny(str(root / "pond.yaml")), root).run}

    run = train_once(tmp_path_factory, "own-icon", train)["pond"]
    served = LiveServer(run.path.parent, run.name, tmp_path / "worlds")
    view = open_page(served)
    view.page.evaluate(
        """() => {
          window.drawn = new Set();
          const { fillText } = CanvasRenderingContext2D.prototype;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.drawn.add(text);
            return fillText.call(this, text, ...rest);
          };
        }"""
    )
    view.page.set_viewport_size({"width": 1400, "height": 900})  # the map is drawn again
    view.wait_until(lambda: {"🦆", "Duck pond", "TH", "Tea house"} <= set(view.page.evaluate("[...window.drawn]")))
    assert "🛏" not in view.page.evaluate("[...window.drawn]")  # drawn as a path
    places = view.page.locator("#affordances-body li")
    found = {item.locator("strong").text_content(): item.locator(".badge") for item in places.all()}
    assert found["Duck pond"].text_content() == "🦆"
    assert found["Tea house"].text_content() == "TH"
    expect(found["Bed"].locator("path")).to_have_count(1)
    nodes = view.page.locator("#transitions-body .node")
    expect(nodes.locator("svg text").filter(has_text="🦆")).to_have_count(1)
    view.page.evaluate(
        """() => {
          window.used = new Set();
          new MutationObserver(() => {
            for (const icon of document.querySelectorAll('.action-icon.place')) window.used.add(icon.textContent);
          }).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    view.select("Random actions", label="random actions only")
    view.page.get_by_label("Speed").press("End")
    view.wait_until(lambda: "🦆" in view.page.evaluate("[...window.used]"))
    served.stop()
