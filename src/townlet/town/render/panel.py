"""The side panel of the picture: age, hour, meters as bars, what was done and what it paid."""

from __future__ import annotations

import math

from townlet.town.render import view
from townlet.town.render.pen import AMBER, FAINT, GLOW, INK, LINE, NIGHT, RED, WHITE, Ink, Pen, clear, meter_ink, mix
from townlet.town.scene import Scene

PAD = 26.0
PARTS = 6  # reward parts that are listed


def panel(pen: Pen, scene: Scene, left: float, width: float, height: float) -> None:
    """Draw the whole panel in the column from `left`."""
    pen.card(left, 23, width - 20, height - 40, (90, 90, 80, 26), 20)
    pen.card(left, 20, width - 20, height - 40, WHITE, 20)
    x, wide = left + PAD, width - 20 - 2 * PAD
    _head(pen, scene, x, wide)
    foot = height - 150 - 22 * min(PARTS, len(scene.world.rewards))
    _meters(pen, scene, x, 146, wide, foot - 16 - 146)
    _foot(pen, scene, x, foot, wide)


def _head(pen: Pen, scene: Scene, x: float, wide: float) -> None:
    limit = scene.world.spec.max_steps
    pen.text(x, 60, scene.world.name, 30, INK, room=wide - 120, bold=True)
    pen.text(x, 98, f"age {scene.age} of {limit}", 17, FAINT)
    pen.card(x, 118, wide, 6, LINE, 3)
    if scene.age:
        pen.card(x, 118, max(6.0, wide * min(1.0, scene.age / limit)), 6, mix(FAINT, INK, 0.4), 3)
    words = view.time_of_day(scene)
    if words:
        pen.text(x + wide - 46, 60, words, 22, INK, "rm", room=110)
        _sky(pen, scene, x + wide - 18, 60, 18)


def _sky(pen: Pen, scene: Scene, x: float, y: float, radius: float) -> None:
    """The sun by day, the moon by night."""
    dark = view.darkness(scene)
    pen.disc(x, y, radius, mix((150, 204, 240), NIGHT, dark))
    if dark < 0.5:
        for n in range(8):
            turn = n * math.pi / 4
            pen.disc(x + 0.7 * radius * math.cos(turn), y + 0.7 * radius * math.sin(turn), 0.09 * radius, GLOW)
        pen.disc(x, y, 0.45 * radius, GLOW)
    else:
        pen.disc(x, y, 0.55 * radius, (244, 238, 214))
        pen.disc(x + 0.27 * radius, y - 0.16 * radius, 0.47 * radius, mix((150, 204, 240), NIGHT, dark))


def _meters(pen: Pen, scene: Scene, x: float, y: float, wide: float, high: float) -> None:
    groups = view.gauges(scene)
    lines = sum(len(found) + 0.95 for found in groups.values())
    step = min(40.0, high / lines)
    for group, found in groups.items():
        pen.text(x, y + 0.5 * step, group.upper(), 0.31 * step, FAINT)
        y += 0.95 * step
        for gauge in found:
            _bar(pen, gauge, x, y, wide, step)
            y += step


def _bar(pen: Pen, gauge: view.Gauge, x: float, y: float, wide: float, step: float) -> None:
    own = meter_ink(gauge.index)
    ink: Ink = {"critical": RED, "low": AMBER, "fine": own}[gauge.state]
    middle, thick, start, end = y + step / 2, 0.42 * step, x + 118, x + wide - 70
    pen.disc(x + 0.16 * step, middle, 0.16 * step, own)
    pen.text(x + 0.52 * step, middle, gauge.name, 0.42 * step, INK, room=108 - 0.5 * step)
    pen.card(start, middle - thick / 2, end - start, thick, LINE, thick / 2)
    if gauge.value > 0:
        pen.card(start, middle - thick / 2, max(thick, (end - start) * gauge.value), thick, ink, thick / 2)
    alarm = gauge.state == "critical"
    pen.text(x + wide, middle, gauge.text, 0.42 * step, RED if alarm else INK, "rm", room=66, bold=alarm)


def _foot(pen: Pen, scene: Scene, x: float, y: float, wide: float) -> None:
    pen.card(x, y, wide, 1.5, LINE)
    lines = [("action", view.last_action(scene)), ("here", view.place_here(scene) or "open ground")]
    if not scene.world.size and not view.place_here(scene):
        lines[1] = ("here", "nowhere yet")
    for n, (title, words) in enumerate(lines):
        pen.text(x, y + 28 + 30 * n, title, 16, FAINT)
        pen.text(x + 78, y + 28 + 30 * n, words, 17, INK, room=wide - 78)
    pen.text(x, y + 88, "reward", 16, FAINT)
    pen.text(x + 78, y + 88, f"{scene.reward:+.2f}", 17, INK, bold=True)
    for n, (name, paid) in enumerate(view.reward_parts(scene)[:PARTS]):
        ink = clear(INK if paid else FAINT, 0.9)
        pen.text(x + 78, y + 114 + 22 * n, name, 15, FAINT, room=wide - 160)
        pen.text(x + wide, y + 114 + 22 * n, f"{paid:+.3f}", 15, ink, "rm")
