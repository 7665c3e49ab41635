"""The page for a class: comparing, asking, training, tournaments, the story, sharing, joining and presenting."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Route, expect

from live.conftest import LiveServer
from townlet.lessons.schema import shipped_lessons
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.overview import make_overview
from townlet.web.tokens import OPERATOR, VIEWER
from web.generated import generate_tokens

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

JARGON = re.compile(r"ε|epsilon|potential|advantage|\brows?\b|Q-value|\blogits?\b", re.IGNORECASE)
# Text on the first screen, without what is folded.
FIRST_SCREEN = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (one.closest('script, noscript, option, .visually-hidden')) continue;
    if (one.checkVisibility({ visibilityProperty: true })) found.push(walk.currentNode.data.trim());
  }
  return found.filter(Boolean);
}"""
# Smallest text in pixels of the screen: of elements, and of what is drawn on the map.
SMALLEST_TEXT = """async () => {
  const sizes = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || one.closest('script, noscript, option, .visually-hidden, svg')) continue;
    if (!one.checkVisibility({ visibilityProperty: true }) || !one.getClientRects().length) continue;
    sizes.push([parseFloat(getComputedStyle(one).fontSize) * one.currentCSSZoom, text]);
  }
  return sizes.sort((a, b) => a[0] - b[0])[0];
}"""
RECORD_MAP_TEXT = """() => {
  window.mapText = {};
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    const onMap = !this.canvas.closest('#learning');
    if (onMap) window.mapText[text] = parseFloat(/([\\d.]+)px/.exec(this.font)[1]) * this.getTransform().a;
    return fillText.call(this, text, ...rest);
  };
}"""
COUNT_TONES = """() => {
  window.tones = 0;
  window.AudioContext = class {
    currentTime = 0;
    createOscillator() {
      window.tones += 1;
      return { frequency: {}, connect: (next) => next, start() {}, stop() {} };
    }
    createGain() {
      const gain = { setValueAtTime() {}, exponentialRampToValueAtTime() {} };
      return { gain, connect: (next) => next };
    }
  };
}"""
# Viewport coordinates of the center of a cell of the map.
CELL = """(canvas, [x, y]) => {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const side = Math.min(width, height) / 8;
  return [left + (width - 8 * side) / 2 + (x + 0.5) * side, top + (height - 8 * side) / 2 + (y + 0.5) * side];
}"""


@pytest.fixture
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page of a finished run, playing its best checkpoint."""
    return open_page(town_server)


@pytest.fixture(scope="session")
def shared_school(runs: tuple[Run, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server over two runs in the same world, of which one was copied."""
    root = tmp_path_factory.mktemp("school")
    for name in (runs[0].name, f"{runs[0].name}-copy"):
        shutil.copytree(runs[0].path, root / "runs" / name)
    server = LiveServer(root / "runs", runs[0].name, root / "worlds", generate_tokens(OPERATOR, VIEWER))
    server.wait()
    yield server
    server.stop()


def choices(view: PageView, chooser: str) -> list[str]:
    """Labels of the agents that can be chosen."""
    return view.page.get_by_label(chooser, exact=True).locator("option").all_text_contents()


def steps(view: PageView) -> list[int]:
    """The step of each town, from the captions."""
    found = [re.search(r"Step ([\d,]+)", text) for text in view.page.locator(".town-caption").all_text_contents()]
    return [int(one[1].replace(",", "")) for one in found if one]


def answer(view: PageView, question: str) -> list[str]:
    """The compared options of the answer to a question."""
    expect(view.page.locator(".answer > strong")).to_have_text(re.compile(question))
    return view.page.locator(".answer-option").all_text_contents()


def test_first_screen_explains_itself(view: PageView) -> None:
    intro = view.page.locator("#intro")
    expect(intro).to_be_visible()
    sentences = re.findall(r"[^.]+\.", view.text("#intro p"))
    assert len(sentences) == 3
    seen = view.page.evaluate(FIRST_SCREEN)
    assert len(seen) > 50
    assert [text for text in seen if JARGON.search(text)] == []
    view.button("More about this page").click()
    expect(view.page.get_by_role("dialog")).to_contain_text("About this page")
    view.page.keyboard.press("Escape")
    view.button("Close the introduction").click()
    expect(intro).to_be_hidden()
    view.page.reload()
    view.wait_until(lambda: view.step() >= 0)
    expect(intro).to_be_hidden()


def test_agent_of_another_run_plays_beside(open_page: OpenPage, shared_school: LiveServer) -> None:
    view = open_page(shared_school)
    (other,) = (label for label in choices(view, "Compare with") if label.startswith("town:dqn"))
    view.agent(other, "Compare with")
    captions = view.page.locator(".town-caption:visible")
    expect(captions).to_have_count(2)
    expect(captions.nth(1)).to_contain_text("best checkpoint")
    assert view.starts[-1]["cell_of"] == view.starts[-2]["cell_of"]
    assert view.starts[-1]["seed"] == view.starts[-2]["seed"]
    view.agent("elder (comes with Townlet)", "Compare with")
    expect(captions.nth(1)).to_contain_text("elder, best checkpoint")
    view.expect_moving()


