"""Layout and contrast on desktop and phone, in light and dark themes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import OpenPage, PageView

pytest_plugins = ["live.browser"]

SIZES = ((1280, 800), (390, 844))

# Layout problems: controls that leave the page, are clipped or covered, overlap another control,
# are too small, or clip their own text.
LAYOUT_PROBLEMS = """() => {
  const found = [], page = document.scrollingElement;
  if (page.scrollWidth > innerWidth) found.push(`the page is ${page.scrollWidth} wide`);
  const named = (one) => `${one.tagName} ${one.ariaLabel ?? one.textContent.slice(0, 30)}`;
  const all = [...document.querySelectorAll('button, select, input, textarea, summary')]
    .filter((one) => one.checkVisibility({ visibilityProperty: true }));
  const boxes = new Map(all.map((one) => [one, one.getBoundingClientRect()]));
  const shared = (a, b) => Math.min(
    Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const within = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1
    && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  for (const [one, box] of boxes) {
    if (box.left < -0.5 || box.right > innerWidth + 0.5) found.push(`${named(one)} leaves the page`);
    for (let around = one.parentElement; around && around !== document.body; around = around.parentElement) {
      const { overflow } = getComputedStyle(around);
      if (/auto|scroll/.test(overflow)) break; // one can get there by scrolling
      const cut = /hidden|clip/.test(overflow) && !within(box, around.getBoundingClientRect());
      if (cut) found.push(`${named(one)} is cut off`);
    }
    const full = one.tagName === 'BUTTON' && one.scrollWidth > one.clientWidth + 1;
    if (full) found.push(`${named(one)} cuts off its words`);
    if (box.width < 18 || box.height < 16) found.push(`${named(one)} is too small to hit`);
    for (const [other, its] of boxes) {
      if (one === other || one.contains(other) || other.contains(one)) continue;
      if (shared(box, its) > 1) found.push(`${named(one)} overlaps ${named(other)}`);
    }
  }
  for (const one of all) {
    one.scrollIntoView({ block: 'center' });
    const box = one.getBoundingClientRect();
    const on = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (!on || !(one.contains(on) || on.contains(one))) found.push(`${named(one)} lies under ${on && named(on)}`);
  }
  scrollTo(0, 0);
  return found;
}"""

# Text with too little contrast to its background; transparent colors are blended as the browser does.
LOW_CONTRAST = """() => {
  const pixel = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const pen = pixel.getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const parts = (color) => {
    if (!known.has(color)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const ground = (one) => {
    if (!one) return parts(getComputedStyle(document.documentElement).colorScheme === 'dark' ? '#121212' : '#ffffff');
    const color = parts(getComputedStyle(one).backgroundColor);
    // Dialogs and popovers lie on the page, not on their parent.
    const below = one.matches('dialog, [popover]') ? document.body : one.parentElement;
    return color[3] === 1 ? color : over(color, ground(below));
  };
  const faded = (one) => (one ? Number(getComputedStyle(one).opacity) * faded(one.parentElement) : 1);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  let seen = 0;
  const judge = (one, color, words) => {
    const style = getComputedStyle(one), below = ground(one), [r, g, b, a] = parts(color);
    const text = over([r, g, b, a * faded(one)], below);
    const [dark, bright] = [light(text), light(below)].sort((p, q) => p - q);
    const ratio = (bright + 0.05) / (dark + 0.05), size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    seen += 1;
    if (ratio < least) found.push(`${words.slice(0, 30)} (${one.tagName} ${one.className}): ${ratio.toFixed(2)}`);
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement, words = walk.currentNode.data.trim();
    if (!words || one.closest('script, noscript, option, .visually-hidden, title')) continue;
    if (!one.checkVisibility({ visibilityProperty: true }) || !one.getClientRects().length) continue;
    if (one.closest('[popover]') && !one.closest(':popover-open')) continue;
    judge(one, one instanceof SVGElement ? getComputedStyle(one).fill : getComputedStyle(one).color, words);
  }
  for (const one of document.querySelectorAll('select, input[type=text], textarea')) {
    if (!one.checkVisibility()) continue;
    judge(one, getComputedStyle(one).color, one.ariaLabel ?? one.id);
    if (one.placeholder) judge(one, getComputedStyle(one, '::placeholder').color, one.placeholder);
  }
  return { seen, found: [...new Set(found)] };
}"""

# No finite animation is running.
ANIMATIONS_DONE = """() => document.getAnimations()
  .every((one) => one.playState !== 'running' || one.effect.getTiming().iterations === Infinity)"""


def ended(view: PageView) -> None:
    """Show the end of an episode."""
    view.page.get_by_label("Position in this episode").press("End")
    expect(view.page.locator(".end-card").first).to_be_visible()


def mistaken(view: PageView) -> None:
    """Put a world with errors into the editor."""
    view.button("World").click()
    view.page.get_by_label("The world as YAML").fill("max_steps: -1\nnonsense: 1\n")
    expect(view.page.locator(".error-list button").first).to_be_visible()


def compared(view: PageView) -> None:
    view.agent("planner (knows the rules)", "Compare with")
    expect(view.button("Right")).to_be_visible()


def unfolded(view: PageView) -> None:
    view.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def kept(view: PageView) -> None:
    view.button("Recordings").click()
    expect(view.page.get_by_label("Recorded episode")).to_be_visible()


def plain(view: PageView) -> None: ...


STATES: dict[str, Callable[[PageView], None]] = {
    "watch": plain, "world": mistaken, "compare": compared, "kept": kept, "ended": ended, "unfolded": unfolded,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_controls_fit_every_layout(open_page: OpenPage, town_server: LiveServer, size: tuple[int, int]) -> None:
    misfits = {}
    view = open_page(town_server, size=size)
    for place in (view.page.locator(".town-canvas").first, view.page.get_by_label("Position in this episode"),
                  view.button("Pause"), view.button("New episode")):  # fmt: skip
        box = place.bounding_box()  # above the fold
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= size[1]
    view.pause()
    for name in ("watch", "unfolded", "ended", "compare", "kept", "world"):
        STATES[name](view)
        view.wait_until(lambda: view.page.evaluate(ANIMATIONS_DONE))
        for _ in range(20):  # until charts are laid out
            misfits[name] = view.page.evaluate(LAYOUT_PROBLEMS)
            if not misfits[name]:
                break
            view.page.wait_for_timeout(150)
    assert misfits == {name: [] for name in misfits}, json.dumps(misfits, indent=1)


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_text_contrast(open_page: OpenPage, town_server: LiveServer, theme: str) -> None:
    view = open_page(town_server, theme=theme)
    view.wait_until(lambda: view.step() >= 3)
    view.pause()
    pale = {}

    def judge(name: str) -> None:
        for _ in range(3):  # an end card may fade in between the two checks
            view.wait_until(lambda: view.page.evaluate(ANIMATIONS_DONE))
            problems = view.page.evaluate(LOW_CONTRAST)
            if not problems["found"]:
                break
        assert problems["seen"] > 20
        pale[name] = problems["found"]

    for name in ("watch", "unfolded", "ended", "compare", "kept", "world"):
        STATES[name](view)
        judge(name)
    view.button("Watch").click()
    view.page.get_by_role("button", name="Choose a run").click()
    judge("runs")
    view.page.keyboard.press("Escape")
    view.page.locator(".explain:visible").first.click()
    judge("note")
    view.page.keyboard.press("Escape")
    view.page.get_by_role("button", name="Help and keyboard").click()
    judge("help")
    assert pale == {name: [] for name in pale}, json.dumps(pale, indent=1)


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_placeholders_are_readable_and_fit(open_page: OpenPage, tmp_path: Path, theme: str) -> None:
    served = LiveServer(tmp_path / "nothing", None, tmp_path / "worlds")
    view = open_page(served, theme=theme, size=SIZES[1], ready=False)
    problems = {}

    def judge(name: str) -> None:
        view.wait_until(lambda: view.page.evaluate(ANIMATIONS_DONE))
        problems[name] = view.page.evaluate(LAYOUT_PROBLEMS) + view.page.evaluate(LOW_CONTRAST)["found"]

    expect(view.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    judge("empty")
    view.allow_error("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket")
    served.stop()
    expect(view.page.get_by_role("heading", name="The server is offline")).to_be_visible()
    judge("away")
    assert problems == {"empty": [], "away": []}


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_banner_and_toast_are_readable_and_fit(
    open_page: OpenPage, runs: tuple[Run, Run], tmp_path: Path, theme: str
) -> None:
    served = LiveServer(runs[0].path.parent, runs[0].name, tmp_path / "worlds")
    view = open_page(served, theme=theme, size=SIZES[1])
    view.allow_error("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket")
    served.stop()
    expect(view.page.locator("#banner")).to_be_visible()
    view.page.get_by_role("button", name="Choose a run").click()
    view.page.locator("#run-list [role=option]").filter(has_text=runs[1].name).click()
    expect(view.page.locator(".toast")).to_contain_text("cannot be shown")
    view.wait_until(lambda: view.page.evaluate(ANIMATIONS_DONE))
    assert view.page.evaluate(LOW_CONTRAST)["found"] == []
    view.button("Close").click()
    expect(view.page.locator(".toast")).to_have_count(0)
    assert view.page.evaluate(LAYOUT_PROBLEMS) == []
