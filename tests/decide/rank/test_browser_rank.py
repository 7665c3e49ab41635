"""Ranking in chromium: what the dashboard shows as evidence, and the documented page of another origin."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from playwright.sync_api import Response, expect

from decide.rank.events import hours, liked, request
from decide.rank.test_http import post
from decide.service_process import GAME, Process
from decide.test_browser_dashboard import opened
from decide.test_docs import block

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

API: Final = "/personalizer/v1.0"
MOST_ROUNDS: Final = 12
BARS: Final = "#evidence .bar-row:not([hidden])"
# Panels that show one evidence after the other; returns headline, details and namespaces after each.
SHOWN: Final = """async (all) => {
  const { EvidencePanel } = await import('/static/decide-evidence.js');
  const panel = new EvidencePanel();
  return all.map(([gain, parts]) => {
    panel.show({ evidence: { reference: 'always the first', gain, parts }, buffer: { pending: 129 } });
    const names = [...panel.parts.box.querySelectorAll('.bar-row:not([hidden]) > span')].map((one) => one.textContent);
    return [panel.gain.textContent, panel.interval.textContent, names];
  });
}"""
# What a page of another origin sees first of a WebSocket.
OUTCOME: Final = """(address) => new Promise((resolve) => {
  const socket = new WebSocket(address);
  socket.onopen = () => resolve('opened');
  socket.onclose = () => resolve('closed');
})"""


def learn(service: Process, seed: int, count: int = 250) -> None:
    """Events whose hour decides which drink is liked; the weather does not matter."""
    skies = np.random.default_rng(seed).choice(["clear", "rain"], count)
    for number, (hour, sky) in enumerate(zip(hours(count, seed), skies, strict=True)):
        event = f"visit-{seed}-{number}"
        asked = request(event, contextFeatures=[{"time": {"hour": hour}}, {"weather": {"sky": str(sky)}}])
        del asked["type"]
        drink = post(service, f"{API}/rank", asked)[1]["rewardActionId"]
        assert post(service, f"{API}/events/{event}/reward", {"value": liked(hour, drink)})[0] == 204


def influences(view: PageView) -> dict[str, float]:
    """Namespaces and their influence, in the order of the page."""
    pairs: list[list[str]] = view.page.locator(BARS).evaluate_all(
        "(rows) => rows.map((row) => [row.querySelector('span').textContent, row.querySelector('b').textContent])"
    )
    return {name: float(size) for name, size in pairs}


def test_evidence_shows_the_namespaces_that_matter_and_the_gain(open_page: OpenPage, tmp_path: Path) -> None:
    # Few weights and many steps learn fast; much exploration shows that the weather does not matter.
    words = [
        "learning.interval=0.1", "learning.samples_per_insert=64", "learning.gradient_steps=4", "options.bits=12",
        "options.exploration.gamma=5", "options.exploration.gamma_exponent=0", "overload.patience=10",
    ]  # fmt: skip
    service = Process(tmp_path / "service", "rank", *words).start().wait()
    try:
        view = opened(open_page, service)
        expect(view.page.locator("#gain")).to_have_text("Too early to say")
        expect(view.page.locator(BARS)).to_have_count(0)
        for seed in range(1, MOST_ROUNDS):
            learn(service, seed)
            view.page.wait_for_timeout(1500)
            shown = influences(view)
            if "Better" in view.text("#gain") and shown["weather"] < shown["time"] / 3:
                break
        else:
            raise AssertionError(f"the evidence is not clear: {view.text('#evidence')}")
        found = influences(view)
        assert {"time", "weather", "action.id", "action.milk", "action.strength"} == set(found)
        assert list(found.values()) == sorted(found.values(), reverse=True)
        expect(view.page.locator("#evidence-body h3").first).to_have_text("Compared with: always the first")
        expect(view.page.locator("#gain")).to_have_text(re.compile(r"^Better by 0\.\d+ per decision$"))
        expect(view.page.locator("#gain-interval")).to_contain_text(re.compile(r"interval: \+0\.\d+ to \+0\.\d+, from"))
        widths = view.page.locator(f"{BARS} i").evaluate_all("(bars) => bars.map((bar) => parseFloat(bar.style.width))")
        assert widths[0] == 100
        assert widths == sorted(widths, reverse=True)
    finally:
        view.allow_error("ERR_|WebSocket")
        service.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with serve_shop() as served:
        words = ("--origin", served.origin, "memory.expire_after=60")
        served.service = Process(tmp_path_factory.mktemp("shop"), "rank", *words).start().wait()
        yield served
        served.service.end(signal.SIGTERM)


def test_evidence_is_ordered_and_worded_after_each_change(open_page: OpenPage, shop: Shop) -> None:
    def gain(value: float, low: float, high: float) -> dict[str, float]:
        return {"value": value, "low": low, "high": high, "count": 141}

    cases: list[Any] = [
        [None, {}],
        [gain(0.0, 0.0, 0.0), {"a": 0.1, "b": 0.2}],
        [gain(0.2, 0.1, 0.3), {"a": 0.3, "b": 0.2, "c": 0.25}],
        [gain(-0.2, -0.3, -0.1), {"a": 0.3, "c": 0.4}],
        [gain(0.1, -0.1, 0.3), {"b": 0.5, "a": 0.3, "c": 0.4}],
    ]
    none, equal, better, worse, same = opened(open_page, shop.service).page.evaluate(SHOWN, cases)
    assert none[0] == equal[0] == "Too early to say"
    assert "129 decisions are pending" in equal[1]
    assert (better[0], worse[0]) == ("Better by 0.2 per decision", "Worse by 0.2 per decision")
    assert same[0] == "No clear difference, +0.10"
    assert [case[2] for case in (none, equal, better, worse, same)] == [[], ["b", "a"], [*"acb"], [*"ca"], [*"bca"]]


class Shop:
    """The documented page, served from its own origin; the token is that of the tests."""

    service: Process

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"

    @property
    def link(self) -> str:
        return f"{self.origin}/shop.html"

    def wait(self) -> Shop:
        return self

    def page(self) -> bytes:
        return block("html page").replace("http://127.0.0.1:8780", self.service.origin).replace("TOKEN", GAME).encode()


@contextmanager
def serve_shop() -> Iterator[Shop]:
    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = served.page() if self.path.startswith("/shop.html") else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    served = Shop(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


def counts(service: Process) -> tuple[int, int]:
    """Decisions, and those with a reward."""
    buffer = service.get("/api/decide/stats")["buffer"]
    return buffer["decisions"], buffer["joined"]


def is_ranking(answer: Response) -> bool:
    return answer.url.endswith("/rank") and answer.status == 201


def test_documented_page_ranks_and_reports_clicks_that_leave_it(open_page: OpenPage, shop: Shop) -> None:
    page = open_page(shop, ready=False, link=f"{shop.origin}/").page
    decisions, joined = counts(shop.service)
    for visits in (1, 2, 3):
        with page.expect_response(is_ranking) as answer:
            page.goto(shop.link)
        first: str = answer.value.json()["rewardActionId"]
        expect(page.locator("#teasers p")).to_have_count(3)
        expect(page.locator("#teasers p").first).to_have_attribute("data-id", first)
        with page.expect_response(is_ranking):  # the link opens the page once more, which asks again
            page.locator("#teasers a").first.click()
        assert page.url.endswith(f"?{first}")
        until = time.monotonic() + 20
        while counts(shop.service) != (decisions + 2 * visits, joined + visits):
            assert time.monotonic() < until, "the click was not reported"
            time.sleep(0.05)


def test_page_of_an_allowed_origin_does_not_read_the_dashboard_of_the_operator(open_page: OpenPage, shop: Shop) -> None:
    """The operator's cookie is sent with its requests, since both origins differ in the port only."""
    opened(open_page, shop.service)
    view = open_page(shop, ready=False, link=f"{shop.origin}/")
    view.allow_error("WebSocket")
    address = shop.service.address
    assert view.page.evaluate(OUTCOME, f"{address}/stats") == "closed"
    assert view.page.evaluate(OUTCOME, f"{address}?token={GAME}") == "opened"
