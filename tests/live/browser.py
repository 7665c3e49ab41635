"""A real chromium before a real server: whatever a test opens must stay without errors until the test is over.

Tests name this module as a plugin, so that all of a process share one browser and the runs that it looks at.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Response,
    WebSocket,
    expect,
    sync_playwright,
)

from live.conftest import Served
from sharing import Runs, once
from townlet.runs.folder import Run
from townlet.train.session import start
from townlet.web.tokens import OPERATOR, VIEWER, generate_tokens
from train.tiny import tiny

WIDE: Final = (1280, 800)
NARROW: Final = (390, 844)
PIXELS: Final = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Uint32Array(data.buffer).reduce((sum, pixel) => Math.imul(sum, 31) + pixel | 0, canvas.width);
}"""
PATIENCE: Final = 15.0  # seconds; on a busy machine much takes long, and nothing is tested by waiting less
PROGRAM: Final = shutil.which("chromium")


class Chromium:
    """One browser. Between tests its loop is put aside: others in this process run loops of their own."""

    def __init__(self, program: str) -> None:
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        self._browser = self._playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        asyncio._set_running_loop(None)

    @contextmanager
    def awake(self) -> Iterator[Browser]:
        """While the block lasts it can be spoken to."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self._browser
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """End it."""
        with self.awake():
            self._browser.close()
            self._playwright.stop()


class Look:
    """One visit of the page, and what a developer would see in red meanwhile."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.starts: list[dict[str, Any]] = []  # the lives that the server has begun to show
        self._faults: list[str] = []
        self._forgiven: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._faults.append(f"page error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        page.on("websocket", self._connected)

    def _failed(self, asked: Request) -> None:
        if asked.failure != "net::ERR_ABORTED":  # a page that is loaded anew lets go of what it had asked for
            self._faults.append(f"failed: {asked.url} {asked.failure}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._faults.append(f"console: {message.text} {message.location.get('url')}")

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self._faults.append(f"answer: {answer.status} {answer.url}")

    def _connected(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._heard)

    def _heard(self, text: str | bytes) -> None:
        message = json.loads(text)
        if message["type"] == "episode_start":
            self.starts.append(message)

    def forgive(self, pattern: str) -> None:
        """A fault that the test itself causes."""
        self._forgiven.append(pattern)

    def faults(self) -> list[str]:
        """What went wrong so far."""
        return [fault for fault in self._faults if not any(re.search(one, fault) for one in self._forgiven)]

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE, why: str = "") -> None:
        """Wait for something to become true."""
        for _ in range(int(seconds / 0.03)):
            if condition():
                return
            self.page.wait_for_timeout(30)
        raise AssertionError(why or "it did not happen")

    def text(self, selector: str) -> str:
        """What is written there."""
        return (self.page.locator(selector).first.text_content() or "").strip()

    def step(self) -> int:
        """The step of a life that is shown; -1 before there is one."""
        found = re.match(r"step ([\d,]+)", self.text(".position"))
        return int(found[1].replace(",", "")) if found else -1

    def moves(self) -> None:
        """The town goes on by itself."""
        before = self.step()
        self.until(lambda: self.step() not in (before, before + 1), why=f"it stands still at step {before}")

    def stands(self) -> int:
        """The step at which it stands still."""
        before = -2
        for _ in range(20):
            now = self.step()
            if now == before:
                return now
            before = now
            self.page.wait_for_timeout(400)
        raise AssertionError("it does not stand still")

    def button(self, name: str) -> Locator:
        """By what it is called, in full."""
        return self.page.get_by_role("button", name=name, exact=True)

    def choose(self, what: str, **option: Any) -> None:
        """Of a list, as `value=…`, `index=…` or `label=…`."""
        self.page.get_by_label(what, exact=True).select_option(**option)

    def pause(self) -> int:
        """Stop it; the step at which it stands."""
        self.button("Pause").click()
        return self.stands()

    def letting_go(self) -> None:
        """No control has the keyboard."""
        self.page.evaluate("document.activeElement.blur()")

    def picture(self, canvas: str = ".town-canvas", index: int = 0) -> str:
        """A number for all of its pixels together."""
        return str(self.page.locator(canvas).nth(index).evaluate(PIXELS))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser, where there is one."""
    if PROGRAM is None:
        pytest.skip("chromium is not installed")
    expect.set_options(timeout=PATIENCE * 1000)
    one = Chromium(PROGRAM)
    yield one
    one.close()


Visit = Callable[..., Look]


def address(link: str, at: str) -> str:
    """A place on the page, by a link with or without a token."""
    return f"{link}&{at[1:]}" if at.startswith("?") and "?" in link else f"{link}{at}"


@pytest.fixture
def visit(chromium: Chromium) -> Iterator[Visit]:
    """Opens the page of a server in a browser that remembers nothing; at the end nothing may have gone wrong."""
    looks: list[Look] = []
    with chromium.awake() as browser:

        def open_page(
            served: Served,
            size: tuple[int, int] = WIDE,
            theme: str = "light",
            at: str = "",
            ready: bool = True,
            link: str = "",
        ) -> Look:
            served.wait()
            context = browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if theme == "dark" else "light"
            )
            look = Look(context.new_page())
            looks.append(look)
            look.page.goto(address(link or served.link, at), timeout=60_000)
            if ready:
                expect(look.page.locator("body")).to_have_attribute("data-phase", "ready", timeout=30_000)
                look.until(lambda: look.step() >= 0, why="no life is shown")
            return look

        yield open_page
        faults = [look.faults() for look in looks]
        for look in looks:
            look.page.context.close()
    assert faults == [[] for _ in looks]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Two runs of a second in one folder: a town, and one whose places change with every life."""

    def train(root: Path) -> Runs:
        return {name: start(tiny(name), root).run for name in ("town:dqn", "town-shuffled:ppo")}

    found = once(tmp_path_factory, "two", train)
    return found["town:dqn"], found["town-shuffled:ppo"]


@pytest.fixture
def shown(runs: tuple[Run, Run], tmp_path: Path) -> Iterator[Served]:
    """A server over both, begun for the first."""
    one = Served(runs[0].path.parent, runs[0].name, tmp_path / "worlds", generate_tokens(OPERATOR, VIEWER))
    yield one
    one.stop()
