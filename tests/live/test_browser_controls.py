"""Every control under the town does what it says, over a run that is finished."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser"]


@pytest.fixture
def look(visit: Visit, shown: Served) -> Look:
    """The page over a finished run, whose latest checkpoint plays."""
    return visit(shown)


def checkpoints(look: Look) -> list[str]:
    """By their names, the latest first."""
    found: list[str] = look.page.get_by_label("Checkpoint to play").evaluate(
        "(list) => [...list.options].map((one) => one.value)"
    )
    assert found[:2] == ["latest", "best"]
    return found[2:]


def thoughts(look: Look) -> str:
    """What the agent thinks of each action."""
    return " ".join(look.page.locator(".action b").all_text_contents())


def test_the_page_opens_and_the_town_moves(look: Look, runs: tuple[Run, Run]) -> None:
    expect(look.page).to_have_title("Townlet")
    expect(look.page.locator("#run-name")).to_have_text("town:dqn")
    expect(look.page.locator("#run-state")).to_have_text("finished")
    expect(look.page.locator("#town-label")).to_contain_text("latest checkpoint, after 1,200 steps")
    expect(look.page.locator(".meter")).to_have_count(8)
    expect(look.page.locator("#learning .chart canvas").first).to_be_visible()
    step, picture = look.step(), look.picture()
    look.moves()
    assert look.step() > step
    assert look.picture() != picture


def test_pause_and_play(look: Look) -> None:
    step = look.pause()
    picture = look.picture()
    look.page.wait_for_timeout(600)  # three steps, if it went on
    assert (look.step(), look.picture()) == (step, picture)
    look.button("Play").click()
    look.moves()


def test_one_step_forward_and_back(look: Look) -> None:
    step = look.pause()
    look.button("One step forward").click()
    look.until(lambda: look.step() == step + 1)
    for there in (step, max(0, step - 1)):
        look.button("One step back").click()
        look.until(lambda there=there: look.step() == there)
    assert look.stands() == max(0, step - 1)


def test_a_step_stops_what_plays(look: Look) -> None:
    look.button("One step forward").click()
    expect(look.button("Play")).to_be_visible()
    look.stands()


def test_scrubbing_goes_to_that_moment(look: Look) -> None:
    look.pause()
    scrub = look.page.get_by_label("Position in this episode")
    box = scrub.bounding_box()
    assert box is not None
    y, x = box["y"] + box["height"] / 2, box["x"]
    look.page.mouse.move(x + box["width"] * 0.1, y)
    look.page.mouse.down()
    for part in (0.3, 0.5, 0.75):
        look.page.mouse.move(x + box["width"] * part, y, steps=3)
    look.page.mouse.up()
    look.until(lambda: 28 <= look.step() <= 32)  # of 40
    assert look.stands() == int(scrub.input_value())
    scrub.press("Home")
    look.until(lambda: look.step() == 0)
    look.page.mouse.click(x + box["width"] * 0.5, y)
    look.until(lambda: 18 <= look.step() <= 22)


def test_speed(look: Look) -> None:
    speed = look.page.get_by_label("Speed")
    expect(look.page.locator(".speed-text")).to_have_text("5 steps/s")
    speed.press("Home")
    expect(look.page.locator(".speed-text")).to_have_text("0.5 steps/s")
    look.page.wait_for_timeout(300)  # what had been sent before
    step = look.step()
    look.page.wait_for_timeout(1000)
    assert look.step() - step <= 1
    speed.press("End")
    expect(look.page.locator(".speed-text")).to_have_text("200 steps/s")
    # Forty steps would take eight seconds at the usual speed.
    expect(look.page.locator(".end-card").first).to_be_visible(timeout=2000)
    expect(look.page.locator(".end-card").first).to_contain_text("of 40 steps")
    expect(look.page.locator("#episodes-body .episode-ends li").first).to_be_visible()


def test_another_life(look: Look) -> None:
    look.until(lambda: look.step() >= 4)
    look.pause()
    before = len(look.starts)
    look.button("New episode").click()
    look.until(lambda: look.step() < 3)
    assert len(look.starts) == before + 1
    look.moves()  # it plays again


def test_a_life_that_was_kept(look: Look) -> None:
    look.button("Recordings").click()
    expect(look.button("Recordings")).to_have_attribute("aria-pressed", "true")
    expect(look.page.locator("#town-label")).to_contain_text("of training")
    expect(look.page.get_by_label("Checkpoint to play")).to_be_hidden()
    kept = look.page.get_by_label("Recorded episode")
    options = kept.locator("option").all_text_contents()
    assert len(options) >= 3
    lengths = [re.search(r"(\d+) steps", one) for one in options]
    expect(look.page.locator(".position")).to_contain_text(f"of {lengths[0][1]}" if lengths[0] else "?")
    look.choose("Recorded episode", index=len(options) - 1)
    look.until(lambda: len(look.starts) > 2 and look.starts[-1]["env_steps"] < look.starts[-2]["env_steps"])
    expect(look.page.locator(".position")).to_contain_text(f"of {lengths[-1][1]}" if lengths[-1] else "?")
    look.moves()
    look.button("New episode").click()  # of a kept life: the same once more
    look.until(lambda: look.step() < 3)


def test_a_kept_life_plays_again_from_its_end(look: Look) -> None:
    look.button("Recordings").click()
    look.page.get_by_label("Speed").press("End")
    expect(look.page.locator(".end-card").first).to_be_visible()
    end = look.stands()
    look.page.get_by_label("Speed").press("Home")
    look.page.locator(".round-button.big").click()
    look.until(lambda: look.step() < end)


def test_a_finished_run_says_that_nothing_is_trained(look: Look) -> None:
    look.button("Training").click()
    hint = look.page.locator(".town-hint").first
    expect(hint).to_contain_text("This run is finished: it is not training now.")
    look.button("Play a checkpoint").click()
    expect(look.button("Checkpoint")).to_have_attribute("aria-pressed", "true")
    expect(hint).to_be_hidden()
    look.moves()


def test_another_checkpoint_plays(look: Look) -> None:
    names = checkpoints(look)
    assert len(names) >= 2
    look.pause()
    look.button("New episode").click()
    look.pause()
    seen = {}
    for name in (names[0], names[-1]):
        look.choose("Checkpoint to play", value=name)
        expect(look.page.locator("#town-label")).to_have_text(f"checkpoint, after {int(name[5:]):,} steps")
        look.until(lambda: look.step() == 0)  # it stays paused, at the first moment
        look.button("One step forward").click()
        look.until(lambda: look.step() == 1)
        look.until(lambda: thoughts(look).strip())
        seen[name] = thoughts(look)
    assert len(set(seen.values())) == 2  # the same town, but other thoughts
    look.choose("Checkpoint to play", value="best")
    expect(look.page.locator("#town-label")).to_contain_text("best checkpoint, after")


def test_random_actions(look: Look) -> None:
    def modes() -> list[str]:
        """Of the first steps of a life."""
        look.button("New episode").click()
        look.until(lambda: look.step() < 3)
        look.pause()
        found = []
        for _ in range(12):
            step = look.step()
            look.button("One step forward").click()
            look.until(lambda step=step: look.step() == step + 1)
            found.append(look.text(".badge-text"))
        return found

    assert set(modes()) == {"exploiting"}
    look.choose("Random actions", label="all random")
    assert "exploring" in modes()


def test_two_checkpoints_side_by_side_in_the_same_town(visit: Visit, shown: Served, runs: tuple[Run, Run]) -> None:
    look = visit(shown, at=f"#run={runs[1].name}")  # places change from life to life there
    first = checkpoints(look)[-1]
    look.pause()
    look.choose("Compare with", value=first)
    towns = look.page.locator(".town-canvas:visible")
    expect(towns).to_have_count(2)
    captions = look.page.locator(".town-caption:visible")
    expect(captions).to_have_count(2)
    expect(captions.nth(0)).to_contain_text("latest checkpoint")
    expect(captions.nth(1)).to_contain_text(f"checkpoint, after {int(first[5:]):,} steps")
    left, right = look.starts[-2:]
    assert (left["side"], right["side"]) == (0, 1)
    assert left["cell_of"] == right["cell_of"]
    look.button("New episode").click()
    look.until(lambda: all(start is not right for start in look.starts[-2:]))
    assert look.starts[-1]["cell_of"] == look.starts[-2]["cell_of"] != left["cell_of"]
    pictures = [look.picture(index=0), look.picture(index=1)]
    look.moves()
    assert look.picture(index=0) != pictures[0]
    assert look.picture(index=1) != pictures[1]
    look.button("Right").click()  # whose thoughts are shown
    expect(look.button("Right")).to_have_attribute("aria-pressed", "true")
    look.choose("Compare with", value="")
    expect(towns).to_have_count(1)
    look.moves()


def test_overlays_lie_on_the_town(look: Look) -> None:
    look.until(lambda: look.step() >= 5)
    look.pause()
    overlay = look.page.get_by_role("button", name=re.compile("^Overlay: "))
    note = look.page.locator("#overlay-note")
    seen: dict[str, str] = {}
    expect(note).to_be_hidden()
    bare = look.picture()
    for _ in range(10):
        overlay.click()
        if overlay.get_attribute("aria-pressed") == "false":
            break
        expect(note).to_be_visible()
        name = look.text("#overlay-note strong")
        if name != "Transitions in this episode":  # so short a life may have none
            look.until(lambda: look.picture() not in {bare, *seen.values()}, why=f"'{name}' changes nothing")
        seen[name] = look.picture()
    assert {"Visits in this episode", "Transitions in this episode", "Visits over all of training"} <= set(seen)
    expect(note).to_be_hidden()
    look.until(lambda: look.picture() == bare)
