"""The page over runs that are no towns: their curves, and episodes that are rolled out, scrubbed and saved."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

from crash.smith import only_run
from live.conftest import Served
from live.episodes import by_hand
from live.test_browser_shape import MISFITS, PALE, RESTS, SIZES
from live.test_training import Trained
from sharing import Runs

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser", "live.gyms"]

TOWNS = ("town", "agent", "world", "rows-overview", "transitions", "affordances")
# How many colours a picture has, and a number for all of its pixels.
SHOWN = """(image) => {
  if (!image.complete || !image.naturalWidth) return { colours: 0, sum: 0 };
  const size = { width: image.naturalWidth, height: image.naturalHeight };
  const canvas = Object.assign(document.createElement('canvas'), size);
  const pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return { colours: new Set(pixels).size, sum: pixels.reduce((sum, one) => Math.imul(sum, 31) + one | 0, 0) };
}"""


def opened(visit: Visit, served: Served, gyms: Runs, name: str, rolled: bool = True, **options: object) -> Look:
    """The page at a run; its best checkpoint has played an episode."""
    look = visit(served, at=f"#run={gyms[name].name}", ready=False, **options)
    expect(look.page.locator("body")).to_have_attribute("data-phase", "ready", timeout=30_000)
    expect(look.page.locator("body")).to_have_attribute("data-kind", "gym")
    if rolled:
        expect(look.page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)
    return look


def row(look: Look, step: int) -> dict[str, str]:
    """What the table says of a step that is in sight."""
    heads = look.page.locator("#step-table th").all_inner_texts()
    cells = look.page.locator(f"#step-table tr[data-step='{step}'] td").all_inner_texts()
    return dict(zip(heads, cells, strict=True))


def moment(look: Look) -> int:
    """The step that is shown."""
    found = re.match(r"step ([\d,]+)", look.text("#episode .position"))
    return int(found[1]) if found else -1


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_the_page_of_a_run_that_is_no_town(visit: Visit, inspected: Served, gyms: Runs) -> None:
    look = opened(visit, inspected, gyms, "cart")
    page = look.page
    for panel in TOWNS:
        expect(page.locator(f"#{panel}")).to_be_hidden()
    expect(page.get_by_role("navigation")).to_be_hidden()
    expect(page.locator("#run-name")).to_have_text("CartPole-v1:ppo")
    expect(page.locator("#progress-text")).to_contain_text("episodes")
    learning = page.locator("#learning")
    expect(learning).to_contain_text("Episode return")
    expect(learning).to_contain_text("solved at 475")
    expect(learning).to_contain_text("Steps per second")
    expect(learning.locator("canvas").first).to_be_visible()
    expect(learning.locator(".chart-value").first).to_contain_text(re.compile(r"in training \d+.*evaluated \d+"))
    expect(page.locator("#episodes-title")).to_have_text("How episodes ended")
    assert " lives" not in page.locator("main").inner_text()
    page.get_by_role("button", name="Choose a run").click()
    expect(page.locator("#run-list [role=option]")).to_have_count(len(gyms))
    page.locator("#run-list [role=option]").filter(has_text=gyms["town"].name).click()
    expect(page.locator("#town")).to_be_visible()
    expect(page.locator("#episode")).to_be_hidden()
    look.until(lambda: look.step() >= 0)
    look.moves()


def test_an_episode_is_rolled_out_scrubbed_and_saved(visit: Visit, inspected: Served, gyms: Runs) -> None:
    look = opened(visit, inspected, gyms, "cart")
    page = look.page
    rollout, trained = by_hand(gyms["cart"], 1)
    last = len(rollout.moments) - 1
    expect(page.locator("#episode-label")).to_contain_text("best checkpoint, after")
    expect(page.locator("#episode .position")).to_contain_text(f"of {last}")
    image = page.locator("#episode .frame-image")
    expect(image).to_be_visible()
    look.until(lambda: image.evaluate(SHOWN)["colours"] > 10)

    # Scrubber, buttons, keys and rows lead to the same moments.
    scrub = page.get_by_label("Position in this episode")
    scrub.press("Home")
    look.until(lambda: moment(look) == 0)
    first = image.evaluate(SHOWN)["sum"]
    scrub.press("End")
    look.until(lambda: moment(look) == last)
    look.until(lambda: image.evaluate(SHOWN)["sum"] != first, why="the picture stays the same")
    scrub.press("Home")
    look.until(lambda: moment(look) == 0)
    page.locator("#episode").get_by_role("button", name="One step forward").click()
    look.until(lambda: moment(look) == 1)
    look.letting_go()
    page.keyboard.press("ArrowRight")
    look.until(lambda: moment(look) == 2)
    page.locator("#step-table tr[data-step='4']").click()
    look.until(lambda: moment(look) == 4)
    expect(page.locator("#step-table tr[data-step='4']")).to_have_attribute("aria-current", "true")
    page.locator("#step-table .step-table-box").press("ArrowUp")
    look.until(lambda: moment(look) == 3)

    # The table says what happened.
    led, told = rollout.moments[4].led, row(look, 3)
    assert led is not None
    assert told["action"] == ("left", "right")[int(led.action)]
    assert told["p left"] == f"{int(led.outputs['probabilities'][0] * 100 + 0.5)}%"
    assert (told["reward"], told["return"]) == ("1", "4")
    value = float(trained.values(torch.from_numpy(rollout.moments[3].obs[None]))[0])
    assert number(told["value"]) == pytest.approx(value, rel=1e-2, abs=1e-3)
    assert number(told["obs[2]"]) == pytest.approx(float(rollout.moments[3].obs[2]), rel=1e-2, abs=1e-4)
    expect(page.locator("#step-table th").filter(has_text="advantage")).to_have_attribute("title", re.compile("GAE"))
    expect(page.locator("#step .action.chosen")).to_contain_text(told["action"])

    with page.expect_download() as coming:
        page.locator("#episode").get_by_role("button", name="Save as CSV").click()
    assert coming.value.suggested_filename.endswith("-seed-1.csv")
    with open(coming.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == last + 1
    assert [line["action"] for line in rows[:-1]] == [
        ("left", "right")[int(one.led.action)] for one in rollout.moments if one.led
    ]
    assert float(rows[3]["value"]) == pytest.approx(value, rel=1e-3)

    # Another episode, drawn by chance.
    page.keyboard.press("r")
    expect(page.locator("#episode-label")).to_contain_text("seed 2")
    page.get_by_label("Action selection").select_option("sampled")
    expect(page.locator("#episode-label")).to_contain_text("sampled, seed 2", timeout=30_000)
    expect(page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)


@pytest.mark.long
def test_states_numbers_and_what_cannot_be_drawn(visit: Visit, inspected: Served, gyms: Runs) -> None:
    look = opened(visit, inspected, gyms, "lake")
    moments = by_hand(gyms["lake"], 1)[0].moments
    look.page.locator("#step-table tr[data-step='0']").click()
    told = row(look, 0)
    assert told["obs"] == str(int(moments[0].obs[0]))
    assert moments[1].led is not None
    assert number(told["Q down"]) == pytest.approx(float(moments[1].led.outputs["values"][1]), rel=1e-2)
    expect(look.page.locator("#step")).to_contain_text("Value of each action")

    look = opened(visit, inspected, gyms, "pendulum")
    moments = by_hand(gyms["pendulum"], 1)[0].moments
    look.page.locator("#step-table tr[data-step='0']").click()
    told = row(look, 0)
    assert moments[1].led is not None
    mean, deviation = (float(moments[1].led.outputs[name][0]) for name in ("means", "stds"))
    heads = [head for head in told if head.startswith(("mean", "±"))]
    assert [number(told[head]) for head in heads] == [pytest.approx(mean, rel=1e-2), pytest.approx(deviation, rel=1e-2)]
    expect(look.page.locator("#step .action")).to_contain_text("±")

    look = opened(visit, inspected, gyms, "bandit")
    expect(look.page.locator(".frame-note")).to_have_text("Bandit-v0 does not support rendering.")
    expect(look.page.locator(".frame-image")).to_be_hidden()
    look.page.locator("#step-table tr[data-step='2']").click()
    look.until(lambda: moment(look) == 2)


def test_stacks_of_pictures_are_shown_as_the_agent_sees_them(visit: Visit, inspected: Served, gyms: Runs) -> None:
    look = opened(visit, inspected, gyms, "pixels")
    expect(look.page.locator(".observation-images")).to_contain_text("42 × 42, 2 images, newest on the right")
    seen = look.page.locator(".observation-image")
    expect(seen).to_be_visible()
    look.until(lambda: seen.evaluate(SHOWN)["colours"] > 2)
    look.until(lambda: seen.evaluate("(image) => [image.naturalWidth, image.naturalHeight]") == [84, 42])


def test_an_episode_fits_and_can_be_read(visit: Visit, inspected: Served, gyms: Runs) -> None:
    found = {}
    for theme, size in zip(("light", "dark"), SIZES, strict=True):
        look = opened(visit, inspected, gyms, "pixels", theme=theme, size=size)
        look.until(lambda look=look: look.page.evaluate(RESTS))
        look.page.wait_for_timeout(150)  # until charts have found their size
        found[theme] = look.page.evaluate(MISFITS) + look.page.evaluate(PALE)["found"]
    assert found == {"light": [], "dark": []}, json.dumps(found, indent=1)


@pytest.mark.long
def test_a_training_elsewhere_is_watched(visit: Visit, tmp_path: Path) -> None:
    words = ("evaluation.every=2000", "metrics.every=500", "--live", "--port", "0")
    recipe = ("CartPole-v1:ppo", "rows=8", "evaluation.episodes=2", "metrics.tensorboard=false", "metrics.report=false")
    one = Trained(tmp_path, *words, "--steps", "1e9", "--minutes", "5", recipe=recipe)
    try:
        shown = one.link()

        class Itself:
            link = shown

            def wait(self) -> None: ...

        look = visit(Itself(), ready=False)
        page = look.page
        expect(page.locator("#run-state")).to_have_text("training", timeout=60_000)
        expect(page).to_have_url(re.compile(only_run(tmp_path).name))
        expect(page.locator("#learning .chart canvas").first).to_be_visible(timeout=60_000)
        steps = look.text("#progress-text")
        look.until(lambda: look.text("#progress-text") != steps, seconds=30)
        # Beside a training no episode is rolled out without a request.
        page.get_by_role("button", name="Roll out an episode").click(timeout=60_000)
        expect(page.locator("#step-table tr[data-step='0']")).to_be_visible(timeout=60_000)
        look.forgive("ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE")
    finally:
        one.end()
