"""What one sees fits: on a desk and on a phone, in light and in dark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import Served
from townlet.runs.folder import Run

if TYPE_CHECKING:
    from live.browser import Look, Visit

pytest_plugins = ["live.browser"]

SIZES = ((1280, 800), (390, 844))

# What does not fit: controls that leave the page, are cut off by what they stand in, lie under something else or on
# another control, or cut off their own words.
MISFITS = """() => {
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

# Text whose contrast with what is behind it is too low. Colours are put over each other as the browser does it.
PALE = """() => {
  const pixel = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const pen = pixel.getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const parts = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const ground = (one) => {
    if (!one) return parts(getComputedStyle(document.documentElement).colorScheme === 'dark' ? '#121212' : '#ffffff');
    const colour = parts(getComputedStyle(one).backgroundColor);
    // A window of its own lies on the page, not on what it is written in.
    const below = one.matches('dialog, [popover]') ? document.body : one.parentElement;
    return colour[3] === 1 ? colour : over(colour, ground(below));
  };
  const faded = (one) => (one ? Number(getComputedStyle(one).opacity) * faded(one.parentElement) : 1);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  let seen = 0;
  const judge = (one, colour, words) => {
    const style = getComputedStyle(one), below = ground(one), [r, g, b, a] = parts(colour);
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

# Nothing fades in or out any more.
RESTS = """() => document.getAnimations()
  .every((one) => one.playState !== 'running' || one.effect.getTiming().iterations === Infinity)"""


def ended(look: Look) -> None:
    """A life has ended, and stays on show."""
    look.page.get_by_label("Position in this episode").press("End")
    expect(look.page.locator(".end-card").first).to_be_visible()


def mistaken(look: Look) -> None:
    """A world with mistakes stands in the editor."""
    look.button("World").click()
    look.page.get_by_label("The world as YAML").fill("max_steps: -1\nnonsense: 1\n")
    expect(look.page.locator(".mistake-list button").first).to_be_visible()


def compared(look: Look) -> None:
    look.choose("Compare with", value="best")
    expect(look.button("Right")).to_be_visible()


def unfolded(look: Look) -> None:
    look.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def kept(look: Look) -> None:
    look.button("Recordings").click()
    expect(look.page.get_by_label("Recorded episode")).to_be_visible()


def plain(look: Look) -> None: ...


STATES: dict[str, Callable[[Look], None]] = {
    "watch": plain, "world": mistaken, "compare": compared, "kept": kept, "ended": ended, "unfolded": unfolded,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_everything_fits(visit: Visit, shown: Served, size: tuple[int, int]) -> None:
    misfits = {}
    look = visit(shown, size=size)
    look.pause()
    for name in ("watch", "unfolded", "ended", "compare", "kept", "world"):
        STATES[name](look)
        look.until(lambda: look.page.evaluate(RESTS))
        look.page.wait_for_timeout(150)  # until charts have found their size
        misfits[name] = look.page.evaluate(MISFITS)
    assert misfits == {name: [] for name in misfits}, json.dumps(misfits, indent=1)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_town_and_its_controls_are_seen_at_once(visit: Visit, shown: Served, size: tuple[int, int]) -> None:
    look = visit(shown, size=size)
    for place in (look.page.locator(".town-canvas").first, look.page.get_by_label("Position in this episode"),
                  look.button("Pause"), look.button("New episode")):  # fmt: skip
        box = place.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= size[1]


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_every_text_can_be_read(visit: Visit, shown: Served, theme: str) -> None:
    look = visit(shown, theme=theme)
    look.until(lambda: look.step() >= 3)
    look.pause()
    pale = {}

    def judge(name: str) -> None:
        for _ in range(3):  # a life may end, and a card fade in, between the two looks
            look.until(lambda: look.page.evaluate(RESTS))
            told = look.page.evaluate(PALE)
            if not told["found"]:
                break
        assert told["seen"] > 20
        pale[name] = told["found"]

    for name in ("watch", "unfolded", "ended", "compare", "kept", "world"):
        STATES[name](look)
        judge(name)
    look.button("Watch").click()
    look.page.get_by_role("button", name="Choose a run").click()
    judge("runs")
    look.page.keyboard.press("Escape")
    look.page.locator(".explain:visible").first.click()
    judge("note")
    look.page.keyboard.press("Escape")
    look.page.get_by_role("button", name="Help and keyboard").click()
    judge("help")
    assert pale == {name: [] for name in pale}, json.dumps(pale, indent=1)


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_what_is_told_in_trouble_can_be_read_and_fits(visit: Visit, tmp_path: Path, theme: str) -> None:
    served = Served(tmp_path / "nothing", None, tmp_path / "worlds")
    look = visit(served, theme=theme, size=SIZES[1], ready=False)
    told = {}

    def judge(name: str) -> None:
        look.until(lambda: look.page.evaluate(RESTS))
        told[name] = look.page.evaluate(MISFITS) + look.page.evaluate(PALE)["found"]

    expect(look.page.get_by_role("heading", name="No runs yet")).to_be_visible()
    judge("empty")
    look.forgive("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket")
    served.stop()
    expect(look.page.get_by_role("heading", name="The server is offline")).to_be_visible()
    judge("away")
    assert told == {"empty": [], "away": []}


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_a_banner_and_a_refusal_can_be_read_and_fit(
    visit: Visit, runs: tuple[Run, Run], tmp_path: Path, theme: str
) -> None:
    served = Served(runs[0].path.parent, runs[0].name, tmp_path / "worlds")
    look = visit(served, theme=theme, size=SIZES[1])
    look.forgive("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket")
    served.stop()
    expect(look.page.locator("#banner")).to_be_visible()
    look.page.get_by_role("button", name="Choose a run").click()
    look.page.locator("#run-list [role=option]").filter(has_text=runs[1].name).click()
    expect(look.page.locator(".toast")).to_contain_text("cannot be shown")
    look.until(lambda: look.page.evaluate(RESTS))
    assert look.page.evaluate(PALE)["found"] == []
    look.button("Close").click()
    expect(look.page.locator(".toast")).to_have_count(0)
    assert look.page.evaluate(MISFITS) == []
