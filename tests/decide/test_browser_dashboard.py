"""The decision dashboard in chromium, with a service process and simulated games."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from playwright.sync_api import expect
from websockets.sync.client import ClientConnection, connect

import warm
from decide.ads_service import FileService, request
from decide.both_storages import replay_folder
from decide.service_process import VIEWER, Process
from live.test_browser_shape import ANIMATIONS_DONE, LAYOUT_PROBLEMS, LOW_CONTRAST
from townlet.decide.domains import DOMAINS
from townlet.decide.events import ServingChanged
from townlet.decide.recovery import read_events
from townlet.decide.settings import load_settings
from townlet.decide.storage import LOG
from townlet.decide.storage.file import FileStorage

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

DOMAIN: Final = "bandit-ads"
# Generous limits for busy machines; all versions are kept.
WORDS: Final = ("learning.interval=0.3", "overload.patience=10", "versions=1000")
COLLAPSED, ALWAYS = 1, 3  # a planted version, and the action that it always takes
FIRST: Final = 2  # first version trained by the service
AWAY: Final = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket"
# What is cut although it is the main thing: names of bars, and the words of a decision, also of the longest there are.
CUT: Final = """() => {
  const row = document.querySelector('.recent tbody tr');
  const put = (column, text) => { row.querySelector(`[data-column=${column}]`).textContent = text; };
  put('action', 'combat in chunk 399');
  put('reason', 'insufficient energy');
  const words = '.bar-row > span, .recent th, .recent :is([data-column=action], [data-column=reason])';
  return [...document.querySelectorAll(words)]
    .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth).map((one) => one.textContent);
}"""
# Headlines for [outcomes, first mean, last mean, spread].
BETTER: Final = """async (cases) => {
  const { RewardPanel } = await import('/static/decide-reward.js');
  const panel = new RewardPanel();
  return cases.map(([outcomes, first, last, spread]) => {
    const pairs = Array.from({ length: 200 }, (_, k) => [0.1, k % 2 ? spread : -spread]);
    panel.compare({ outcomes, actual_first: first, actual_recent: last, expected_and_actual: pairs });
    return [panel.better.textContent, panel.means.textContent];
  });
}"""
SIZES: Final = {(1280, 800): "light", (390, 844): "dark"}
PATIENT: Final = 60_000  # milliseconds
TERMS: Final = "[...document.querySelectorAll('#sum-rule b')].map((term) => term.textContent)"


class Game:
    """A game that requests decisions on demand."""

    def __init__(self, socket: ClientConnection, site: str) -> None:
        self._socket, self._site, self._seconds = socket, site, count(1)

    def ask(self) -> dict[str, Any]:
        self._socket.send(json.dumps(request(float(next(self._seconds)), self._site)))
        reply: dict[str, Any] = json.loads(self._socket.recv(20))
        return reply

    def versions(self, asked: int = 5) -> set[int]:
        """Those that decided the next few times."""
        return {self.ask()["modelVersion"] for _ in range(asked)}


def plant(folder: Path) -> None:
    """Version 1 of a service that has decided nothing: it has collapsed."""
    service = FileService(FileStorage(folder, DOMAINS[DOMAIN], load_settings(DOMAIN, WORDS, DOMAINS)))
    state = {name: tensor.clone() for name, tensor in service.storage.trainer.weights().items()}
    state["score.bias"] += 50 * torch.eye(service.domain.n_actions)[ALWAYS]
    assert service.versions.publish(0, state, service.storage.trainer.state(), {}).version == COLLAPSED
    service.storage.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A service with simulated games that play until the last test."""
    folder = tmp_path_factory.mktemp("dashboard")
    plant(folder)
    service = Process(folder, DOMAIN, *WORDS)
    service.start().wait()
    command = [sys.executable, "-m", "townlet", "decide", "simulate", DOMAIN, "--url", service.url]
    games = warm.Popen(
        [*command, "--games", "4", "--observations", "1000000", "--pause", "0.03"], stdout=subprocess.DEVNULL
    )
    yield service
    games.kill()
    games.wait()
    service.end(signal.SIGTERM)


@pytest.fixture
def service(server: Process) -> Iterator[Process]:
    """The service; afterwards nothing is pinned, and the newest version serves."""
    yield server
    server.post("/api/decide/gate-only", on=False)
    server.post("/api/decide/pin", version=server.get("/api/decide/versions")["versions"][-1]["version"])
    server.post("/api/decide/unpin")


@pytest.fixture
def game(server: Process) -> Iterator[Game]:
    with connect(server.url, proxy=None) as socket:
        yield Game(socket, f"watched at {time.time()}")


