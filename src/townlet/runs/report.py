"""The report of a run: what was trained, what came of it in words, and the plots that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from townlet.errors import TownletError
from townlet.runs import disk, page, plots
from townlet.runs.curves import Lives, Stretches, lives, stretches
from townlet.runs.folder import Run
from townlet.runs.page import Section
from townlet.runs.plots import Plot
from townlet.runs.reader import Reader

STRETCHES: Final = 150  # of a curve
BROAD: Final = 40  # of shares, which are unsteady in narrow ones
FIGURES: Final = 12  # small plots of learning
LINES: Final = 50  # of a table
MAX_TEXT: Final = 1 << 20


def write(run: Run) -> tuple[Path, Path]:
    """Write report.md (with plots/) and report.html; give their paths."""
    with Reader(run.metrics_file) as store:
        sections = [section for section in _sections(run, store) if section]
    title = f"Run {run.name}"
    try:
        run.plots.mkdir(exist_ok=True)
    except OSError as error:
        raise disk.explained(error, f"cannot write {run.plots}") from error
    for plot in (plot for section in sections for plot in section.plots):
        disk.replace_file(run.plots / f"{plot.name}.svg", plot.standalone())
    disk.replace_file(run.report_md, page.markdown(title, sections, run.plots.name).encode("utf-8", "replace"))
    disk.replace_file(run.report_html, page.html(title, sections).encode("utf-8", "replace"))
    return run.report_md, run.report_html


def _sections(run: Run, store: Reader) -> list[Section | None]:
    meta = run.meta()
    ended = lives(store)
    greedy, random = (store.read("evaluations", where={"policy": policy}) for policy in ("greedy", "random"))
    yardstick = random["length"][-1] if random["length"] else None
    fine, broad = (stretches(ended.moment, size) if len(ended.moment) else None for size in (STRETCHES, BROAD))
    return [
        Section("Result", in_words(greedy, yardstick, ended)),
        _survival(ended, fine, greedy, yardstick),
        Section("What was trained", header=("", ""), rows=_facts(meta)),
        _evaluations(greedy),
        _final_meters(ended),
        _shares("Stages over time", "stages", "share of stages over env_steps", broad, ended.stages),
        _shares("Causes of death over time", "causes", "share of causes over env_steps", broad, ended.causes),
        _transitions(store),
        _cells(store, meta),
        _learning(store),
        _alerts(store),
        _settings(run),
    ]


def in_words(greedy: Mapping[str, list[Any]], yardstick: float | None, ended: Lives) -> list[str]:
    """What came of it: how long the agent lives, beside a random one, and whether it works for its living."""
    words = []
    if yardstick is not None:
        words.append(f"A random agent lives {yardstick:.0f} steps.")
    if not greedy["length"]:
        if len(ended.moment):
            tenth = slice(-max(1, len(ended.moment) // 10), None)
            mean = float(np.average(ended.length[tenth], weights=np.maximum(ended.count[tenth], 1e-12)))
            words.append(f"The last lives while training lasted {mean:.0f} steps on average.")
        return [" ".join([*words, "The agent was not evaluated."])]
    last = {name: values[-1] for name, values in greedy.items()}
    limit = f" of {last['limit']}" if last["limit"] else ""
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    if last["length"] is not None:
        moment = f"after {last['env_steps']:,} env_steps"
        words.append(f"This agent lives {last['length']:.0f}{limit} steps, greedy{count}, {moment}.")
    if last["survived"] is not None:
        words.append(f"{_share(last['survived'])} of its lives reached the limit.")
    if last["works"] is not None:
        words.append(_work(last["works"]))
    known = [(length, moment) for length, moment in zip(greedy["length"], greedy["env_steps"], strict=True) if length]
    if known and last["length"] is not None and (best := max(known))[0] > 1.05 * last["length"]:
        words.append(f"It was better before: {best[0]:.0f} steps at {best[1]:,} env_steps.")
    return [" ".join(words)]


def _work(share: float) -> str:
    if share == 0:
        return "It lives on its inheritance: no evaluated life earned money."
    if share == 1:
        return "Every evaluated life works for its money."
    return f"{_share(share)} of the evaluated lives work for their money."


def _survival(
    ended: Lives, part: Stretches | None, greedy: Mapping[str, list[Any]], yardstick: float | None
) -> Section | None:
    if part is None:
        return None
    return Section("Survival", plots=[plots.survival(ended, part, greedy, yardstick)])


def _facts(meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All that is known, the nested names joined; times also as a duration."""
    rows: list[tuple[str, str]] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                add(f"{name} {key}".strip(), inner)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            rows.append((name, ", ".join(map(str, value))))
        elif value is not None:
            rows.append((name, str(value)))

    add("", meta)
    if took := _duration(meta):
        rows.append(("duration", took))
    return rows


