"""Texts on the town: no two of them overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from live.conftest import LiveServer

if TYPE_CHECKING:
    from live.browser import OpenPage

pytest_plugins = ["live.browser"]

# Neighbors with long names, and a bed that is used at once.
CROWDED = """
extends: town
affordances:
  - {name: WorldFamousLibraryOfMedicine, cell: [2, 3], each_tick: {mood: .05}}
  - {name: WorldFamousLibraryOfPhysics, cell: [3, 3], each_tick: {mood: .05}}
  - {name: WorldFamousLibraryOfHistory, cell: [4, 3], each_tick: {mood: .05}}
"""

# Records the boxes of all texts as they are drawn: those of the names on a layer of its own, and the others in every
# frame on the visible canvas. Overlaps are collected.
WATCH_TEXTS = """() => {
  const context = CanvasRenderingContext2D.prototype, { fillText, clearRect, drawImage } = context;
  window.texts = 0;
  window.overlaps = [];
  let names = [];
  const frames = new Map();
  const isTown = (canvas) => canvas.classList.contains('town-canvas');
  context.clearRect = function (...box) {
    if (!this.canvas.isConnected) names = [];
    clearRect.apply(this, box);
  };
  context.drawImage = function (...given) {
    if (isTown(this.canvas)) frames.set(this.canvas, []);
    drawImage.apply(this, given);
  };
  context.fillText = function (text, x, y, room) {
    fillText.apply(this, room === undefined ? [text, x, y] : [text, x, y, room]);
    const size = this.measureText(text), part = Math.min(1, (room ?? Infinity) / size.width);
    const box = { text, left: x - size.actualBoundingBoxLeft * part, right: x + size.actualBoundingBoxRight * part,
      top: y - size.actualBoundingBoxAscent, bottom: y + size.actualBoundingBoxDescent };
    const frame = frames.get(this.canvas) ?? [];
    if (this.canvas.isConnected && !isTown(this.canvas)) return;
    for (const other of this.canvas.isConnected ? [...names, ...frame] : names) {
      const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (across > 0.5 && down > 0.5) window.overlaps.push(`${box.text} on ${other.text}`);
    }
    (this.canvas.isConnected ? frame : names).push(box);
    window.texts += this.canvas.isConnected ? 1 : 0;
  };
}"""


@pytest.mark.parametrize("width", [390, 1366])
def test_no_two_texts_overlap(open_page: OpenPage, town_server: LiveServer, width: int) -> None:
    view = open_page(town_server, size=(width, 844))
    view.agent("planner (knows the rules)")
    view.page.evaluate(WATCH_TEXTS)
    for crowded in (False, True):
        if crowded:
            view.button("World").click()
            view.page.get_by_label("The world as YAML").fill(CROWDED)
            expect(view.page.locator(".editor-bar .check-result")).to_have_text("This world is valid.")
            view.button("Try it with this agent").click()
            expect(view.page.locator("#town-label")).to_contain_text("in your edited world")
        view.page.evaluate("window.texts = 0")
        view.button("New episode").click()
        view.wait_until(lambda: view.step() < 5)
        view.page.get_by_label("Speed", exact=True).fill("5")  # 8 steps per second
        view.wait_until(lambda: view.step() >= 38)
        assert view.page.evaluate("window.texts") > 10, "changes of meters are shown"
        assert view.page.evaluate("[...new Set(window.overlaps)]") == []
