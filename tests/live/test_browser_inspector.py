"""The page of Gymnasium runs: curves, and rollouts that are scrubbed and saved."""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

from crash.training_process import only_run
from live.conftest import LiveServer
from live.episodes import local_rollout
from live.test_browser_shape import ANIMATIONS_DONE, LAYOUT_PROBLEMS, LOW_CONTRAST, SIZES
from live.test_training import TrainingProcess
from shared_runs import Runs
from townlet.runs.metrics_reader import MetricsReader

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser", "live.gyms"]

TOWNS = ("town", "agent", "world", "rows-overview", "transitions", "affordances")
# Number of colors of an image, and a hash of its pixels.
SHOWN = """(image) => {
  if (!image.complete || !image.naturalWidth) return { colors: 0, sum: 0 };
  const size = { width: image.naturalWidth, height: image.naturalHeight };
  const canvas = Object.assign(document.createElement('canvas'), size);
  const pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return { colors: new Set(pixels).size, sum: pixels.reduce((sum, one) => Math.imul(sum, 31) + one | 0, 0) };
}"""


def opened(
    open_page: OpenPage, served: LiveServer, gyms: Runs, name: str, rolled: bool = True, **options: object
) -> PageView:
    """The page of a run, with a rolled-out episode of its best checkpoint."""
    view = open_page(served, at=f"#run={gyms[name].name}", ready=False, **options)
    expect(view.page.locator("body")).to_have_attribute("data-phase", "ready", timeout=30_000)
    expect(view.page.locator("body")).to_have_attribute("data-kind", "gym")
    if rolled:
        expect(view.page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)
    return view


def row(view: PageView, step: int) -> dict[str, str]:
    """Cells of a visible step by column."""
    heads = view.page.locator("#step-table th").all_inner_texts()
    cells = view.page.locator(f"#step-table tr[data-step='{step}'] td").all_inner_texts()
    return dict(zip(heads, cells, strict=True))


