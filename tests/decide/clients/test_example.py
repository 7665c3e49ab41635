"""The example game in chromium: the keeper learns, and the page says what it needs when it cannot be played."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from decide.service_process import GAME, OPERATOR, Process
from live.test_browser_shape import ANIMATIONS_DONE, LAYOUT_PROBLEMS, LOW_CONTRAST

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

WORDS: Final = ("learning.interval=0.05", "learning.samples_per_insert=64", "overload.patience=10")
SIZES: Final = {(1366, 768): "light", (390, 844): "dark"}
SHOTS, MOST_SHOTS = 50, 1500
# Shoots at the star, with one other shot in five. It waits, because training takes time, too.
BOT: Final = """async (shots) => {
  const keys = { left: 'ArrowLeft', center: 'ArrowUp', right: 'ArrowRight' };
  const before = Number(document.body.dataset.shots);
  for (let shot = before; shot < before + shots; shot += 1) {
    const side = shot % 5 ? document.body.dataset.star : Object.keys(keys)[shot % 3];
    dispatchEvent(new KeyboardEvent('keydown', { key: keys[side], cancelable: true }));
    while (document.body.dataset.shots !== String(shot + 1)) await new Promise((done) => setTimeout(done, 5));
    await new Promise((done) => setTimeout(done, 40));
  }
  const bars = [...document.querySelectorAll('.bars li')].slice(-shots / 10);
  return bars.reduce((saved, bar) => saved + Number(bar.textContent), 0) / shots;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    service = Process(tmp_path_factory.mktemp("penalties"), "rank", *WORDS).start().wait()
    yield service
    service.end(signal.SIGTERM)


def open_game(open_page: OpenPage, server: Process, token: str = GAME, **options: Any) -> PageView:
    fragment = f"#token={token}" if token else ""
    return open_page(server, ready=False, link=f"{server.origin}/examples/{fragment}", **options)


def wait_for_shots(view: PageView, shots: int) -> None:
    expect(view.page.locator("body")).to_have_attribute("data-shots", str(shots))


@pytest.mark.long
def test_the_keeper_learns_where_the_player_shoots(
    open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = Process(tmp_path_factory.mktemp("new"), "rank", *WORDS).start().wait()
    try:
        view = open_game(open_page, service, motion=False)
        wait_for_shots(view, 0)
        view.page.keyboard.press("ArrowUp")  # at first the keeper guesses
        wait_for_shots(view, 1)
        shown = view.page.locator("#zones button")
        assert [zone.get_attribute("data-probability") for zone in shown.all()] == ["33 %"] * 3
        view.page.evaluate(BOT, 9)
        rewards = [view.page.evaluate(BOT, SHOTS)]
        while rewards[-1] < 0.65 and len(rewards) < MOST_SHOTS / SHOTS:
            rewards.append(view.page.evaluate(BOT, SHOTS))
        assert rewards[-1] >= 0.65, rewards  # a keeper that guesses saves 0.33
        stats = service.get("/api/decide/stats")
        assert stats["buffer"]["joined"] == 10 + SHOTS * len(rewards)
        assert stats["service"]["version"] > 1
    finally:
        service.end(signal.SIGTERM)


@pytest.mark.parametrize("size", SIZES)
def test_keyboard_and_touch_play(open_page: OpenPage, server: Process, size: tuple[int, int]) -> None:
    view = open_game(open_page, server, size=size, theme=SIZES[size])
    wait_for_shots(view, 0)
    assert view.page.url == f"{server.origin}/examples/"  # without the token
    for shots, key in enumerate(("ArrowLeft", "ArrowUp", "ArrowRight"), 1):
        view.page.keyboard.press(key)
        expect(view.page.locator("#pitch")).to_have_attribute("data-shot", ("left", "center", "right")[shots - 1])
        assert view.text("#result") in ("Saved!", "Goal! +1", "Goal! +3")
        wait_for_shots(view, shots)
    view.page.get_by_role("button", name="left").click()
    wait_for_shots(view, 4)
    view.wait_until(lambda: view.page.evaluate(ANIMATIONS_DONE))
    assert view.page.evaluate(LAYOUT_PROBLEMS) == []
    assert view.page.evaluate(LOW_CONTRAST)["found"] == []
    view.page.reload()  # the token is kept for this tab
    wait_for_shots(view, 0)


def test_a_token_can_be_entered(open_page: OpenPage, server: Process) -> None:
    view = open_game(open_page, server, "")
    view.allow_error("401")
    expect(view.page.get_by_role("heading", name="A token is needed")).to_be_visible()
    view.page.get_by_label("Token of the role").fill("not-the-token-of-a-game")
    view.button("Play").click()
    expect(view.page.get_by_role("heading", name="This token is not valid")).to_be_visible()
    view.page.get_by_label("Token of the role").fill(GAME)
    view.page.keyboard.press("Enter")
    wait_for_shots(view, 0)


def test_the_cookie_of_the_operator_is_not_used(open_page: OpenPage, server: Process) -> None:
    view = open_page(server, ready=False, link=server.link)
    expect(view.page.locator("#domain")).to_have_text("rank")
    assert OPERATOR in {cookie.get("value") for cookie in view.page.context.cookies()}
    view.allow_error("401")
    view.page.goto(f"{server.origin}/examples/")
    expect(view.page.get_by_role("heading", name="A token is needed")).to_be_visible()


def test_a_service_of_another_domain_names_the_command(
    open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = Process(tmp_path_factory.mktemp("ads"), "bandit-ads").start().wait()
    try:
        view = open_game(open_page, service)
        expect(view.page.get_by_role("heading", name="This service does not rank")).to_be_visible()
        assert view.text("#connect-command").startswith("townlet decide serve rank --folder penalties")
    finally:
        service.end(signal.SIGTERM)


def test_a_service_that_is_down_is_reported(open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory) -> None:
    service = Process(tmp_path_factory.mktemp("stopped"), "rank").start().wait()
    view = open_game(open_page, service)
    view.allow_error("ERR_|WebSocket")
    wait_for_shots(view, 0)
    service.end(signal.SIGKILL)
    view.page.keyboard.press("ArrowLeft")
    expect(view.page.get_by_role("heading", name="No answer")).to_be_visible()
    service.start().wait()
    view.page.keyboard.press("ArrowLeft")
    wait_for_shots(view, 1)
    expect(view.page.get_by_role("heading", name="No answer")).to_be_hidden()
    service.end(signal.SIGTERM)