def _duration(meta: Mapping[str, Any]) -> str:
    try:
        begin, end = (datetime.fromisoformat(str(meta[name])) for name in ("created", "ended"))
        seconds = round((end - begin).total_seconds())
    except (KeyError, ValueError, TypeError):
        return ""
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _evaluations(greedy: Mapping[str, list[Any]]) -> Section | None:
    names = ("env_steps", "episodes", "limit", "length", "length_min", "length_max", "return", "survived", "works")
    shown = [name for name in names if any(value is not None for value in greedy[name])]
    rows = list(zip(*([_figure(value) for value in greedy[name][-LINES:]] for name in shown), strict=True))
    return Section("Evaluations", header=shown, rows=rows) if rows else None


def _final_meters(ended: Lives) -> Section | None:
    return Section("Meters at the end of life", plots=[plots.final_meters(ended)]) if any(ended.meters) else None


def _shares(
    title: str, name: str, about: str, part: Stretches | None, counts: list[dict[str, float]]
) -> Section | None:
    if part is None or not any(counts):
        return None
    return Section(title, plots=[plots.shares(name, about, part, part.shares(counts))])


def _transitions(store: Reader) -> Section | None:
    """The last quarter of the run: what the agent does now, not what it once tried."""
    moments = store.read("affordance_transitions", ("env_steps",))["env_steps"]
    if not moments:
        return None
    since = max(moments) * 3 // 4
    counts = {
        (str(a), str(b)): n for (a, b), n in store.totals("affordance_transitions", ("from", "to"), since).items()
    }
    words = f"From which affordance the agent went to which, after env_steps {since:,}."
    return Section("Ways between affordances", [words], plots=[plots.transitions(counts)])


def _cells(store: Reader, meta: Mapping[str, Any]) -> Section | None:
    """Visits in the whole run, and the last novelty of each cell where it was recorded."""
    visits = {cell: n for (cell,), n in store.totals("cell_visits", ("cell",)).items() if isinstance(cell, int)}
    if not visits:
        return None
    size = meta.get("size")
    known = size if isinstance(size, list) and all(isinstance(n, int) and 0 < n <= 4096 for n in size) else []
    pictures: list[Plot] = [plots.cells(visits, known, "cells", "visits")]
    found = store.read("cell_visits", ("cell", "novelty"))
    novelty = {
        c: n for c, n in zip(found["cell"], found["novelty"], strict=True) if isinstance(c, int) and n is not None
    }
    if novelty:
        pictures.append(plots.cells(novelty, known, "novelty", "novelty"))
    return Section("Cells", plots=pictures)


def _learning(store: Reader) -> Section | None:
    series = {name: store.series(name, STRETCHES) for name in store.names()[:FIGURES]}
    series = {name: pair for name, pair in series.items() if pair[0]}
    return Section("Learning", plots=[plots.learning(series)]) if series else None


def _alerts(store: Reader) -> Section | None:
    found = store.read("alerts", ("env_steps", "name", "message"), last=LINES)
    rows = [tuple(_figure(value) for value in row) for row in zip(*found.values(), strict=True)]
    return Section("Alerts", header=tuple(found), rows=rows) if rows else None


def _settings(run: Run) -> Section | None:
    try:
        text = disk.read_bounded(run.resolved_file, MAX_TEXT).decode("utf-8", "replace")
    except TownletError:
        return None
    return Section("Settings", ["Every setting and where it came from."], verbatim=text) if text.strip() else None


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str("" if value is None else value)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"