def test_agent_that_does_not_fit_is_refused(view: PageView) -> None:
    """The agent before goes on playing."""
    (other,) = (label for label in choices(view, "Compare with") if label.startswith("town-shuffled:ppo"))
    view.agent(other, "Compare with")
    expect(view.page.locator(".toast")).to_be_visible()
    expect(view.page.locator(".town-canvas:visible")).to_have_count(1)
    expect(view.page.get_by_label("Compare with", exact=True)).to_have_value("")
    view.expect_moving()


def test_person_plays_beside_an_agent(view: PageView) -> None:
    view.page.get_by_label("Compare with", exact=True).focus()
    view.agent("you, with the keyboard", "Compare with")
    expect(view.page.locator(".human-controls")).to_be_visible()
    assert view.page.locator(".human-controls kbd").all_text_contents() == ["↑", "↓", "←", "→", "Enter", "W"]
    expect(view.button("Right")).to_have_attribute("aria-pressed", "true")  # the own meters
    view.wait_until(lambda: steps(view) == [0, 0])
    view.page.wait_for_timeout(400)
    assert steps(view) == [0, 0]  # everything waits for the person
    for count, key in enumerate(("ArrowRight", "w", "ArrowDown"), 1):  # without a click or Tab in between
        view.page.keyboard.press(key)
        expected = [count, count]
        view.wait_until(partial(lambda both: steps(view) == both, expected), why=f"{key}: {steps(view)}")
    view.page.locator(".human-buttons button[data-action=WAIT]").click()
    view.wait_until(lambda: steps(view) == [4, 4])
    for count, key in enumerate(("ArrowUp", "Space"), 5):  # not the button that was clicked
        view.page.keyboard.press(key)
        expected = [count, count]
        view.wait_until(partial(lambda both: steps(view) == both, expected), why=f"{key}: {steps(view)}")
    assert view.text(".explanation").startswith(("Use", "Tries"))
    before = view.page.evaluate("scrollY")
    view.page.keyboard.press("PageDown")  # no action in this world
    view.page.wait_for_timeout(300)
    assert view.page.evaluate("scrollY") == before
    view.button("World").click()
    view.page.locator("#save-name").press_sequentially("w.w")
    view.button("Watch").click()
    view.page.wait_for_timeout(300)
    assert steps(view) == [6, 6]
    view.agent("planner (knows the rules)", "Compare with")
    expect(view.page.locator(".human-controls")).to_be_hidden()
    view.button("Play").click()
    view.expect_moving()


def test_why_not_a_place_or_an_action(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 3)
    canvas = view.page.locator(".town-canvas").first
    view.page.mouse.click(*canvas.evaluate(CELL, [1, 1]))
    options = answer(view, r"^Why (not )?the bed at step \d+\?$")
    assert len(options) == 2
    assert all(re.search(r"\d+%$", text) for text in options)
    sentences = view.page.locator(".answer p").all_text_contents()
    assert sentences[0].endswith("%.") or "the next 100 steps" in sentences[0]
    assert sentences[-1].startswith("The planner, which knows the rules, would ")
    expect(view.button("Play")).to_be_visible()  # paused at the step in question
    view.wait_until_still()
    view.page.locator(".action", has_text="wait").click()
    answer(view, r"^Why (not )?wait at step \d+\?$")
    chosen = view.page.locator(".action.chosen").text_content()
    assert chosen


def test_tournament_of_all_agents(open_page: OpenPage, shared_school: LiveServer) -> None:
    view = open_page(shared_school)
    view.button("Let all agents play").click()
    expect(view.button("Play again")).to_be_enabled(timeout=60_000)
    lines = view.page.locator(".tournament tbody tr")
    expect(lines).to_have_count(5)
    expect(lines.filter(has_text="elder")).to_contain_text("100%")
    expect(lines.first.locator("th")).to_have_text("planner, which knows the rules")
    expect(view.page.locator(".tournament tr.own")).to_have_count(1)
    about = view.page.locator("#tournament-body [role=status]")
    expect(about).to_contain_text("plays with its best checkpoint, tries nothing at random")
    expect(about).to_contain_text("its summary is that of the last checkpoint")
    expect(view.page.locator("#learning .summary")).to_contain_text(re.compile("At its last .*checkpoint, this agent"))
    expect(view.page.locator("#learning .measured")).to_contain_text(
        re.compile(r"Evaluation: the mean of \d+ episodes")
    )
    means = [int(text) for text in view.page.locator(".tournament td:nth-child(2)").all_text_contents()]
    assert means == sorted(means, reverse=True)
    assert "95% interval" in (lines.first.locator("td").first.get_attribute("title") or "")
    expect(lines.first.locator(".interval-bar b")).to_have_attribute("style", re.compile("left: "))
    guest = open_page(shared_school, link=shared_school.server.link(VIEWER))
    expect(guest.page.locator("#tournament")).to_be_visible()
    expect(guest.button("Let all agents play")).to_be_hidden()
    expect(guest.page.locator(".tournament tbody tr")).to_have_count(5)  # also in other pages, and after a reload
    expect(guest.page.locator("#tournament")).to_contain_text("50 episodes of at most 160 steps")