def moment(view: PageView) -> int:
    """The step on screen."""
    found = re.match(r"step ([\d,]+)", view.text("#episode .position"))
    return int(found[1]) if found else -1


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_page_of_a_gym_run(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = opened(open_page, gym_server, gyms, "cart")
    page = view.page
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
    with MetricsReader(gyms["cart"].metrics_file) as metrics:
        returns = metrics.series("episode_return")[1]
    shown = re.match(r"training ([\d.]+).*evaluation \d+", view.text("#learning .chart-value"))
    assert shown
    assert float(shown[1]) == pytest.approx(returns[-1], rel=0.01) != pytest.approx(returns[0], rel=0.01)
    expect(page.locator("#episodes-title")).to_have_text("How episodes ended")
    assert " lives" not in page.locator("main").inner_text()
    page.get_by_role("button", name="Choose a run").click()
    expect(page.locator("#run-list [role=option]")).to_have_count(len(gyms) + 1)  # and the shipped agent
    page.locator("#run-list [role=option]").filter(has_text=gyms["town"].name).click()
    expect(page.locator("#town")).to_be_visible()
    expect(page.locator("#episode")).to_be_hidden()
    view.wait_until(lambda: view.step() >= 0)
    view.expect_moving()


def test_rollout_is_scrubbed_and_saved(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = opened(open_page, gym_server, gyms, "cart")
    page = view.page
    rollout, trained = local_rollout(gyms["cart"], 1)
    last = len(rollout.frames) - 1
    expect(page.locator("#episode-label")).to_contain_text("best checkpoint, after")
    expect(page.locator("#episode .position")).to_contain_text(f"of {last}")
    image = page.locator("#episode .frame-image")
    expect(image).to_be_visible()
    view.wait_until(lambda: image.evaluate(SHOWN)["colors"] > 10)

    # Scrubber, buttons, keys and rows lead to the same steps.
    scrub = page.locator("#episode").get_by_label("Position in this episode")
    scrub.press("Home")
    view.wait_until(lambda: moment(view) == 0)
    first = image.evaluate(SHOWN)["sum"]
    scrub.press("End")
    view.wait_until(lambda: moment(view) == last)
    view.wait_until(lambda: image.evaluate(SHOWN)["sum"] != first, why="the picture stays the same")
    scrub.press("Home")
    view.wait_until(lambda: moment(view) == 0)
    page.locator("#episode").get_by_role("button", name="One step forward").click()
    view.wait_until(lambda: moment(view) == 1)
    view.blur()
    page.keyboard.press("ArrowRight")
    view.wait_until(lambda: moment(view) == 2)
    page.locator("#step-table tr[data-step='4']").click()
    view.wait_until(lambda: moment(view) == 4)
    expect(page.locator("#step-table tr[data-step='4']")).to_have_attribute("aria-current", "true")
    page.locator("#step-table .step-table-box").press("ArrowUp")
    view.wait_until(lambda: moment(view) == 3)

    # The table matches the local rollout.
    taken, cells = rollout.frames[4].transition, row(view, 3)
    assert taken is not None
    assert cells["action"] == ("left", "right")[int(taken.action)]
    assert cells["p left"] == f"{int(taken.outputs['probabilities'][0] * 100 + 0.5)}%"
    assert (cells["reward"], cells["return"]) == ("1", "4")
    value = float(trained.values(torch.from_numpy(rollout.frames[3].obs[None]))[0])
    assert number(cells["value"]) == pytest.approx(value, rel=1e-2, abs=1e-3)
    assert number(cells["obs[2]"]) == pytest.approx(float(rollout.frames[3].obs[2]), rel=1e-2, abs=1e-4)
    expect(page.locator("#step-table th").filter(has_text="advantage")).to_have_attribute("title", re.compile("GAE"))
    expect(page.locator("#step .action.chosen")).to_contain_text(cells["action"])

    with page.expect_download() as coming:
        page.locator("#episode").get_by_role("button", name="Save as CSV").click()
    assert coming.value.suggested_filename.endswith("-seed-1.csv")
    with open(coming.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == last + 1
    assert [line["action"] for line in rows[:-1]] == [
        ("left", "right")[int(one.transition.action)] for one in rollout.frames if one.transition
    ]
    assert float(rows[3]["value"]) == pytest.approx(value, rel=1e-3)

    # Another episode with sampled actions.
    page.keyboard.press("r")
    expect(page.locator("#episode-label")).to_contain_text("seed 2")
    page.get_by_label("Action selection").select_option("sampled")
    expect(page.locator("#episode-label")).to_contain_text("sampled, seed 2", timeout=30_000)
    expect(page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)


@pytest.mark.long
def test_discrete_continuous_and_unrendered_environments(
    open_page: OpenPage, gym_server: LiveServer, gyms: Runs
) -> None:
    view = opened(open_page, gym_server, gyms, "lake")
    frames = local_rollout(gyms["lake"], 1)[0].frames
    view.page.locator("#step-table tr[data-step='0']").click()
    cells = row(view, 0)
    assert cells["obs"] == str(int(frames[0].obs[0]))
    assert frames[1].transition is not None
    assert number(cells["Q down"]) == pytest.approx(float(frames[1].transition.outputs["values"][1]), rel=1e-2)
    expect(view.page.locator("#step")).to_contain_text("Value of each action")

    view = opened(open_page, gym_server, gyms, "pendulum")
    frames = local_rollout(gyms["pendulum"], 1)[0].frames
    view.page.locator("#step-table tr[data-step='0']").click()
    cells = row(view, 0)
    assert frames[1].transition is not None
    mean, deviation = (float(frames[1].transition.outputs[name][0]) for name in ("means", "stds"))
    heads = [head for head in cells if head.startswith(("mean", "±"))]
    assert [number(cells[head]) for head in heads] == [
        pytest.approx(mean, rel=1e-2),
        pytest.approx(deviation, rel=1e-2),
    ]
    expect(view.page.locator("#step .action")).to_contain_text("±")

    view = opened(open_page, gym_server, gyms, "bandit")
    expect(view.page.locator(".frame-note")).to_have_text("Bandit-v0 does not support rendering.")
    expect(view.page.locator(".frame-image")).to_be_hidden()
    view.page.locator("#step-table tr[data-step='2']").click()
    view.wait_until(lambda: moment(view) == 2)


def test_frame_stacks_are_shown_as_observed(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = opened(open_page, gym_server, gyms, "pixels")
    expect(view.page.locator(".observation-images")).to_contain_text("42 × 42, 2 images, newest on the right")
    seen = view.page.locator(".observation-image")
    expect(seen).to_be_visible()
    view.wait_until(lambda: seen.evaluate(SHOWN)["colors"] > 2)
    view.wait_until(lambda: seen.evaluate("(image) => [image.naturalWidth, image.naturalHeight]") == [84, 42])


def test_stacked_numbers_are_lines(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = opened(open_page, gym_server, gyms, "stacked")
    frames = local_rollout(gyms["stacked"], 1)[0].frames
    expect(view.page.locator("#step")).to_contain_text("3 frames, newest on the right")
    view.page.locator("#step-table tr[data-step='4']").click()
    view.wait_until(lambda: moment(view) == 4)
    lines = view.page.locator("#step .features > div")
    expect(lines).to_have_count(4)
    for feature in range(4):
        own = [number(text) for text in (lines.nth(feature).get_attribute("title") or "").split(", ")]
        assert own == pytest.approx(frames[4].obs.reshape(3, 4)[:, feature].tolist(), rel=1e-2, abs=1e-4)
        assert number(lines.nth(feature).locator("b").inner_text()) == own[-1]
        points = (lines.nth(feature).locator("polyline").get_attribute("points") or "").split()
        heights = [-float(point.split(",")[1]) for point in points]
        assert len(heights) == 3
        assert (heights[-1] - heights[0]) * (own[-1] - own[0]) >= 0  # higher is greater


def test_inspector_layout_and_contrast(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    found = {}
    for theme, size in zip(("light", "dark"), SIZES, strict=True):
        view = opened(open_page, gym_server, gyms, "pixels", theme=theme, size=size)
        view.wait_until(partial(view.page.evaluate, ANIMATIONS_DONE))
        view.page.wait_for_timeout(150)  # until charts are laid out
        found[theme] = view.page.evaluate(LAYOUT_PROBLEMS) + view.page.evaluate(LOW_CONTRAST)["found"]
    assert found == {"light": [], "dark": []}, json.dumps(found, indent=1)


@pytest.mark.long
def test_watching_a_gym_training(open_page: OpenPage, tmp_path: Path) -> None:
    words = ("evaluation.every=2000", "metrics.every=500", "--live", "--port", "0")
    recipe = ("CartPole-v1:ppo", "rows=8", "evaluation.episodes=2", "metrics.tensorboard=false", "metrics.report=false")
    one = TrainingProcess(tmp_path, *words, "--steps", "1e9", "--minutes", "5", recipe=recipe)
    try:
        shown = one.link()

        class Itself:
            link = shown

            def wait(self) -> None: ...

        view = open_page(Itself(), ready=False)
        page = view.page
        expect(page.locator("#run-state")).to_have_text("training", timeout=60_000)
        expect(page).to_have_url(re.compile(only_run(tmp_path).name))
        expect(page.locator("#learning .chart canvas").first).to_be_visible(timeout=60_000)
        steps = view.text("#progress-text")
        view.wait_until(lambda: view.text("#progress-text") != steps, seconds=30)
        # During training no episode is rolled out without a request.
        page.get_by_role("button", name="Roll out an episode").click(timeout=60_000)
        expect(page.locator("#step-table tr[data-step='0']")).to_be_visible(timeout=60_000)
        view.allow_error("ERR_CONNECTION_REFUSED|WebSocket|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE")
    finally:
        one.end()