def opened(open_page: OpenPage, service: Process, motion: bool = False, **how: Any) -> PageView:
    """The page, once it shows data; bars that move at every message are most of the cost of drawing it."""
    view = open_page(service, ready=False, motion=motion, **how)
    expect(view.page.locator("body")).to_have_attribute("data-phase", "ready", timeout=PATIENT)
    return view


def number(view: PageView, selector: str) -> float:
    """The first number in the text of an element; -1 if there is none."""
    found = re.search(r"[\d,.]*\d", view.text(selector))
    return float(found[0].replace(",", "")) if found else -1.0


def shows_figure(view: PageView, figure: str) -> bool:
    """Whether a figure is above 0."""
    return number(view, f"[data-figure={figure}]") > 0


def confirm(view: PageView, button: str, reason: str | None = None) -> None:
    """Press an operator button and confirm."""
    view.page.locator(button).click()
    dialog = view.page.locator("#confirm")
    expect(dialog).to_be_visible()
    if reason is not None:
        dialog.get_by_label("Reason, for the history").fill(reason)
    dialog.locator("button[type=submit]").click()
    expect(dialog).to_be_hidden()


def decides(view: PageView) -> int:
    """The serving version according to the page."""
    return int(number(view, "#serving"))


def test_dashboard_updates_and_counts_add_up(open_page: OpenPage, service: Process) -> None:
    view = opened(open_page, service, motion=True)
    before, version = number(view, "#sum-rule"), decides(view)
    view.wait_until(lambda: number(view, "#sum-rule") > before, why="no decision was made")
    view.wait_until(lambda: decides(view) > version, why="no version was promoted")
    for figure in ("per_second", "p50", "games", "step", "pace", "batch", "seconds", "completed"):
        view.wait_until(partial(shows_figure, view, figure), why=f"{figure} is not shown")
    terms = [int(text.replace(",", "")) for text in view.page.evaluate(TERMS)]
    assert terms[0] == sum(terms[1:]) > 0
    assert number(view, "[data-figure=agrees]") == 100
    view.wait_until(lambda: view.page.locator(".uplot canvas").count() == 6, why="a curve is missing")
    assert view.page.locator(".columns[data-kind=action] i").count() == 12
    expect(view.page.locator(".recent td[data-column=action]").first).to_contain_text(re.compile(r"^ad \d+$"))
    expect(view.page.locator(".control-panel .legend")).to_contain_text("p99")
    expect(view.page.locator(".recent tbody tr:visible")).to_have_count(14)
    view.wait_until(lambda: "M" in (view.page.locator(".scatter .dots").get_attribute("d") or ""))
    expect(view.page.locator("#history li").first).to_contain_text("promoted")
    expect(view.page.locator("#invitation")).to_be_hidden()
    alarms = [alarm["name"] for alarm in service.get("/api/decide/stats")["alarms"]]
    assert set(alarms) <= {"slow_training"}  # steps are slow on a busy machine


def test_theme_change_redraws_all_charts(open_page: OpenPage, service: Process) -> None:
    page = (view := opened(open_page, service)).page
    charts = page.locator(".uplot")
    view.wait_until(lambda: charts.count() == 6, why="a curve is missing")
    page.evaluate("document.querySelectorAll('.uplot').forEach((chart) => { chart.dataset.old = ''; })")
    page.get_by_role("button", name=re.compile("^Theme")).click()
    view.wait_until(lambda: page.locator(".uplot[data-old]").count() == 0, why="a chart keeps its old colors")
    assert charts.count() == 6


def test_improvement_headline(open_page: OpenPage, service: Process) -> None:
    cases = [[999, 0.1, 0.3, 0.4], [1000, 0.1, 0.3, 0.4], [5000, 0.3, 0.1, 0.4], [5000, 0.1, 0.12, 0.4]]
    early, better, worse, same = opened(open_page, service).page.evaluate(BETTER, cases)
    assert early == ["Too early to say", "999 of 1,000 outcomes so far."]
    assert better[0] == "Better by 0.2"
    assert "+0.10 for the first 500 outcomes → +0.30 for the last 500" in better[1]
    assert worse[0] == "Worse by 0.2"
    assert same[0] == "No clear difference, +0.02"  # 2 · .4 · √(2 / 500) = .05 is chance


def test_pin_and_unpin(open_page: OpenPage, service: Process, game: Game) -> None:
    view = opened(open_page, service)
    view.page.locator("#pin-button").click()
    view.page.locator("#confirm").get_by_role("button", name="Cancel").click()
    assert service.get("/api/decide/versions")["pinned"] is None  # cancelling changes nothing
    confirm(view, "#pin-button", "to view at it")
    expect(view.page.locator("#serving")).to_contain_text("pinned")
    held = decides(view)
    newest = service.get("/api/decide/versions")["versions"][-1]["version"]
    view.wait_until(lambda: service.get("/api/decide/versions")["versions"][-1]["version"] > newest + 2)
    assert game.versions() == {held}
    expect(view.page.locator("#rollback-button")).to_be_disabled()
    expect(view.page.locator("#history")).to_contain_text("to view at it")
    confirm(view, "#unpin-button")
    expect(view.page.locator("#unpin-button")).to_be_hidden()
    view.wait_until(lambda: decides(view) > held, why="no version follows")
    assert min(game.versions()) > held


