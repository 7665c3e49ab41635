"""Controls below the town, on a finished run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]


@pytest.fixture
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page of a finished run, playing its best checkpoint."""
    return open_page(town_server)


def thoughts(view: PageView) -> str:
    """Values of all actions as text."""
    return " ".join(view.page.locator(".action b").all_text_contents())


def test_page_opens_and_town_moves(view: PageView, runs: tuple[Run, Run]) -> None:
    expect(view.page).to_have_title("Townlet")
    expect(view.page.locator("#run-name")).to_have_text("town:dqn")
    expect(view.page.locator("#run-state")).to_have_text("finished")
    expect(view.page.locator("#town-label")).to_have_text(re.compile(r"^\w+, best checkpoint, after [\d,]+ steps$"))
    expect(view.page.locator(".meter")).to_have_count(8)
    expect(view.page.locator("#learning .chart canvas").first).to_be_visible()
    step, picture = view.step(), view.canvas_hash()
    view.expect_moving()
    assert view.step() > step
    assert view.canvas_hash() != picture


def test_pause_play_and_single_steps(view: PageView) -> None:
    step = view.pause()
    picture = view.canvas_hash()
    view.page.wait_for_timeout(600)  # three steps, if it were playing
    assert (view.step(), view.canvas_hash()) == (step, picture)
    view.button("Play").click()
    view.expect_moving()
    view.button("One step forward").click()  # pauses playback
    expect(view.button("Play")).to_be_visible()
    step = view.wait_until_still()
    view.button("One step forward").click()
    view.wait_until(lambda: view.step() == step + 1)
    for there in (step, max(0, step - 1)):
        view.button("One step back").click()
        view.wait_for_step(there)
    assert view.wait_until_still() == max(0, step - 1)


def test_scrubbing_and_speed(view: PageView) -> None:
    view.pause()
    scrub = view.page.get_by_label("Position in this episode")
    box = scrub.bounding_box()
    assert box is not None
    y, x = box["y"] + box["height"] / 2, box["x"]
    view.page.mouse.move(x + box["width"] * 0.1, y)
    view.page.mouse.down()
    for part in (0.3, 0.5, 0.75):
        view.page.mouse.move(x + box["width"] * part, y, steps=3)
    view.page.mouse.up()
    view.wait_until(lambda: 28 <= view.step() <= 32)  # of 40
    assert view.wait_until_still() == int(scrub.input_value())
    scrub.press("Home")
    view.wait_until(lambda: view.step() == 0)
    view.page.mouse.click(x + box["width"] * 0.5, y)
    view.wait_until(lambda: 18 <= view.step() <= 22)
    view.button("New episode").click()
    view.expect_moving()
    speed = view.page.get_by_label("Speed")
    expect(view.page.locator(".speed-text")).to_have_text("5 steps/s")
    speed.press("Home")
    expect(view.page.locator(".speed-text")).to_have_text("0.5 steps/s")
    view.page.wait_for_timeout(300)  # frames sent before
    step = view.step()
    view.page.wait_for_timeout(1000)
    assert view.step() - step <= 1
    speed.press("End")
    expect(view.page.locator(".speed-text")).to_have_text("200 steps/s")
    # Forty steps take eight seconds at the default speed.
    expect(view.page.locator(".end-card").first).to_be_visible(timeout=2000)
    expect(view.page.locator(".end-card").first).to_contain_text("of 40 steps")
    expect(view.page.locator("#episodes-body .episode-ends li").first).to_be_visible()


def test_new_episode_and_random_actions(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 4)
    view.pause()
    before = len(view.starts)
    view.button("New episode").click()
    view.wait_until(lambda: view.step() < 3)
    assert len(view.starts) == before + 1
    view.expect_moving()  # playback resumes

    def modes() -> list[str]:
        """Modes of some steps of a new episode."""
        view.button("New episode").click()
        view.wait_until(lambda: view.step() < 3)
        view.pause()
        found = []
        for _ in range(5):
            step = view.step()
            view.button("One step forward").click()
            view.wait_for_step(step + 1)
            found.append(view.text(".badge-text"))
        return found

    assert set(modes()) == {"its favorite"}
    view.select("Random actions", label="random actions only")
    assert "trying something else" in modes()


