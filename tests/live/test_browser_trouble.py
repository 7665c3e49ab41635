"""Failures while watching: server restarts, removed or damaged runs, and hostile names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from townlet.runs.folder import Run
from townlet.train.session import start
from train.tiny import tiny

if TYPE_CHECKING:
    from live.browser import OpenPage

pytest_plugins = ["live.browser"]

AWAY = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket"
EVIL = "<img src=x onerror=window.hacked=1>"


def again(before: LiveServer, root: Path, first: str | None) -> LiveServer:
    """A server on the port of a stopped one."""
    one = LiveServer(root, first, before.worlds, port=before.server.port)
    assert one.server.port == before.server.port
    return one


@pytest.fixture
def copied(runs: tuple[Run, Run], tmp_path: Path) -> tuple[Run, Run]:
    """Copies of the runs, to be damaged."""
    for run in runs:
        shutil.copytree(run.path, tmp_path / "runs" / run.name)
    return Run(tmp_path / "runs" / runs[0].name), Run(tmp_path / "runs" / runs[1].name)


@pytest.fixture
def served(copied: tuple[Run, Run], tmp_path: Path) -> Iterator[LiveServer]:
    """A server over the copies."""
    one = LiveServer(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    yield one
    one.stop()


def test_page_reconnects_after_a_server_restart(open_page: OpenPage, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = LiveServer(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    view = open_page(served)
    view.select("Random actions", label="20% random actions")
    view.agent("planner (knows the rules)", "Compare with")
    view.page.get_by_label("Speed", exact=True).fill("3")  # 3 steps per second
    expect(view.page.locator(".town-caption").nth(1)).to_contain_text("planner")
    view.wait_until(lambda: view.step() >= 3)
    step = view.pause()
    view.allow_error(AWAY)
    served.stop()
    banner = view.page.locator("#banner")
    expect(banner).to_be_visible()
    expect(banner).to_contain_text("The server has stopped or does not answer")
    expect(view.page.locator("#run-state")).to_have_text("offline")
    expect(view.page.locator(".town-canvas").first).to_be_visible()  # the last data stays visible
    expect(view.button("Play")).to_be_disabled()
    view.blur()
    view.page.keyboard.press("ArrowRight")  # not either
    back = again(served, tmp_path / "runs", copied[0].name)
    try:
        expect(banner).to_contain_text("Connected again", timeout=15_000)
        expect(banner).to_be_hidden()
        expect(view.page.locator("#run-state")).to_have_text("finished")
        assert view.wait_until_still() == step  # the same moment
        assert view.starts[-1]["side"] == 1
        assert view.page.get_by_label("Random actions").input_value() == "0.2"  # choices are kept
        assert view.page.get_by_label("Compare with", exact=True).input_value() == "planner"
        assert view.text(".speed-text") == "3 steps/s"
        assert view.stations() > 3
        view.button("Play").click()
        view.expect_moving()
    finally:
        back.stop()


def test_page_without_runs_offers_the_shipped_agent_and_its_world(open_page: OpenPage, tmp_path: Path) -> None:
    served = LiveServer(tmp_path / "nothing", None, tmp_path / "worlds")
    view = open_page(served, ready=False)
    view.button("Build a world").click()
    expect(view.page.locator("#world-check-result")).to_have_text("This world is valid.")
    expect(view.page.locator(".map-place").first).to_be_visible()
    view.button("Watch").click()
    expect(view.page.locator("#run-name")).to_have_text("elder")
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()
    served.stop()


def test_page_without_runs_waits_for_the_server(open_page: OpenPage, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = LiveServer(tmp_path / "nothing", None, tmp_path / "worlds")
    view = open_page(served, ready=False)
    expect(view.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    view.allow_error(AWAY)
    served.stop()
    expect(view.page.get_by_role("heading", name="The server is offline")).to_be_visible()
    view.button("Try now").click()  # no server yet
    back = again(served, tmp_path / "runs", copied[0].name)
    try:
        view.wait_until(lambda: view.step() >= 0)
        view.expect_moving()
    finally:
        back.stop()


@pytest.mark.long
def test_server_restarts_with_other_runs(open_page: OpenPage, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = LiveServer(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    view = open_page(served)
    view.allow_error(AWAY)
    served.stop()
    expect(view.page.locator("#banner")).to_be_visible()
    copied[1].path.rename(tmp_path / "other")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").rename(tmp_path / "elsewhere" / copied[1].name)
    back = again(served, tmp_path / "elsewhere", copied[1].name)
    try:
        expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
        view.wait_until(lambda: view.step() >= 0)
        view.expect_moving()
    finally:
        back.stop()


def test_removed_run_is_reported(
    open_page: OpenPage, served: LiveServer, copied: tuple[Run, Run], tmp_path: Path
) -> None:
    view = open_page(served)
    view.expect_moving()
    view.allow_error(f"/api/runs/{copied[0].name}")  # pending requests
    copied[0].path.rename(tmp_path / "gone")
    toast = view.page.locator(".toast")
    expect(toast).to_contain_text("can no longer be read")
    expect(toast).to_contain_text("hoose another run")
    view.page.get_by_role("button", name="Choose a run").click()
    view.page.locator("#run-list [role=option]").filter(has_text=copied[1].name).click()
    expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()


@pytest.mark.parametrize("file", [pytest.param("meta.json", marks=pytest.mark.long), "metrics.db"])
def test_damaged_run_is_reported(open_page: OpenPage, served: LiveServer, copied: tuple[Run, Run], file: str) -> None:
    view = open_page(served)
    view.expect_moving()
    view.allow_error(f"/api/runs/{copied[0].name}")  # pending requests
    (copied[0].path / file).write_bytes(b"\x00 not what it was" * 100)
    toast = view.page.locator(".toast").first
    expect(toast).to_contain_text("can no longer be read")
    expect(toast).to_contain_text(file)
    view.button("World").click()  # the page still works
    expect(view.page.get_by_label("The world as YAML")).to_be_visible()
    view.button("Watch").click()
    view.page.get_by_role("button", name="Choose a run").click()
    view.page.locator("#run-list [role=option]").filter(has_text=copied[1].name).click()
    expect(view.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()


@pytest.mark.long
def test_missing_checkpoints_are_reported(open_page: OpenPage, served: LiveServer, copied: tuple[Run, Run]) -> None:
    view = open_page(served)
    view.expect_moving()
    view.allow_error(f"/api/runs/{copied[0].name}")
    shutil.rmtree(copied[0].checkpoints)
    view.slide(-2)
    expect(view.page.locator(".toast").first).to_contain_text("checkpoint")
    view.button("Close").first.click()
    view.button("Recordings").click()
    expect(view.page.locator("#town-label")).to_contain_text("of the training")
    view.expect_moving()


@pytest.mark.long
def test_damaged_run_is_not_opened(open_page: OpenPage, served: LiveServer, copied: tuple[Run, Run]) -> None:
    shutil.rmtree(copied[1].worlds)
    copied[1].meta_file.write_text("{")
    view = open_page(served)
    view.page.get_by_role("button", name="Choose a run").click()
    line = view.page.locator("#run-list [role=option]").filter(has_text="damaged")
    expect(line).to_have_count(1)
    view.allow_error(f"/api/runs/{copied[1].name}")
    line.click()
    expect(view.page.locator(".toast")).to_contain_text("cannot be shown")
    expect(view.page.locator("#run-name")).to_have_text("town:dqn")  # the open run stays open
    view.expect_moving()


def test_names_are_escaped(open_page: OpenPage, tmp_path: Path) -> None:
    run = start(tiny("town:dqn", f"change.description={EVIL}"), tmp_path / "runs").run
    run = Run(run.path.rename(run.path.with_name(EVIL)))
    served = LiveServer(run.path.parent, run.name, tmp_path / "worlds")
    try:
        view = open_page(served)
        page = view.page
        page.get_by_role("button", name="Choose a run").click()
        expect(page.locator("#run-list")).to_contain_text(EVIL)
        page.keyboard.press("Escape")
        view.button("World").click()
        expect(page.locator("#world-name")).to_have_text(EVIL)
        text = page.get_by_label("The world as YAML")
        text.fill(f"extends: town\n'{EVIL}': 1\n")
        expect(page.locator(".error-list")).to_contain_text(EVIL)
        view.allow_error("/api/worlds")
        text.fill(f"extends: town\ndescription: '{EVIL}'\n")
        expect(page.locator(".editor-bar .check-result")).to_have_text("This world is valid.")
        view.button("Try it with this agent").click()
        expect(page.locator("#town-label")).to_contain_text("in your edited world")
        view.allow_error(re.escape("%3Cimg"))
        run.path.rename(tmp_path / "gone")
        expect(page.locator(".toast")).to_contain_text(EVIL)
        assert page.locator("img[src=x], img[onerror]").count() == 0
        assert page.evaluate("window.hacked") is None
    finally:
        served.stop()