def test_roll_back_and_pin(open_page: OpenPage, service: Process, game: Game) -> None:
    view = opened(open_page, service)
    view.wait_until(lambda: decides(view) > COLLAPSED + 2)
    view.page.locator("#rollback-button").click()
    held = int(number(view, "#confirm-title"))
    view.wait_until(lambda: decides(view) > held + 3, why="nothing is promoted meanwhile")
    dialog = view.page.locator("#confirm")
    dialog.get_by_label("Reason, for the history").fill("it went wrong")
    dialog.get_by_role("button", name=f"Roll back to {held}").click()
    expect(view.page.locator("#serving")).to_have_text(
        f"Version {held} is serving, pinned"
    )  # the version that was confirmed
    assert game.versions() == {held}
    answer = service.get("/api/decide/versions")
    back = next(change for change in reversed(answer["history"]) if change["kind"] == "roll_back")
    assert (back["applied"], back["version"], back["reason"]) == (True, held, "it went wrong")
    assert held < max(change["version"] for change in answer["history"] if change["applied"])
    log = [event for event in read_events(service.folder / LOG) if isinstance(event, ServingChanged)]
    assert {"roll_back: it went wrong", "pin: it went wrong"} <= {event.why for event in log if event.version == held}


def test_kill_switch_reaches_games(open_page: OpenPage, service: Process, game: Game) -> None:
    view = opened(open_page, service)
    switch, body = view.page.locator("#kill-switch"), view.page.locator("body")
    expect(switch).to_have_attribute("aria-checked", "false")
    assert 0 not in game.versions()
    confirm(view, "#kill-switch", "it sells nothing")
    expect(switch).to_have_attribute("aria-checked", "true")
    expect(body).to_have_attribute("data-gate-only", "")
    expect(view.page.locator("#serving")).to_have_text("The gate decides alone")
    expect(view.page.locator("#status")).to_have_text("gate only")
    assert game.versions() == {0}
    newest = view.page.locator("#history li[data-verdict=gate_only]").first  # promotions continue meanwhile
    expect(newest).to_contain_text("The gate decides alone")
    expect(newest).to_contain_text("it sells nothing")
    confirm(view, "#kill-switch")
    expect(view.page.locator("#history")).to_contain_text("The network decides again")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(view.page.locator("#serving")).to_contain_text("Version")
    assert 0 not in game.versions()


def test_collapsed_version_raises_an_alarm(open_page: OpenPage, service: Process, game: Game) -> None:
    view = opened(open_page, service)
    view.page.locator("#pin-choice").select_option(str(COLLAPSED))
    confirm(view, "#pin-button", "a mistake")
    alarm = view.page.locator("[data-alarm=collapsed]")
    expect(alarm).to_contain_text("The policy has collapsed", timeout=PATIENT)
    expect(alarm).to_contain_text("Roll back")
    assert {game.ask()["ad"] for _ in range(5)} == {ALWAYS}
    assert "collapsed" in [one["name"] for one in service.get("/api/decide/stats")["alarms"]]
    assert view.page.title().startswith("⚠")
    view.page.locator("#pin-choice").select_option(str(FIRST))
    confirm(view, "#pin-button", "the other always says the same")
    expect(view.page.locator("#serving")).to_have_text(f"Version {FIRST} is serving, pinned")
    expect(alarm).to_have_count(0, timeout=PATIENT)
    assert not view.page.title().startswith("⚠")


# A request that a viewer's page does not offer.
TRY: Final = """() => import('/static/api.js').then(({ request }) => request('api/decide/gate-only', { on: true }))
  .catch((error) => error.message)"""


def test_viewer_has_no_controls(open_page: OpenPage, service: Process) -> None:
    view = opened(open_page, service, link=f"{service.origin}/?token={VIEWER}")
    assert view.page.url == f"{service.origin}/"
    expect(view.page.locator(".operator")).to_be_hidden()
    expect(view.page.locator(".read-only")).to_contain_text("This link is read-only")
    view.allow_error("403|api/decide/gate-only")
    answer = view.page.evaluate(TRY)
    assert answer == "this needs the token of the operator, but has that of the viewer"
    assert not service.get("/api/decide/versions")["gate_only"]
    view = opened(open_page, service)
    expect(view.page.locator(".operator")).to_be_visible()
    expect(view.page.locator(".read-only")).to_be_hidden()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux to let the disk fail")