def test_training_and_recordings_of_a_finished_run(view: PageView) -> None:
    view.button("Training").click()
    hint = view.page.locator(".town-hint").first
    expect(hint).to_contain_text("The run is finished. It is not training now.")
    expect(view.page.locator(".position")).to_have_text("")  # nothing of the episode before
    expect(view.page.get_by_label("Position in this episode")).to_be_disabled()
    expect(view.page.locator("#story-name, .story")).to_have_text(["", ""])
    view.button("Play a checkpoint").click()
    expect(view.button("Agents")).to_have_attribute("aria-pressed", "true")
    expect(hint).to_be_hidden()
    view.expect_moving()

    view.button("Recordings").click()
    expect(view.button("Recordings")).to_have_attribute("aria-pressed", "true")
    expect(view.page.locator("#town-label")).to_contain_text("of the training")
    expect(view.page.get_by_label("Who plays", exact=True)).to_be_hidden()
    kept = view.page.get_by_label("Recorded episode")
    options = kept.locator("option").all_text_contents()
    assert len(options) >= 3
    lengths = [re.search(r"(\d+) steps", one) for one in options]
    expect(view.page.locator(".position")).to_contain_text(f"of {lengths[0][1]}" if lengths[0] else "?")
    view.select("Recorded episode", index=len(options) - 1)
    view.wait_until(lambda: len(view.starts) > 2 and view.starts[-1]["env_steps"] < view.starts[-2]["env_steps"])
    expect(view.page.locator(".position")).to_contain_text(f"of {lengths[-1][1]}" if lengths[-1] else "?")
    view.expect_moving()
    view.button("New episode").click()  # restarts the recording
    view.wait_until(lambda: view.step() < 3)
    view.page.get_by_label("Speed").press("End")
    expect(view.page.locator(".end-card").first).to_be_visible()
    end = view.wait_until_still()
    view.page.get_by_label("Speed").press("Home")
    view.page.locator(".round-button.big").click()  # plays it again
    view.wait_until(lambda: view.step() < end)


def test_slider_takes_the_agent_through_its_training(view: PageView) -> None:
    """From the untrained policy to the latest one, in the same town."""
    assert view.stations() >= 5
    view.pause()
    seen = {}
    for at, text, label in ((0, "before any training", "after 0 steps"), (-2, "at its best", "best checkpoint, after"),
                            (-1, "as it is now", "latest checkpoint, after 1,200")):  # fmt: skip
        assert view.slide(at) == text
        expect(view.page.locator("#town-label")).to_contain_text(label)
        view.wait_until(lambda: view.step() == 0)  # stays paused at the first step
        view.button("One step forward").click()
        view.wait_until(lambda: view.step() == 1)
        view.wait_until(lambda: thoughts(view).strip())
        seen[at] = thoughts(view)
    assert seen[0] != seen[-1]


def test_two_agents_play_side_by_side_in_the_same_town(
    open_page: OpenPage, town_server: LiveServer, runs: tuple[Run, Run]
) -> None:
    view = open_page(town_server, at=f"#run={runs[1].name}")  # affordances are shuffled in every episode there
    view.pause()
    view.agent("this agent", "Compare with")
    view.slide(0, "Compare with")
    towns = view.page.locator(".town-canvas:visible")
    expect(towns).to_have_count(2)
    captions = view.page.locator(".town-caption:visible")
    expect(captions).to_have_count(2)
    expect(captions.nth(0)).to_contain_text("best checkpoint")
    expect(captions.nth(1)).to_contain_text("after 0 steps")
    left, right = view.starts[-2:]
    assert (left["side"], right["side"]) == (0, 1)
    assert left["cell_of"] == right["cell_of"]
    view.button("New episode").click()
    view.wait_until(lambda: all(start is not right for start in view.starts[-2:]))
    assert view.starts[-1]["cell_of"] == view.starts[-2]["cell_of"] != left["cell_of"]
    pictures = [view.canvas_hash(index=0), view.canvas_hash(index=1)]
    view.expect_moving()
    assert view.canvas_hash(index=0) != pictures[0]
    assert view.canvas_hash(index=1) != pictures[1]
    view.button("Right").click()  # switch the agent panel
    expect(view.button("Right")).to_have_attribute("aria-pressed", "true")
    for name, label in (("planner (knows the rules)", "planner"), ("random agent", "random agent")):
        view.agent(name, "Compare with")
        expect(captions.nth(1)).to_contain_text(label)
        assert view.starts[-1]["cell_of"] == view.starts[-2]["cell_of"]
    view.select("Compare with", value="")
    expect(towns).to_have_count(1)
    view.expect_moving()


def test_overlays_change_the_town(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 5)
    view.pause()
    overlay = view.page.get_by_role("button", name=re.compile("^Overlay: "))
    note = view.page.locator("#overlay-note")
    seen: dict[str, str] = {}
    expect(note).to_be_hidden()
    bare = view.canvas_hash()
    for _ in range(10):
        overlay.click()
        if overlay.get_attribute("aria-pressed") == "false":
            break
        expect(note).to_be_visible()
        name = view.text("#overlay-note strong")
        if name != "Transitions in this episode":  # a short episode may have none
            view.wait_until(lambda: view.canvas_hash() not in {bare, *seen.values()}, why=f"'{name}' changes nothing")
        seen[name] = view.canvas_hash()
    assert {"Visits in this episode", "Transitions in this episode", "Visits over all of training"} <= set(seen)
    expect(note).to_be_hidden()
    view.wait_until(lambda: view.canvas_hash() == bare)
