"""The page during training: episodes as they end, rows overview, growing curves, and its end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from crash.training_process import only_run
from live.conftest import LiveServer
from live.test_browser_shape import LAYOUT_PROBLEMS
from live.test_training import ENDLESS, TrainingProcess
from townlet.runs import checkpoint
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]


def number(text: str) -> float:
    """12.3K steps as a number."""
    found = re.match(r"([\d.]+)([KMB]?)", text)
    assert found, text
    return float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[found[2]]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[LiveServer]:
    """A server over a folder that does not exist yet."""
    one = LiveServer(tmp_path / "runs", None, tmp_path / "worlds")
    yield one
    one.stop()


def expect_no_runs(view: PageView) -> None:
    """The page shows the placeholder for no runs."""
    expect(view.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(view.page.locator("#empty")).to_contain_text("townlet train")
    expect(view.page.locator("main")).to_be_hidden()


@pytest.mark.long
def test_training_is_watched_from_start_to_end(open_page: OpenPage, empty: LiveServer, tmp_path: Path) -> None:
    view = open_page(empty, ready=False)
    expect_no_runs(view)
    trained = TrainingProcess(tmp_path / "runs", "metrics.every=500", *ENDLESS)
    try:
        expect(view.page.locator("#run-state")).to_have_text("training", timeout=60_000)
        view.wait_until(lambda: view.step() >= 0, seconds=60)
        watched(view)
    finally:
        trained.end()
    over(view)


def watched(view: PageView) -> None:
    """Check everything the page shows during training."""
    page = view.page
    expect(page.locator("#run-state")).to_have_text("training")
    expect(page.locator("#town-label")).to_have_text(re.compile(r"town \d+ of the training"))
    expect(page.locator(".speed-text")).to_have_text("live speed")

    # Episodes as they end, and the overview of all rows.
    expect(page.get_by_role("heading", name="Training episodes as they end")).to_be_visible()
    expect(page.locator(".episode-bars i:visible").first).to_be_visible()
    wall, note = view.canvas_hash("#rows-canvas"), view.text("#rows-note")
    assert note.startswith("the first 16, after ")
    view.wait_until(lambda: view.text("#rows-note") != note and view.canvas_hash("#rows-canvas") != wall)
    page.locator("#rows-overview .explain").click()
    expect(page.locator("#note-rows-overview")).to_be_visible()
    page.keyboard.press("Escape")

    page.set_viewport_size({"width": 390, "height": 844})
    view.wait_until(lambda: page.evaluate(LAYOUT_PROBLEMS) == [], why=str(page.evaluate(LAYOUT_PROBLEMS)))
    page.set_viewport_size({"width": 1280, "height": 800})

    # Curves grow during training.
    chart = "#learning .chart canvas"
    expect(page.locator(chart).first).to_be_visible(timeout=30_000)
    curve, steps = view.canvas_hash(chart), number(view.text("#progress-text"))
    view.wait_until(lambda: number(view.text("#progress-text")) > steps and view.canvas_hash(chart) != curve)

    # One recorded row, and back to the shared playback.
    expect(page.locator(".row-buttons button[data-row='2']")).to_be_visible()
    view.select("Parallel town", value="2")
    expect(page.locator("#town-label")).to_contain_text("town 2 of the training")
    view.button("Back to training").click()
    expect(view.button("Back to training")).to_be_hidden()
    expect(page.locator(".speed-text")).to_have_text("live speed")
    page.locator(".row-buttons button[data-row='1']").click()
    expect(page.locator("#town-label")).to_contain_text("town 1 of the training")
    expect(page.locator(".row-buttons button[data-row='0']")).to_be_visible()  # its first episode has ended
    page.locator("#rows-canvas").click(position={"x": 10, "y": 10})
    expect(page.locator("#town-label")).to_have_text("town 0 of the training")
    view.button("New episode").click()

    # Using the controls detaches from the shared playback.
    view.pause()
    expect(view.button("Back to training")).to_be_visible()
    view.button("Play").click()
    view.button("Back to training").click()


def over(view: PageView) -> None:
    """Check the page after the end of training."""
    page = view.page
    expect(page.locator("#run-state")).to_have_text("interrupted")
    expect(page.locator("#rows-overview")).to_be_hidden()
    expect(page.get_by_role("heading", name="Latest training episodes")).to_be_visible()
    view.wait_until(lambda: "The run was interrupted" in view.text(".town-hint"), seconds=30)
    page.locator(".town-hint").get_by_role("button").click()
    expect(page.locator("#town-label")).to_contain_text("latest checkpoint")
    view.expect_moving()


def test_page_started_by_training(open_page: OpenPage, tmp_path: Path) -> None:
    one = TrainingProcess(tmp_path, "--live", "--port", "0", *ENDLESS)
    try:
        shown = one.link()

        class Itself:
            link = shown

            def wait(self) -> None: ...

        view = open_page(Itself())
        expect(view.page.locator("#run-state")).to_have_text("training")
        expect(view.page).to_have_url(re.compile(only_run(tmp_path).name))
        view.expect_moving()
        view.allow_error("ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
        one.end()  # without a terminal the server ends with it
        expect(view.page.locator("#banner")).to_contain_text("The server has stopped or does not answer")
        expect(view.page.locator("#run-state")).to_have_text("offline")
    finally:
        one.end()


def test_first_run_opens_automatically(
    open_page: OpenPage, runs: tuple[Run, Run], empty: LiveServer, tmp_path: Path
) -> None:
    view = open_page(empty, ready=False)
    expect_no_runs(view)
    coming = Run(Path(shutil.copytree(runs[0].path, tmp_path / "coming" / runs[0].name)))
    best = checkpoint.best(coming.checkpoints)
    assert best is not None
    best.path.rename(tmp_path / best.name)
    (tmp_path / "coming").rename(tmp_path / "runs")  # atomically, as a run starts
    expect(view.page.locator("#run-name")).to_have_text("town:dqn")
    expect(view.page.locator("#empty")).to_be_hidden()
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()
    before = view.stations()
    (tmp_path / best.name).rename(tmp_path / "runs" / runs[0].name / "checkpoints" / best.name)
    view.wait_until(lambda: view.stations() == before + 1)
