"""Live progress of a training run in a notebook: key figures and the learning curve, updated in place."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from townlet.interfaces.counters import Counters, MetricsInterval, format_count
from townlet.train.sinks import LINE_METRICS, LineSink, rate_text

if TYPE_CHECKING:
    from townlet.recipes.schema import Recipe

REFRESH_SECONDS: Final = 0.5
CURVE_WIDTH, CURVE_HEIGHT = 560, 120  # pixels
MAX_POINTS: Final = 300  # of the curve; more are thinned out
MAX_MESSAGES: Final = 4
MONOSPACE: Final = 'style="font-family:monospace"'  # notebooks style <pre> as text
Point = tuple[float, float]  # env_steps and score


def in_notebook() -> bool:
    """Whether the program runs in a Jupyter kernel; imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(LineSink):
    """A sink that shows bar, curve, metrics and the last messages below a cell."""

    def __init__(self, recipe: Recipe) -> None:
        self._title, self._budget, self._metric = recipe.title, recipe.budget.env_steps, f"episode_{recipe.metric}"
        self._env_steps, self._metrics = 0, dict[str, float]()
        self._training: list[Point] = []
        self._evaluations: list[Point] = []
        self._messages: list[str] = []
        self._shown = 0.0
        self._handle: Any = import_module("IPython.display").display(self, display_id=True)

    def on_interval(self, interval: MetricsInterval) -> None:
        self._env_steps, self._metrics = interval.env_steps, self._metrics | interval.metrics
        if self._metric in interval.metrics:
            self._training.append((interval.env_steps, interval.metrics[self._metric]))
        self._update()

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        if evaluation["policy"] != "random":
            self._evaluations.append((counters.env_steps, evaluation["score"]))
        super().on_evaluation(counters, evaluation)

    def message(self, text: str) -> None:
        self._messages = [*self._messages, text][-MAX_MESSAGES:]
        self._update()

    def close(self) -> None:
        """Show the final state, which stays in the notebook."""
        self._update(force=True)

    def _update(self, force: bool = False) -> None:
        if force or time.monotonic() - self._shown >= REFRESH_SECONDS:
            self._shown = time.monotonic()
            self._handle.update(self)

    def _repr_html_(self) -> str:
        steps, budget = self._env_steps, self._budget
        style = f'style="width:{CURVE_WIDTH}px"'
        bar = "" if budget is None else f'<progress max="{budget}" value="{steps}" {style}></progress><br>'
        parts = [f"{format_count(steps)} steps"]
        parts += [rate_text(self._metrics["steps_per_second"])] if "steps_per_second" in self._metrics else []
        shown = (name for name in LINE_METRICS if name in self._metrics)
        parts += [f"{name.removeprefix('episode_')} {self._metrics[name]:.3g}" for name in shown]
        lines = "\n".join(map(escape, self._messages))
        return (
            f"<div><b>{escape(self._title)}</b> {escape(' · '.join(parts))}<br>{bar}"
            f"{curve_svg(self._training, self._evaluations)}<pre {MONOSPACE}>{lines}</pre></div>"
        )


class NotebookLines:
    """Shows the last line of each of several runs below a cell; lines start with the name of their run and a colon."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._handle: Any = import_module("IPython.display").display(self, display_id=True)

    def __call__(self, line: str) -> None:
        self._lines[line.partition(":")[0]] = line
        self._handle.update(self)

    def _repr_html_(self) -> str:
        names = sorted(self._lines, key=lambda name: (len(name), name))  # "seed 2" before "seed 10"
        return f"<pre {MONOSPACE}>{escape(chr(10).join(self._lines[name] for name in names))}</pre>"


def curve_svg(training: Sequence[Point], evaluations: Sequence[Point]) -> str:
    """Scores of training episodes as a line and of evaluations as dots, in the color of the text; "" without scores."""
    points = [*training, *evaluations]
    if not points:
        return ""
    right = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points), max(y for _, y in points)
    height = CURVE_HEIGHT - 20  # the rest is for the labels

    def place(point: Point) -> tuple[float, float]:
        share = (point[1] - low) / (high - low) if high > low else 0.5
        return point[0] / right * CURVE_WIDTH, 10 + height * (1 - share)

    thinned = training[:: max(1, len(training) // MAX_POINTS)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, thinned))
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in map(place, evaluations))
    labels = (
        f'<text x="{CURVE_WIDTH + 6}" y="14">{high:.4g}</text>'
        f'<text x="{CURVE_WIDTH + 6}" y="{10 + height}">{low:.4g}</text>'
    )
    return (
        f'<svg width="{CURVE_WIDTH + 70}" height="{CURVE_HEIGHT}" fill="currentColor" font-size="11" '
        f'style="overflow:visible"><polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
        f'<g fill="#d55e00">{dots}</g>{labels}</svg>'
    )
