"""Chromium tests of the page: one browser, context and server per process; any page error fails the test.

Loaded as a pytest plugin.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast

import pytest
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from live.conftest import LiveServer
from shared_runs import Runs, train_once
from townlet.runs.folder import Run
from townlet.train.session import start
from townlet.web.tokens import OPERATOR, VIEWER
from train.tiny import tiny
from web.generated import generate_tokens

WIDE: Final = (1280, 800)
NARROW: Final = (390, 844)
PIXELS: Final = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Uint32Array(data.buffer).reduce((sum, pixel) => Math.imul(sum, 31) + pixel | 0, canvas.width);
}"""
TIMEOUT: Final = 30.0  # seconds; generous for busy machines
# Fifteen animation frames a second instead of sixty: pages are painted by the processor here.
FEWER_FRAMES: Final = """(() => {
  const real = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (draw) => setTimeout(() => real(draw), 50);
  window.cancelAnimationFrame = clearTimeout;
})()"""
PROGRAM: Final = shutil.which("chromium")


class Blank(BaseHTTPRequestHandler):
    """An empty page of the site that all servers belong to: between pages of one site chromium keeps the process."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Chromium:
    """One browser with one context. Between tests its event loop is detached, because other tests run their own."""

    def __init__(self, program: str) -> None:
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        self._browser = self._playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-gpu-rasterization"]
        )
        self._context = self._browser.new_context()  # shared: scripts and styles stay in its cache
        self._context.add_init_script(FEWER_FRAMES)
        self._idle: list[Page] = []
        self._blank = ThreadingHTTPServer(("127.0.0.1", 0), Blank)
        threading.Thread(target=self._blank.serve_forever, daemon=True).start()
        asyncio._set_running_loop(None)

    @contextmanager
    def attached(self) -> Iterator[BrowserContext]:
        """The context, usable inside the block."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self._context
        finally:
            asyncio._set_running_loop(None)

    def take_page(self) -> Page:
        """A page; opening a new one costs several seconds of processor time, so idle ones are used again."""
        return self._idle.pop() if self._idle else self._context.new_page()

    def return_page(self, page: Page) -> None:
        """Make a page idle; it keeps nothing of what it showed."""
        try:
            page.evaluate("localStorage.clear(), sessionStorage.clear()")
        except Error:  # no storage where the server is gone
            page.close()
        else:
            page.goto(f"http://127.0.0.1:{self._blank.server_port}/")
            self._idle.append(page)

    def close(self) -> None:
        """Close the browser."""
        with self.attached():
            self._browser.close()
            self._playwright.stop()
        self._blank.shutdown()
        self._blank.server_close()


