"""A training beside the page: lives as they end, the wall, curves that grow, and its end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from crash.smith import only_run
from live.conftest import Served
from live.test_browser_shape import MISFITS
from live.test_training import ENDLESS, Trained
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser"]


def number(text: str) -> float:
    """12.3K steps as a number."""
    found = re.match(r"([\d.]+)([KMB]?)", text)
    assert found, text
    return float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[found[2]]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    """A server over a folder that is not there yet."""
    one = Served(tmp_path / "runs", None, tmp_path / "worlds")
    yield one
    one.stop()


def nobody(look: Look) -> None:
    """The page says that there is nothing to see, and what to do."""
    expect(look.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(look.page.locator("#empty")).to_contain_text("townlet train")
    expect(look.page.locator("main")).to_be_hidden()


@pytest.mark.long
def test_a_training_is_watched_from_its_beginning_to_its_end(visit: Visit, empty: Served, tmp_path: Path) -> None:
    look = visit(empty, ready=False)
    nobody(look)
    trained = Trained(tmp_path / "runs", "metrics.every=500", *ENDLESS)
    try:
        expect(look.page.locator("#run-state")).to_have_text("training", timeout=60_000)
        look.until(lambda: look.step() >= 0, seconds=60)
        watched(look)
    finally:
        trained.end()
    over(look)


def watched(look: Look) -> None:
    """Everything that there is to see while a run trains."""
    page = look.page
    expect(page.locator("#run-state")).to_have_text("training")
    expect(page.locator("#town-label")).to_have_text(re.compile(r"row \d+ of training"))
    expect(page.locator(".speed-text")).to_have_text("live speed")

    # Lives as they end, and the wall of all rows at this moment.
    expect(page.get_by_role("heading", name="Training episodes as they end")).to_be_visible()
    expect(page.locator(".episode-bars i:visible").first).to_be_visible()
    wall, note = look.picture("#rows-canvas"), look.text("#rows-note")
    assert note.startswith("16 at ")
    look.until(lambda: look.text("#rows-note") != note and look.picture("#rows-canvas") != wall)
    page.locator("#rows-overview .explain").click()
    expect(page.locator("#note-rows-overview")).to_be_visible()
    page.keyboard.press("Escape")

    page.set_viewport_size({"width": 390, "height": 844})
    look.until(lambda: page.evaluate(MISFITS) == [], why=str(page.evaluate(MISFITS)))
    page.set_viewport_size({"width": 1280, "height": 800})

    # Curves grow while training goes on.
    chart = "#learning .chart canvas"
    expect(page.locator(chart).first).to_be_visible(timeout=30_000)
    curve, steps = look.picture(chart), number(look.text("#progress-text"))
    look.until(lambda: number(look.text("#progress-text")) > steps and look.picture(chart) != curve)

    # One row of those that are watched, and back to what everybody sees.
    expect(page.locator(".row-buttons button[data-row='2']")).to_be_visible()
    look.choose("Training row", value="2")
    expect(page.locator("#town-label")).to_have_text("row 2 of training")
    look.button("Back to training").click()
    expect(look.button("Back to training")).to_be_hidden()
    expect(page.locator(".speed-text")).to_have_text("live speed")
    page.locator(".row-buttons button[data-row='1']").click()
    expect(page.locator("#town-label")).to_have_text("row 1 of training")
    expect(page.locator(".row-buttons button[data-row='0']")).to_be_visible()  # else it has not lived a whole life yet
    page.locator("#rows-canvas").click(position={"x": 10, "y": 10})
    expect(page.locator("#town-label")).to_have_text("row 0 of training")
    look.button("New episode").click()

    # Whoever touches the controls goes on alone.
    look.pause()
    expect(look.button("Back to training")).to_be_visible()
    look.button("Play").click()
    look.button("Back to training").click()


def over(look: Look) -> None:
    """What remains when it has ended."""
    page = look.page
    expect(page.locator("#run-state")).to_have_text("interrupted")
    expect(page.locator("#rows-overview")).to_be_hidden()
    expect(page.get_by_role("heading", name="Latest training episodes")).to_be_visible()
    look.until(lambda: "Training is interrupted" in look.text(".town-hint"), seconds=30)
    page.locator(".town-hint").get_by_role("button").click()
    expect(page.locator("#town-label")).to_contain_text("latest checkpoint")
    look.moves()


def test_the_page_of_the_training_itself(visit: Visit, tmp_path: Path) -> None:
    one = Trained(tmp_path, "--live", "--port", "0", *ENDLESS)
    try:
        shown = one.link()

        class Itself:
            link = shown

            def wait(self) -> None: ...

        look = visit(Itself())
        expect(look.page.locator("#run-state")).to_have_text("training")
        expect(look.page).to_have_url(re.compile(only_run(tmp_path).name))
        look.moves()
        look.forgive("ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
        one.end()  # away from a terminal the page ends with it
        expect(look.page.locator("#banner")).to_contain_text("The server has stopped or does not answer")
        expect(look.page.locator("#run-state")).to_have_text("offline")
    finally:
        one.end()


def test_the_first_run_opens_by_itself(visit: Visit, runs: tuple[Run, Run], empty: Served, tmp_path: Path) -> None:
    look = visit(empty, ready=False)
    nobody(look)
    shutil.copytree(runs[0].path, tmp_path / "coming" / runs[0].name)
    (tmp_path / "coming").rename(tmp_path / "runs")  # as a run begins: all at once
    expect(look.page.locator("#run-name")).to_have_text("town:dqn")
    expect(look.page.locator("#empty")).to_be_hidden()
    look.until(lambda: look.step() >= 0)
    look.moves()