def test_full_disk_is_reported_and_decisions_continue(open_page: OpenPage, service: Process, game: Game) -> None:
    view = opened(open_page, service)
    assert service.process is not None
    most = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, most[1]))
    try:
        alarm = view.page.locator("[data-alarm=log]")
        expect(alarm).to_contain_text("The log cannot be written")
        view.wait_until(lambda: service.get("/api/decide/stats")["service"]["problem"])
        assert game.ask()["type"] == "ad_decision"
    finally:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, most)
    expect(alarm).to_have_count(0)
    before = number(view, "#sum-rule")
    view.wait_until(lambda: number(view, "#sum-rule") > before)


@pytest.mark.long
def test_dashboard_layout_and_contrast(open_page: OpenPage, service: Process) -> None:
    answer: dict[str, list[str]] = {}
    service.post("/api/decide/pin", version=COLLAPSED, reason="so that there is an alarm")
    for size, theme in SIZES.items():
        view = opened(open_page, service, motion=True, size=size)
        expect(view.page.locator("[data-alarm=collapsed]")).to_be_visible(timeout=PATIENT)
        view.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        view.wait_until(view.page.locator(".scroll-table td").count)
        view.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        view.page.locator("#unpin-button").evaluate("(button) => button.click()")  # only its layout is tested here
        expect(view.page.locator("#confirm")).to_be_visible()
        answer[f"{size} {theme} dialog"] = view.page.evaluate(LOW_CONTRAST)["found"]
        view.page.keyboard.press("Escape")
        view.wait_until(partial(view.page.evaluate, ANIMATIONS_DONE))
        answer[f"{size} {theme}"] = [*view.page.evaluate(LAYOUT_PROBLEMS), *view.page.evaluate(LOW_CONTRAST)["found"]]
        answer[f"{size} {theme} cut"] = view.page.evaluate(CUT)
    assert answer == {name: [] for name in answer}, json.dumps(answer, indent=1)


@pytest.mark.long
def test_dashboard_waits_for_games_and_reconnects(open_page: OpenPage, tmp_path: Path) -> None:
    service = Process(tmp_path, DOMAIN, *WORDS)
    service.start().wait()
    try:
        view = opened(open_page, service)
        expect(view.page.locator("#invitation")).to_contain_text(f"decide simulate {DOMAIN} --url {service.address}")
        expect(view.page.locator(".recent")).to_be_hidden()
        with connect(service.url, proxy=None) as socket:
            Game(socket, "a").versions(3)
        expect(view.page.locator("#invitation")).to_be_hidden()
        view.wait_until(lambda: number(view, "#sum-rule") == 3)
        view.allow_error(AWAY)
        service.end(signal.SIGKILL)
        banner = view.page.locator("#banner")
        expect(banner).to_contain_text("The service has stopped or does not answer")
        expect(view.page.locator("#status")).to_have_text("offline")
        assert number(view, "#sum-rule") == 3  # the last data stays visible
        view.page.locator("#kill-switch").click()
        view.page.locator("#confirm button[type=submit]").click()
        expect(view.page.locator(".toast")).to_contain_text("The service does not answer")
        service.start().wait()
        expect(banner).to_be_hidden(timeout=PATIENT)
        expect(view.page.locator("#status")).to_contain_text("serving")
        with connect(service.url, proxy=None) as socket:
            Game(socket, "b").versions(4)
        view.wait_until(lambda: number(view, "#sum-rule") == 7)
    finally:
        service.end(signal.SIGTERM)
    assert all(version.same for version in replay_folder(tmp_path))


# A game in a browser: repeats a request, loses its connection, and continues.
PLAY: Final = """async ([url, first, second]) => {
  const { Client } = await import('/client.js');
  const service = new Client(url);
  const one = await service.request(first), again = await service.request(first);
  service.socket.close();
  const two = await service.request(second);
  const answer = await service.request({ type: 'click_report', decisionId: one.decisionId, clicked: true });
  service.close();
  const late = await service.request({ type: 'ping' }).catch((error) => error.message);
  return { one, again, two, answer, late, connections: service.connections };
}"""


def test_browser_client_reconnects_and_resends(open_page: OpenPage, service: Process) -> None:
    site = f"browser at {time.time()}"
    asked = [service.url, request(1.0, site), request(2.0, site)]
    found = opened(open_page, service).page.evaluate(PLAY, asked)
    assert found["one"] == found["again"]
    assert found["one"]["type"] == found["two"]["type"] == "ad_decision"
    assert found["one"]["decisionId"] != found["two"]["decisionId"]
    assert found["answer"] == {"type": "outcome_ack", "decisionId": found["one"]["decisionId"]}
    assert found["connections"] == 2
    assert "closed" in found["late"]
