"""A scene as text for a terminal: the map and the meters, in color with icons or in plain letters."""

from __future__ import annotations

from itertools import zip_longest

from rich.cells import cell_len, set_cell_size

from townlet.town.scene import NO_CELL, Gauge, Scene, monogram

BAR_WIDTH = 20
MAX_MAP_WIDTH = 44  # a wider map is placed above the meters
RESET = "\x1b[0m"
BOLD, DIM = "1", "2"
RED, AMBER, GREEN, FAINT = "38;5;203", "38;5;214", "38;5;78", "38;5;245"
AGENT, GROUND, NIGHT = "48;5;221;38;5;16", "48;5;151;38;5;22", "48;5;60;38;5;153"
LEVELS = {"critical": RED, "low": AMBER, "fine": GREEN}


def frame(scene: Scene, color: bool = True) -> str:
    """The scene as lines of text; without `color` there is no emoji either, for plain terminals."""
    left, right = _map(scene, color), _state(scene, color)
    width = max(map(_width, left))
    if width > MAX_MAP_WIDTH:
        return "\n".join([*left, "", *right])
    pairs = zip_longest(left, right, fillvalue="")
    return "\n".join((a + " " * (width - _width(a) + 3) + b).rstrip() for a, b in pairs)


def _paint(text: str, style: str, color: bool) -> str:
    return f"\x1b[{style}m{text}{RESET}" if color and style else text


def _width(line: str) -> int:
    """Columns on a terminal, without escape sequences."""
    return sum(cell_len(part.partition("m")[2] if n else part) for n, part in enumerate(line.split("\x1b[")))


def _map(scene: Scene, color: bool) -> list[str]:
    """The levels of the map side by side, or the lines of a one-dimensional map one below the other."""
    boards = scene.boards()
    blocks = []
    for board in boards:
        rows = [_row(scene, row, color) for row in board.rows]
        if not color and len(boards) == 1:
            rim = "+" + "-" * len(rows[0]) + "+"
            rows = [rim, *(f"|{row}|" for row in rows), rim]
        head = [set_cell_size(board.title, _width(rows[0]))] if board.title else []
        blocks.append(head + rows)
    if len(scene.world.size) == 1:
        return [line for block in blocks for line in block]
    return ["  ".join(lines) for lines in zip(*blocks, strict=True)]


def _row(scene: Scene, row: tuple[int, ...], color: bool) -> str:
    """One line of cells; without color the agent's cell is in brackets."""
    affordance_at = scene.affordance_at
    out = []
    for n, cell in enumerate(row):
        left = "]" if n and row[n - 1] == scene.cell else " "
        edge = "[" if cell == scene.cell else left
        affordance = affordance_at.get(cell)
        text = _ground(scene, cell, color) if affordance is None else _label(scene, affordance, color)
        out.append(_paint((" " if color else edge) + text, _style(scene, cell, affordance), color))
    if not color:
        out.append("]" if row[-1] == scene.cell else " ")
    return "".join(out)


def _style(scene: Scene, cell: int, affordance: int | None) -> str:
    if cell == NO_CELL:
        return ""
    if cell == scene.cell:
        return AGENT
    style = NIGHT if scene.darkness > 0.5 else GROUND
    return style if affordance is None or scene.is_open(affordance) else f"{style};{DIM}"


def _label(scene: Scene, affordance: int, color: bool) -> str:
    """Two columns for an affordance: its icon, or two letters; closed ones in lower case."""
    spec, closed = scene.world.spec.affordances[affordance], not scene.is_open(affordance)
    if color and not closed and 0 < cell_len(spec.icon) <= 2:
        return set_cell_size(spec.icon, 2)
    letters = monogram(spec.name)
    return set_cell_size(letters.lower() if closed else letters, 2)


def _ground(scene: Scene, cell: int, color: bool) -> str:
    """Two columns for a cell without an affordance: the agent, or ground."""
    if cell != scene.cell:
        return "  " if cell == NO_CELL else "· "
    if not color:
        return "@ "
    return "🙂" if scene.alive else "💀"


def _state(scene: Scene, color: bool) -> list[str]:
    world = scene.world
    head = (_paint(world.name, BOLD, color), f"age {scene.age} of {world.spec.max_steps}", scene.time_of_day)
    lines = ["  ".join(filter(None, head))]
    for group, gauges in scene.gauges().items():
        lines.append(_paint(group, FAINT, color))
        lines += [_bar(gauge, color) for gauge in gauges]
    lines.append(f"{scene.last_action}  {scene.reward:+.2f}" + (f"  at {scene.place}" if scene.place else ""))
    parts = [f"{name} {value:+.3f}" for name, value in scene.reward_parts]
    if len(parts) > 1:
        lines.append(_paint("  ".join(parts), FAINT, color))
    if scene.ended:
        lines.append(_paint(scene.ended, f"{BOLD};{RED}", color))
    return lines


def _bar(gauge: Gauge, color: bool) -> str:
    full = round(BAR_WIDTH * min(1.0, max(0.0, gauge.value)))
    if color:
        bar = _paint("━" * full, LEVELS[gauge.level], True) + _paint("━" * (BAR_WIDTH - full), "38;5;238", True)
        text = _paint(f"{gauge.text:>7}", RED if gauge.level == "critical" else "", True)
    else:
        bar = "#" * full + "." * (BAR_WIDTH - full)
        text = f"{gauge.text:>7}" + {"critical": " !!", "low": " !", "fine": ""}[gauge.level]
    return f"{set_cell_size(gauge.name, 11)}{bar}{text}"