def test_tournament_is_shown_although_the_server_missed_a_request(
    open_page: OpenPage, shared_school: LiveServer
) -> None:
    view = open_page(shared_school)
    view.allow_error("/api/tournaments|ERR_FAILED")
    failed: list[str] = []

    def fail_once(route: Route) -> None:
        if len(failed) < 2 and route.request.method == "GET":
            failed.append(route.request.url)
            route.abort()
        else:
            route.fallback()

    view.page.route("**/api/tournaments*", fail_once)
    view.page.locator("#tournament .operator-only").click()
    expect(view.button("Play again")).to_be_enabled(timeout=60_000)
    assert len(failed) == 2
    view.page.unroute("**/api/tournaments*")


def test_story_and_sounds(view: PageView) -> None:
    events = view.page.locator(".story li")
    sound = view.page.locator("#sound-button")
    expect(sound).to_have_attribute("aria-pressed", "false")
    view.page.evaluate(COUNT_TONES)
    view.page.get_by_label("Speed").press("End")
    expect(view.page.locator(".end-card").first).to_be_visible()
    expect(events.first).to_contain_text(re.compile("Day 2(lives to the step limit|dies: no )"))
    name = view.text("#story-name")
    assert name == view.starts[0]["name"]
    expect(view.page.locator("#town-label")).to_contain_text(name)
    assert view.page.evaluate("window.tones") == 0
    sound.click()
    expect(sound).to_have_attribute("aria-pressed", "true")
    view.button("New episode").click()
    view.wait_until(lambda: view.page.evaluate("window.tones") > 0)
    sound.click()
    expect(sound).to_have_attribute("aria-pressed", "false")


def test_link_opens_the_same_moment(view: PageView, open_page: OpenPage, town_server: LiveServer) -> None:
    view.agent("random agent", "Compare with")
    view.wait_until(lambda: len(view.starts) >= 3)
    view.button("New episode").click()
    view.wait_until(lambda: view.step() >= 4)
    step = view.pause()
    view.button("Copy a link to this moment").click()
    expect(view.page.locator(".toast")).to_contain_text("opens this moment")
    fragment = view.page.url.partition("#")[2]
    shown = [view.text(".town-caption"), view.page.locator(".town-caption").nth(1).text_content()]
    seed = view.starts[-1]["seed"]
    assert f"step={step}" in fragment
    assert f"seed={seed}" in fragment

    other = open_page(town_server)
    other.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)  # pasted into the address bar
    other.wait_until(lambda: other.starts[-1]["seed"] == seed and other.step() == step)
    view.page.bring_to_front()
    view.button("New episode").click()
    view.wait_until(lambda: view.starts[-1]["seed"] != seed)
    view.page.reload()
    view.wait_until(lambda: view.starts[-1]["seed"] == seed and view.step() == step)
    for page in (view, other):
        page.page.bring_to_front()
        assert page.wait_until_still() == step
        captions = page.page.locator(".town-caption").all_text_contents()
        assert captions == [text.replace("best checkpoint", "checkpoint") for text in shown if text]  # the same one


def test_others_join_with_the_code(view: PageView, open_page: OpenPage) -> None:
    view.button("Let others join").click()
    dialog = view.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Viewers cannot save, train or start tournaments.")
    code = dialog.get_by_alt_text("QR code of the link for viewers")
    view.wait_until(lambda: code.evaluate("(image) => image.naturalWidth") > 100)
    link = dialog.get_by_role("link").get_attribute("href") or ""
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    view.page.goto(link)
    expect(view.page.locator("body")).to_have_attribute("data-viewer", "")
    expect(view.page).not_to_have_url(re.compile("token"))
    view.wait_until(lambda: view.step() >= 0)
    view.button("World").click()
    expect(view.page.locator(".train-form")).to_be_hidden()
    expect(view.page.locator(".read-only")).to_be_visible()


