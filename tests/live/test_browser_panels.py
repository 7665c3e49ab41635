"""What stands around the town: runs, views, theme, help, explanations, and lives as files."""

from __future__ import annotations

import base64
import csv
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser"]

EBML = b"\x1a\x45\xdf\xa3"  # how every WebM begins
# Plays the first picture of a video and gives its size and length.
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
def look(visit: Visit, shown: Served) -> Look:
    """The page over a finished run, whose latest checkpoint plays."""
    return visit(shown)


def test_a_life_as_a_table(look: Look, runs: tuple[Run, Run]) -> None:
    look.until(lambda: look.step() >= 6)
    step = look.pause()
    with look.page.expect_download() as coming:
        look.button("Save as CSV").click()
    assert re.fullmatch(rf"{runs[0].name}-episode-\d+\.csv", coming.value.suggested_filename)
    with open(coming.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["age"]) for row in rows] == list(range(step + 1))
    meters = look.page.locator(".meter")
    for k in range(meters.count()):
        name, told = meters.nth(k).locator("span").inner_text(), meters.nth(k).locator("b").inner_text()
        value = float(rows[-1][name])
        assert told == (f"${value * 100:.2f}".removesuffix(".00") if name == "money" else f"{int(value * 100 + 0.5)}%")
    assert rows[0]["action"] == ""
    assert all(row["action"] and row["why"] and float(row["reward"]) is not None for row in rows[1:])


def test_a_video_of_the_town(look: Look, runs: tuple[Run, Run]) -> None:
    look.button("Record a video").click()
    expect(look.button("Stop and save the video")).to_have_attribute("aria-pressed", "true")
    step = look.step()
    look.until(lambda: look.step() >= step + 8)
    with look.page.expect_download() as coming:
        look.button("Stop and save the video").click()
    assert coming.value.suggested_filename == f"{runs[0].name}.webm"
    data = coming.value.path().read_bytes()
    assert data.startswith(EBML)
    assert len(data) > 10_000
    width, height = look.page.evaluate(PLAY, base64.b64encode(data).decode())
    size = look.page.locator(".town-canvas").first.evaluate("(canvas) => [canvas.width, canvas.height]")
    assert abs(width - size[0]) <= 1
    assert abs(height - size[1]) <= 1
    expect(look.button("Record a video")).to_have_attribute("aria-pressed", "false")


def test_another_run_is_chosen(look: Look, runs: tuple[Run, Run]) -> None:
    first, second = runs
    switch = look.page.get_by_role("button", name="Choose a run")
    switch.click()
    lines = look.page.locator("#run-list [role=option]")
    expect(lines).to_have_count(2)
    scores = [float(found[1]) for text in lines.all_inner_texts() if (found := re.search(r"best ([\d.]+)", text))]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    lines.filter(has_text=second.name).click()
    expect(look.page.locator("#run-list")).to_be_hidden()
    expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    expect(look.page).to_have_url(re.compile(f"#run={second.name}$"))
    look.until(lambda: look.step() >= 0)
    look.moves()
    switch.click()
    look.page.keyboard.press("Escape")
    expect(look.page.locator("#run-list")).to_be_hidden()
    switch.click()
    lines.filter(has_text=first.name).click()
    expect(look.page.locator("#run-name")).to_have_text("town:dqn")


def test_a_link_leads_to_its_run(visit: Visit, shown: Served, runs: tuple[Run, Run]) -> None:
    look = visit(shown, at=f"#run={runs[1].name}")
    expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")


def test_views(look: Look) -> None:
    page = look.page
    expect(page.locator("#learning")).to_be_visible()
    expect(page.locator("#world")).to_be_hidden()
    look.button("World").click()
    expect(page.locator("#world textarea")).to_be_visible()
    expect(page.locator("#learning")).to_be_hidden()
    expect(look.button("World")).to_have_attribute("aria-pressed", "true")
    look.moves()  # the town stays beside the text
    look.button("Watch").click()
    expect(page.locator("#learning")).to_be_visible()
    expect(page.locator("#world")).to_be_hidden()


def test_the_theme_changes_and_is_kept(look: Look) -> None:
    def ground() -> int:
        """How bright the page is."""
        colour = look.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    light, town = ground(), look.picture()
    assert light > 600
    switch = look.page.get_by_role("button", name=re.compile("^Theme"))
    switch.click()
    assert ground() < 150
    look.until(lambda: look.picture() != town)
    look.page.reload()
    look.until(lambda: look.step() >= 0)
    assert ground() < 150
    expect(switch).to_have_attribute("title", "Theme: dark")
    switch.click()
    assert ground() == light


def test_the_theme_follows_the_system(visit: Visit, shown: Served) -> None:
    look = visit(shown, theme="dark")
    theme = look.page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")
    look.page.emulate_media(color_scheme="light")
    expect(theme).to_have_attribute("data-theme", "light")


def test_help_opens_and_closes(look: Look) -> None:
    dialog = look.page.get_by_role("dialog")
    button = look.page.get_by_role("button", name="Help and keyboard")
    button.click()
    expect(dialog).to_contain_text("Keyboard")
    look.button("Close").click()
    expect(dialog).to_be_hidden()
    button.click()
    look.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()  # one is where one was


def test_every_panel_explains_itself(look: Look) -> None:
    page, told = look.page, set()
    for view in ("Watch", "World"):
        look.button(view).click()
        panels = page.locator("main > .panel:visible")
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
            told.add(note.inner_text())
            page.keyboard.press("Escape")
            expect(note).to_have_count(0)
    assert len(told) == 7  # the eighth, of the wall, is there while a run trains


def test_why_and_what_it_was_worth(look: Look) -> None:
    look.until(lambda: look.step() >= 2)
    look.pause()
    assert len(look.text(".explanation")) > 20
    assert re.fullmatch(r"[+−]?\d+\.\d+", look.text(".reward-total"))
    expect(look.page.locator(".action.chosen")).to_have_count(1)
    before = look.text(".explanation")
    told = {before}
    for _ in range(6):
        step = look.step()
        look.button("One step forward").click()
        look.until(lambda step=step: look.step() == step + 1)
        told.add(look.text(".explanation"))
    assert len(told) > 1
