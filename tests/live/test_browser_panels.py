"""Runs, views, theme, help, explanations and exports."""

from __future__ import annotations

import base64
import csv
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from townlet.runs.folder import SHIPPED, Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.train.session import start
from train.tiny import tiny

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

EBML = b"\x1a\x45\xdf\xa3"  # first bytes of WebM
# Plays a video and returns its size.
PLAY = """async (data) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const video = document.createElement('video');
  video.muted = true;
  video.src = URL.createObjectURL(new Blob([bytes], { type: 'video/webm' }));
  await new Promise((done, failed) => {
    video.onloadeddata = done;
    video.onerror = () => failed(video.error.message);
  });
  await video.play();
  await new Promise((done) => { video.ontimeupdate = () => { if (video.currentTime > 0.3) done(); }; });
  return [video.videoWidth, video.videoHeight];
}"""


@pytest.fixture
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page of a finished run, playing its best checkpoint."""
    return open_page(town_server)


def test_episode_as_csv_and_explanation_of_a_step(view: PageView, runs: tuple[Run, Run]) -> None:
    view.wait_until(lambda: view.step() >= 6)
    step = view.pause()
    with view.page.expect_download() as coming:
        view.button("Save as CSV").click()
    assert re.fullmatch(rf"{runs[0].name}-episode-\d+\.csv", coming.value.suggested_filename)
    with open(coming.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["age"]) for row in rows] == list(range(len(rows)))
    assert step + 1 <= len(rows) <= step + 3  # steps may arrive before they are shown
    meters = view.page.locator(".meter")
    for k in range(meters.count()):
        name, texts = meters.nth(k).locator("span").inner_text(), meters.nth(k).locator("b").inner_text()
        value = float(rows[step][name])
        assert texts == (f"${value * 100:.2f}".removesuffix(".00") if name == "money" else f"{int(value * 100 + 0.5)}%")
    assert rows[0]["action"] == ""
    assert all(row["action"] and row["why"] and float(row["reward"]) is not None for row in rows[1:])

    assert len(view.text(".explanation")) > 20
    assert re.fullmatch(r"[+−]?\d+\.\d+", view.text(".reward-total"))
    expect(view.page.locator(".action.chosen")).to_have_count(1)
    before = view.text(".explanation")
    explanations = {before}
    for _ in range(6):
        step = view.step()
        view.button("One step forward").click()
        view.wait_for_step(step + 1)
        explanations.add(view.text(".explanation"))
    assert len(explanations) > 1


def test_curriculum_panel_counts_every_row(open_page: OpenPage, tmp_path: Path) -> None:
    """Also rows that never changed their stage, and those after the first 64."""
    rows = 72
    stages = "curriculum={name: adaptive, episodes: 1, steps: 1, entropy: 1.0, advance: 0.9}"
    limits = ("change.max_steps=120", "budget.env_steps=1e4", "agent.replay=1e4", "agent.update_every=50")
    run = start(tiny("town:dqn", stages, f"rows={rows}", *limits), tmp_path / "runs").run
    with MetricsReader(run.metrics_file) as store:
        changed = store.read("stage_changes", ("row", "to_stage"))
    stage_of_row = dict.fromkeys(range(rows), 1) | dict(zip(changed["row"], changed["to_stage"], strict=True))
    counts = Counter(stage_of_row.values())
    assert set(changed["row"]) < set(range(rows)), "some rows must never change their stage"
    assert len(counts) > 1
    server = LiveServer(tmp_path / "runs", run.name, tmp_path / "worlds")
    try:
        view = open_page(server)
        bar = view.page.locator(".stage-bar")
        expected = ", ".join(f"stage {k}: {n} town{'' if n == 1 else 's'}" for k, n in sorted(counts.items()))
        expect(bar).to_have_attribute("aria-label", expected)
    finally:
        server.stop()


def test_video_of_the_town(view: PageView, runs: tuple[Run, Run]) -> None:
    view.button("Record a video").click()
    expect(view.button("Stop and save the video")).to_have_attribute("aria-pressed", "true")
    step = view.step()
    view.wait_until(lambda: view.step() >= step + 8)
    with view.page.expect_download() as coming:
        view.button("Stop and save the video").click()
    assert coming.value.suggested_filename == f"{runs[0].name}.webm"
    data = coming.value.path().read_bytes()
    assert data.startswith(EBML)
    assert len(data) > 10_000
    width, height = view.page.evaluate(PLAY, base64.b64encode(data).decode())
    size = view.page.locator(".town-canvas").first.evaluate("(canvas) => [canvas.width, canvas.height]")
    assert abs(width - size[0]) <= 1
    assert abs(height - size[1]) <= 1
    expect(view.button("Record a video")).to_have_attribute("aria-pressed", "false")


def test_link_opens_its_run_and_the_list_another(
    open_page: OpenPage, town_server: LiveServer, runs: tuple[Run, Run]
) -> None:
    first, second = runs
    view = open_page(town_server, at=f"#run={second.name}")
    expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    switch = view.page.get_by_role("button", name="Choose a run")
    switch.click()
    lines = view.page.locator("#run-list [role=option]")
    expect(lines).to_have_count(3)  # two runs and the shipped agent
    scores = [float(found[1]) for text in lines.all_inner_texts() if (found := re.search(r"best ([\d.]+)", text))]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    lines.filter(has_text=first.name).click()
    expect(view.page.locator("#run-list")).to_be_hidden()
    expect(view.page.locator("#run-name")).to_have_text("town:dqn")
    expect(view.page).to_have_url(re.compile(f"#run={first.name}$"))
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()
    switch.click()
    view.page.keyboard.press("Escape")
    expect(view.page.locator("#run-list")).to_be_hidden()
    switch.click()
    lines.filter(has_text=second.name).click()
    expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")


def test_published_run_is_shown_by_its_name(open_page: OpenPage, tmp_path: Path) -> None:
    server = LiveServer(SHIPPED, "elder", tmp_path)
    server.wait()
    view = open_page(server)
    expect(view.page.locator("#run-name")).to_have_text("elder")
    view.page.get_by_role("button", name="Choose a run").click()
    expect(view.page.locator("#run-list small")).to_have_text(re.compile("town:ppo-gpu"))
    server.stop()


def test_meters_are_listed_under_the_groups_of_the_world(view: PageView) -> None:
    expect(view.page.locator(".meters h3")).to_have_text(["primary", "secondary", "tertiary", "resource"])
    expect(view.page.locator(".meter", has_text="lethal")).to_have_text([re.compile("energy"), re.compile("health")])


def test_views_and_help(view: PageView) -> None:
    page = view.page
    expect(page.locator("#learning")).to_be_visible()
    expect(page.locator("#world")).to_be_hidden()
    view.button("World").click()
    expect(page.locator("#world textarea")).to_be_visible()
    expect(page.locator("#learning")).to_be_hidden()
    expect(view.button("World")).to_have_attribute("aria-pressed", "true")
    view.expect_moving()  # the town stays visible
    view.button("Watch").click()
    expect(page.locator("#learning")).to_be_visible()
    expect(page.locator("#world")).to_be_hidden()

    dialog = page.get_by_role("dialog")
    button = page.get_by_role("button", name="Help and keyboard")
    button.click()
    expect(dialog).to_contain_text("Keyboard")
    view.button("Close").click()
    expect(dialog).to_be_hidden()
    button.click()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()  # focus returns


def test_theme_follows_the_system_and_is_toggled_and_remembered(open_page: OpenPage, town_server: LiveServer) -> None:
    view = open_page(town_server, theme="dark")
    theme = view.page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")
    view.page.emulate_media(color_scheme="light")
    expect(theme).to_have_attribute("data-theme", "light")

    def ground() -> int:
        """Brightness of the page."""
        color = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    light, town = ground(), view.canvas_hash()
    assert light > 600
    switch = view.page.get_by_role("button", name=re.compile("^Theme"))
    switch.click()
    assert ground() < 150
    view.wait_until(lambda: view.canvas_hash() != town)
    view.page.reload()
    view.wait_until(lambda: view.step() >= 0)
    assert ground() < 150
    expect(switch).to_have_attribute("title", "Theme: dark")
    switch.click()
    assert ground() == light


def test_every_panel_has_an_explanation(view: PageView) -> None:
    page, texts = view.page, {}
    for tab in ("Watch", "World"):
        view.button(tab).click()
        panels = page.locator("main .panel:visible")
        asked = panels.locator(".explain")
        expect(asked).to_have_count(panels.count())
        for k in range(panels.count()):
            asked.nth(k).click()
            note = page.locator(".note:popover-open")
            expect(note).to_be_visible()
            expect(note.locator("h3")).to_have_text(panels.nth(k).locator("h2").inner_text())
            assert len(note.inner_text()) > 100
            box = note.bounding_box()
            assert box is not None
            assert box["x"] >= 0 <= box["y"]
            assert box["x"] + box["width"] <= 1280
            assert box["y"] + box["height"] <= 800
            texts[panels.nth(k).get_attribute("id")] = note.inner_text()
            page.keyboard.press("Escape")
            expect(note).to_have_count(0)
    assert len(set(texts.values())) == len(texts) >= 7  # the rows overview exists only during training