def test_lessons_ask_before_they_answer(view: PageView) -> None:
    view.button("Lessons").click()
    dialog = view.page.get_by_role("dialog")
    lessons = shipped_lessons()
    expect(dialog.locator(".lesson")).to_have_count(len(lessons))
    first = dialog.locator(".lesson").first
    first.locator("summary").first.click()
    expect(first).to_contain_text(lessons[0].question)
    expect(first).to_contain_text(f"townlet lesson {lessons[0].name} --open")
    first.get_by_role("button", name="Copy").click()
    view.wait_until(
        lambda: (
            first.get_by_role("button").text_content() == "Copied"
            or view.page.evaluate("String(getSelection())") == f"townlet lesson {lessons[0].name} --open"
        )
    )
    expect(first.get_by_text(lessons[0].conclusion)).to_be_hidden()
    first.get_by_text("What happened").click()
    expect(first.get_by_text(lessons[0].conclusion)).to_be_visible()
    figure = first.get_by_role("img")
    view.wait_until(lambda: figure.evaluate("(image) => image.naturalWidth") > 100)
    expect(dialog.get_by_role("button", name="Close")).to_be_in_viewport()  # however long the list is
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_viewers_have_controls_of_their_own(open_page: OpenPage, town_server: LiveServer) -> None:
    first = open_page(town_server)
    first.pause()
    first.agent("planner (knows the rules)")
    second = open_page(town_server, link=town_server.server.link(VIEWER))
    second.expect_moving()
    expect(second.page.locator("#town-label")).to_contain_text("best checkpoint")
    second.agent("random agent", "Compare with")
    expect(second.page.locator(".town-canvas:visible")).to_have_count(2)
    first.page.bring_to_front()
    expect(first.page.locator("#town-label")).to_contain_text("planner")
    expect(first.page.locator(".town-canvas:visible")).to_have_count(1)
    assert first.wait_until_still() == 0


def test_presentation_is_readable_from_afar(open_page: OpenPage, town_server: LiveServer) -> None:
    view = open_page(town_server, size=(1920, 1080))
    view.page.evaluate(RECORD_MAP_TEXT)
    view.button("Presentation mode").click()
    expect(view.button("Presentation mode")).to_have_attribute("aria-pressed", "true")
    expect(view.page.locator("#learning")).to_be_hidden()
    view.expect_moving()
    size, text = view.page.evaluate(SMALLEST_TEXT)
    assert size >= 24, text
    names = view.page.evaluate("window.mapText")
    assert {"Bed", "Job"} <= names.keys()
    assert min(names.values()) >= 24, names
    assert view.page.evaluate("document.scrollingElement.scrollWidth") <= 1920
    for shown in (view.page.locator(".town-canvas").first, view.button("Pause"), view.page.locator(".action").last):
        box = shown.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 1080
    canvas = view.page.locator(".town-canvas").first
    view.page.mouse.click(*canvas.evaluate(CELL, [1, 1]))
    answer(view, r"^Why (not )?the bed at step \d+\?$")
    view.blur()
    view.page.keyboard.press("p")
    expect(view.page.locator("#learning")).to_be_visible()


@pytest.mark.long
def test_training_is_started_watched_and_stopped(open_page: OpenPage, runs: tuple[Run, Run], tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(runs[0].path, root / runs[0].name)
    served = LiveServer(root, runs[0].name, tmp_path / "worlds", generate_tokens(OPERATOR))
    view = open_page(served)
    view.allow_error("/api/trainings")  # the browser logs refused requests
    view.button("World").click()
    view.button("A place of your own").click()
    expect(view.page.locator(".differences")).to_contain_text("An agent that you train here sees everything")
    form = view.page.locator(".train-form")
    start = form.get_by_role("button", name="Start training")
    expect(form.locator("small")).to_contain_text("DQN")  # what the recipe does
    form.get_by_label("Name").fill("town")
    start.click()
    expect(form.get_by_role("status").last).to_contain_text("shipped world and cannot be overwritten")
    form.get_by_label("Name").fill("duck-town")
    form.get_by_label("How long").press("End")
    start.click()
    expect(view.page.locator("#run-name")).to_have_text("duck-town:dqn", timeout=60_000)
    expect(view.page.locator("#run-state")).to_have_text("training", timeout=30_000)
    expect(view.page.locator("#learning .chart canvas").first).to_be_visible(timeout=60_000)  # its curve
    expect(view.button("Stop training")).to_be_visible()
    view.page.reload()
    view.button("Stop training").click()  # also after a reload
    expect(view.page.locator("#run-state")).to_have_text("interrupted", timeout=60_000)
    expect(view.button("Stop training")).to_be_hidden()
    (trained,) = (run for run in Run.list(root) if run.name != runs[0].name)
    assert make_overview(trained).state == "interrupted"
    assert checkpoint.latest(trained.checkpoints) is not None
    assert "Spot" in (tmp_path / "worlds" / "duck-town.yaml").read_text("utf-8")
    served.stop()
