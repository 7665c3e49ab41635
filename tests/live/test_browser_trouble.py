"""What goes wrong while one looks: a server that goes away, runs that vanish or break, names that are no names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from townlet.runs.folder import Run
from townlet.train.session import start
from train.tiny import tiny

if TYPE_CHECKING:
    from live.browser import Visit

pytest_plugins = ["live.browser"]

AWAY = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket"
EVIL = "<img src=x onerror=window.hacked=1>"


def again(before: Served, root: Path, first: str | None) -> Served:
    """A server at the port of one that was stopped."""
    one = Served(root, first, before.worlds, port=before.server.port)
    assert one.server.port == before.server.port
    return one


@pytest.fixture
def copied(runs: tuple[Run, Run], tmp_path: Path) -> tuple[Run, Run]:
    """The runs, to be harmed."""
    for run in runs:
        shutil.copytree(run.path, tmp_path / "runs" / run.name)
    return Run(tmp_path / "runs" / runs[0].name), Run(tmp_path / "runs" / runs[1].name)


@pytest.fixture
def served(copied: tuple[Run, Run], tmp_path: Path) -> Iterator[Served]:
    """A server over them."""
    one = Served(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    yield one
    one.stop()


def test_the_page_goes_on_when_the_server_is_back(visit: Visit, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = Served(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    look = visit(served)
    look.choose("Random actions", label="20% random")
    look.moves()
    look.forgive(AWAY)
    served.stop()
    banner = look.page.locator("#banner")
    expect(banner).to_be_visible()
    expect(banner).to_contain_text("The server has stopped or does not answer")
    expect(look.page.locator("#run-state")).to_have_text("offline")
    look.stands()
    expect(look.page.locator(".town-canvas").first).to_be_visible()  # what came last stays in sight
    back = again(served, tmp_path / "runs", copied[0].name)
    try:
        expect(banner).to_be_hidden(timeout=15_000)
        expect(look.page.locator("#run-state")).to_have_text("finished")
        look.moves()
        assert look.page.get_by_label("Random actions").input_value() == "0.2"  # what was chosen is still chosen
        options = look.page.get_by_label("Checkpoint to play").locator("option").all_text_contents()
        assert len(options) == len(set(options)) > 3
    finally:
        back.stop()


def test_a_page_without_a_server_waits_for_one(visit: Visit, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = Served(tmp_path / "nothing", None, tmp_path / "worlds")
    look = visit(served, ready=False)
    expect(look.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    look.forgive(AWAY)
    served.stop()
    expect(look.page.get_by_role("heading", name="The server is offline")).to_be_visible()
    look.button("Try now").click()  # nobody is there yet
    back = again(served, tmp_path / "runs", copied[0].name)
    try:
        look.until(lambda: look.step() >= 0)
        look.moves()
    finally:
        back.stop()


@pytest.mark.long
def test_a_server_that_comes_back_with_other_runs(visit: Visit, copied: tuple[Run, Run], tmp_path: Path) -> None:
    served = Served(tmp_path / "runs", copied[0].name, tmp_path / "worlds")
    look = visit(served)
    look.forgive(AWAY)
    served.stop()
    expect(look.page.locator("#banner")).to_be_visible()
    copied[1].path.rename(tmp_path / "other")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").rename(tmp_path / "elsewhere" / copied[1].name)
    back = again(served, tmp_path / "elsewhere", copied[1].name)
    try:
        expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
        look.until(lambda: look.step() >= 0)
        look.moves()
    finally:
        back.stop()


def test_a_run_that_is_removed_is_told(visit: Visit, served: Served, copied: tuple[Run, Run], tmp_path: Path) -> None:
    look = visit(served)
    look.moves()
    look.forgive(f"/api/runs/{copied[0].name}")  # what the page still wanted to know
    copied[0].path.rename(tmp_path / "gone")
    toast = look.page.locator(".toast")
    expect(toast).to_contain_text("can no longer be read")
    expect(toast).to_contain_text("hoose another run")
    look.page.get_by_role("button", name="Choose a run").click()
    look.page.locator("#run-list [role=option]").filter(has_text=copied[1].name).click()
    expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    look.until(lambda: look.step() >= 0)
    look.moves()


@pytest.mark.parametrize("file", [pytest.param("meta.json", marks=pytest.mark.long), "metrics.db"])
def test_a_run_that_breaks_is_told(visit: Visit, served: Served, copied: tuple[Run, Run], file: str) -> None:
    look = visit(served)
    look.moves()
    look.forgive(f"/api/runs/{copied[0].name}")  # what the page still wanted to know
    (copied[0].path / file).write_bytes(b"\x00 not what it was" * 100)
    toast = look.page.locator(".toast").first
    expect(toast).to_contain_text("can no longer be read")
    expect(toast).to_contain_text(file)
    look.button("World").click()  # the page still works
    expect(look.page.get_by_label("The world as YAML")).to_be_visible()
    look.button("Watch").click()
    look.page.get_by_role("button", name="Choose a run").click()
    look.page.locator("#run-list [role=option]").filter(has_text=copied[1].name).click()
    expect(look.page.locator("#run-name")).to_have_text("town-shuffled:ppo")
    look.until(lambda: look.step() >= 0)
    look.moves()


@pytest.mark.long
def test_checkpoints_that_vanish_are_told(visit: Visit, served: Served, copied: tuple[Run, Run]) -> None:
    look = visit(served)
    look.moves()
    look.forgive(f"/api/runs/{copied[0].name}")
    shutil.rmtree(copied[0].checkpoints)
    look.choose("Checkpoint to play", value="best")
    expect(look.page.locator(".toast").first).to_contain_text("checkpoint")
    look.button("Close").first.click()
    look.button("Recordings").click()
    expect(look.page.locator("#town-label")).to_contain_text("of training")
    look.moves()


@pytest.mark.long
def test_a_damaged_run_is_not_opened(visit: Visit, served: Served, copied: tuple[Run, Run]) -> None:
    shutil.rmtree(copied[1].worlds)
    copied[1].meta_file.write_text("{")
    look = visit(served)
    look.page.get_by_role("button", name="Choose a run").click()
    line = look.page.locator("#run-list [role=option]").filter(has_text="damaged")
    expect(line).to_have_count(1)
    look.forgive(f"/api/runs/{copied[1].name}")
    line.click()
    expect(look.page.locator(".toast")).to_contain_text("cannot be shown")
    expect(look.page.locator("#run-name")).to_have_text("town:dqn")  # one stays where one was
    look.moves()


def test_names_are_text(visit: Visit, tmp_path: Path) -> None:
    run = start(tiny("town:dqn", f"change.description={EVIL}"), tmp_path / "runs").run
    run = Run(run.path.rename(run.path.with_name(EVIL)))
    served = Served(run.path.parent, run.name, tmp_path / "worlds")
    try:
        look = visit(served)
        page = look.page
        page.get_by_role("button", name="Choose a run").click()
        expect(page.locator("#run-list")).to_contain_text(EVIL)
        page.keyboard.press("Escape")
        look.button("World").click()
        expect(page.locator("#world-name")).to_have_text(EVIL)
        text = page.get_by_label("The world as YAML")
        text.fill(f"extends: town\n'{EVIL}': 1\n")
        expect(page.locator(".mistake-list")).to_contain_text(EVIL)
        look.forgive("/api/worlds")
        text.fill(f"extends: town\ndescription: '{EVIL}'\n")
        expect(page.locator(".check-result")).to_have_text("This world is valid.")
        look.button("Try it with this agent").click()
        expect(page.locator("#town-label")).to_contain_text("in your edited world")
        look.forgive(re.escape("%3Cimg"))
        run.path.rename(tmp_path / "gone")
        expect(page.locator(".toast")).to_contain_text(EVIL)
        assert page.locator("img[src=x], img[onerror]").count() == 0
        assert page.evaluate("window.hacked") is None
    finally:
        served.stop()
