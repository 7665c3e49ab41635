"""The GIF of an episode, which the page draws: of a town, of two side by side, and of a Gymnasium environment."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence
from playwright.sync_api import expect

from live.conftest import LiveServer
from shared_runs import Runs

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser", "live.gyms"]

HOME, FOOD, OWN = (79, 116, 189), (194, 106, 28), (108, 112, 128)  # colors of places on the map
LEFT, RIGHT = (232, 131, 58), (63, 143, 181)  # colors of the agents
POND = """
extends: town
max_steps: 300
affordances: [{name: Pond, icon: 🦆, cell: [3, 3]}]
"""
# Records the labels of a button.
RECORD_LABELS = """(button) => {
  window.labels = [];
  new MutationObserver(() => window.labels.push(button.ariaLabel)).observe(button, { attributes: true });
}"""


@pytest.fixture
def view(open_page: OpenPage, town_server: LiveServer) -> PageView:
    """The page of a finished run, playing its best checkpoint."""
    return open_page(town_server)


def save(view: PageView) -> tuple[str, list[NDArray[np.uint8]], list[int]]:
    """Save a GIF: its name, its pictures [height, width, 3], and how long each is shown, in milliseconds."""
    with view.page.expect_download(timeout=60_000) as coming:
        view.button("Save as GIF").click()
    name = coming.value.suggested_filename
    expect(view.page.locator(".toast").filter(has_text=f"The GIF was saved as {name}")).to_be_visible()
    expect(view.button("Save as GIF")).to_be_enabled()
    image = Image.open(io.BytesIO(coming.value.path().read_bytes()))
    assert image.format == "GIF"
    assert image.info["loop"] == 0
    pictures = [(np.asarray(one.convert("RGB")), int(one.info["duration"])) for one in ImageSequence.Iterator(image)]
    return name, [one for one, _ in pictures], [time for _, time in pictures]


def pixels(picture: NDArray[np.uint8], color: tuple[int, int, int]) -> int:
    """The number of pixels of exactly this color."""
    return int((picture == color).all(axis=2).sum())


def test_gif_shows_the_town_as_the_page_does(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 12)
    step = view.pause()
    view.button("Save as GIF").evaluate(RECORD_LABELS)
    name, pictures, times = save(view)
    start = view.starts[-1]
    agent = re.sub(r"\W+", "-", f"{start['name']} {start['label'].partition(',')[0]}").lower()
    assert name == f"town-{agent}-seed-{start['seed']}-{step}-steps.gif"
    assert len(pictures) == step + 1
    assert times == [100] * step + [2000]
    assert pictures[0].shape[1] >= 480
    for picture in pictures:
        assert min(pixels(picture, HOME), pixels(picture, FOOD), pixels(picture, LEFT)) > 100
        assert pixels(picture, RIGHT) == 0
    captions = [picture[:48] for picture in pictures]
    assert all((a != b).any() for a, b in pairwise(captions))  # the steps are counted
    labels = view.page.evaluate("window.labels")
    shares = [int(found[1]) for label in labels if (found := re.fullmatch(r"Drawing GIF, (\d+)%", label))]
    assert shares == sorted(shares)
    assert len(set(shares)) == len(pictures)


def test_gif_of_a_comparison_has_both_towns(view: PageView) -> None:
    view.wait_until(lambda: view.step() >= 3)
    view.pause()
    alone, single, _ = save(view)
    view.agent("random agent", "Compare with")
    view.button("Play").click()
    view.wait_until(lambda: view.step() >= 8)
    view.pause()
    name, pictures, _ = save(view)
    first, second = view.starts[-2:]
    assert re.fullmatch(rf"town-.*{first['name']}.*-vs-{second['name']}-random-agent-.*\.gif", name, re.IGNORECASE)
    assert name != alone
    height, width, _ = pictures[-1].shape
    assert height == single[0].shape[0]
    assert width > 2 * single[0].shape[1]
    for picture in pictures:
        halves = picture[:, : width // 2], picture[:, width // 2 :]
        for half, agent, other in zip(halves, (LEFT, RIGHT), (RIGHT, LEFT), strict=True):
            assert min(pixels(half, HOME), pixels(half, FOOD), pixels(half, agent)) > 100
            assert pixels(half, other) == 0


def test_gif_of_a_place_of_ones_own_and_of_a_long_episode(view: PageView) -> None:
    view.agent("planner (knows the rules)")
    view.button("World").click()
    view.page.get_by_label("The world as YAML").fill(POND)
    view.button("Try it with this agent").click()
    view.wait_until(lambda: "edited" in view.starts[-1]["label"] and view.step() >= 0)
    view.page.get_by_label("Position in this episode").press("End")
    expect(view.page.locator(".end-card").first).to_be_visible()
    view.page.get_by_label("Position in this episode").press("Home")
    view.wait_for_step(0)
    name, pictures, _ = save(view)  # of the whole episode, although an earlier step is on screen
    assert len(pictures) == 200
    assert name.endswith("-300-steps.gif")
    assert all(pixels(picture, OWN) > 100 for picture in pictures)
    before, last = (
        np.flatnonzero((picture[26:48] != picture[30, 2]).any(axis=(0, 2))).max() for picture in pictures[-2:]
    )
    assert last > before + 60  # how the episode ended


def test_gif_of_an_episode_without_steps_is_refused(view: PageView) -> None:
    view.pause()
    view.button("New episode").click()
    view.agent("you, with the keyboard")
    view.wait_until(lambda: view.step() == 0)
    view.blur()
    for steps in ("no steps", "only 1 step"):
        view.button("Save as GIF").click()
        expect(view.page.locator(".toast")).to_contain_text(f"No GIF was saved.This episode has {steps} so far.")
        view.page.keyboard.press("ArrowRight")
        view.wait_until(lambda: view.step() == 1)
    expect(view.page.locator(".toast").filter(has_text="The GIF was saved")).to_have_count(0)


def test_gif_of_a_gym_episode(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = open_page(gym_server, at=f"#run={gyms['lake'].name}", ready=False)
    expect(view.page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)
    last = re.search(r"of (\d+)", view.text("#episode .position"))
    assert last
    steps = int(last[1])
    name, pictures, _ = save(view)
    assert re.fullmatch(rf"frozenlake-v1-.*-seed-1-{steps}-steps\.gif", name)
    assert len(pictures) == steps + 1
    assert pictures[0].shape[1] >= 480
    assert len({picture[48:].tobytes() for picture in pictures}) > 1
    view.allow_error("frames/|ERR_FAILED")
    view.page.route("**/frames/*", lambda route: route.abort())
    view.button("Save as GIF").click()
    expect(view.page.locator(".toast").filter(has_text="could not be made")).to_contain_text("no longer has all frames")
    view.page.unroute("**/frames/*")


def test_environment_without_frames_has_no_gif(open_page: OpenPage, gym_server: LiveServer, gyms: Runs) -> None:
    view = open_page(gym_server, at=f"#run={gyms['bandit'].name}", ready=False)
    expect(view.page.locator("#step-table-note")).to_contain_text("the episode.", timeout=60_000)
    expect(view.button("Save as CSV")).to_be_visible()
    expect(view.button("Save as GIF")).to_be_hidden()