class PageView:
    """An open page: helpers for tests, and all errors that its developer console would show."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.starts: list[dict[str, Any]] = []  # episode_start messages received
        self._errors: list[str] = []
        self._allowed: list[str] = []
        self._listeners: dict[str, Callable[[Any], None]] = {
            "console": self._on_console,
            "pageerror": lambda error: self._errors.append(f"page error: {error}"),
            "requestfailed": self._on_request_failed,
            "response": self._on_response,
            "websocket": lambda socket: socket.on("framereceived", self._on_message),
        }
        for event, listener in self._listeners.items():
            page.on(cast(Any, event), listener)

    def detach(self) -> None:
        """Stop listening to the page."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def _on_request_failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a reload aborts pending requests
            self._errors.append(f"failed: {request.url} {request.failure}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._errors.append(f"console: {message.text} {message.location.get('url')}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._errors.append(f"response: {response.status} {response.url}")

    def _on_message(self, text: str | bytes) -> None:
        message = json.loads(text)
        if message["type"] == "episode_start":
            self.starts.append(message)

    def allow_error(self, pattern: str) -> None:
        """Ignore errors that the test causes."""
        self._allowed.append(pattern)

    def errors(self) -> list[str]:
        """Errors so far, without the allowed ones."""
        return [error for error in self._errors if not any(re.search(pattern, error) for pattern in self._allowed)]

    def wait_until(self, condition: Callable[[], object], seconds: float = TIMEOUT, why: str = "") -> None:
        """Wait for a condition."""
        for _ in range(int(seconds / 0.03)):
            if condition():
                return
            self.page.wait_for_timeout(30)
        raise AssertionError(why or "timeout")

    def wait_for_step(self, step: int) -> None:
        """Wait until this step is on screen."""
        self.wait_until(lambda: self.step() == step, why=f"step {step} is not shown, but {self.step()}")

    def text(self, selector: str) -> str:
        """Text of the first matching element."""
        return (self.page.locator(selector).first.text_content() or "").strip()

    def step(self) -> int:
        """The step on screen; -1 before there is one."""
        found = re.match(r"step ([\d,]+)", self.text(".position"))
        return int(found[1].replace(",", "")) if found else -1

    def expect_moving(self) -> None:
        """Playback advances by more than one step."""
        before = self.step()
        self.wait_until(lambda: self.step() not in (before, before + 1), why=f"playback stopped at step {before}")

    def wait_until_still(self) -> int:
        """The step at which playback is paused."""
        before = -2
        for _ in range(20):
            now = self.step()
            if now == before:
                return now
            before = now
            self.page.wait_for_timeout(400)
        raise AssertionError("playback does not stop")

    def button(self, name: str) -> Locator:
        """A button by its exact name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def select(self, control: str, /, **option: Any) -> None:
        """Choose from a list by `value=…`, `index=…` or `label=…`."""
        self.page.get_by_label(control, exact=True).select_option(**option)

    def agent(self, name: str, chooser: str = "Who plays") -> None:
        """Choose an agent of a chooser by its label."""
        self.page.get_by_label(chooser, exact=True).select_option(label=name)

    def stations(self, chooser: str = "Who plays") -> int:
        """The number of positions of the slider through an agent's training."""
        return int(self.page.get_by_label(f"{chooser}: training progress").get_attribute("max") or 0) + 1

    def slide(self, at: int, chooser: str = "Who plays") -> str:
        """Move that slider; returns its text. The first policy is untrained, the last are the best and the latest."""
        slider = self.page.get_by_label(f"{chooser}: training progress")
        slider.fill(str(at % self.stations(chooser)))
        return slider.get_attribute("aria-valuetext") or ""

    def pause(self) -> int:
        """Pause; returns the step."""
        self.button("Pause").click()
        expect(self.button("Play")).to_be_visible()
        return self.wait_until_still()

    def blur(self) -> None:
        """Remove keyboard focus."""
        self.page.evaluate("document.activeElement.blur()")

    def canvas_hash(self, canvas: str = ".town-canvas", index: int = 0) -> str:
        """A hash of all pixels of a canvas."""
        return str(self.page.locator(canvas).nth(index).evaluate(PIXELS))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """The browser; skips where chromium is not installed."""
    if PROGRAM is None:
        pytest.skip("chromium is not installed")
    expect.set_options(timeout=TIMEOUT * 1000)
    browser = Chromium(PROGRAM)
    yield browser
    browser.close()


OpenPage = Callable[..., PageView]


def address(link: str, at: str) -> str:
    """Append a query or fragment to a link that may have a token."""
    return f"{link}&{at[1:]}" if at.startswith("?") and "?" in link else f"{link}{at}"


@pytest.fixture
def open_page(chromium: Chromium) -> Iterator[OpenPage]:
    """Opens pages of a server; at the end of the test none may have had an error."""
    views: list[PageView] = []
    with chromium.attached() as context:

        def open_one(
            served: LiveServer,
            size: tuple[int, int] = WIDE,
            theme: str = "light",
            at: str = "",
            ready: bool = True,
            link: str = "",
            motion: bool = True,
        ) -> PageView:
            served.wait()
            page = chromium.take_page()
            page.bring_to_front()  # a page in the background is drawn once per second
            page.set_viewport_size({"width": size[0], "height": size[1]})
            page.emulate_media(
                color_scheme="dark" if theme == "dark" else "light",
                reduced_motion="no-preference" if motion else "reduce",
            )
            view = PageView(page)
            views.append(view)
            page.goto(address(link or served.link, at), timeout=60_000)
            if ready:
                expect(page.locator("body")).to_have_attribute("data-phase", "ready", timeout=30_000)
                view.wait_until(lambda: view.step() >= 0, why="no episode is shown")
            return view

        yield open_one
        errors = [view.errors() for view in views]
        for view in views:
            view.detach()
            chromium.return_page(view.page)
        context.clear_cookies()
    assert errors == [[] for _ in views]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Two small runs in one folder: a town, and one whose affordances are shuffled in every episode."""

    def train(root: Path) -> Runs:
        return {name: start(tiny(name), root).run for name in ("town:dqn", "town-shuffled:ppo")}

    found = train_once(tmp_path_factory, "two", train)
    return found["town:dqn"], found["town-shuffled:ppo"]


@pytest.fixture(scope="session")
def shared_town_server(runs: tuple[Run, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server over both runs for all tests of a process."""
    worlds = tmp_path_factory.mktemp("towns") / "worlds"
    server = LiveServer(runs[0].path.parent, runs[0].name, worlds, generate_tokens(OPERATOR, VIEWER))
    server.wait()
    yield server
    server.stop()


@pytest.fixture
def town_server(shared_town_server: LiveServer) -> Iterator[LiveServer]:
    """The shared server, without saved worlds."""
    yield shared_town_server
    shutil.rmtree(shared_town_server.worlds, ignore_errors=True)
