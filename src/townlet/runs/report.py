"""The report of a run: what was trained, what came of it in words, and the plots that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.errors import TownletError
from townlet.runs import disk, maps, markup, plots, provenance, summary_text, videos
from townlet.runs.curves import Lives, Stretches, lives, stretches
from townlet.runs.folder import Run
from townlet.runs.highlights import kept_lives
from townlet.runs.markup import Section
from townlet.runs.metric_catalog import METER_PREFIX, METRICS, describe_metric
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.overview import sparkline
from townlet.runs.plots import Plot
from townlet.runs.provenance import experiment_hash
from townlet.runs.summary_text import ReportTerms, report_terms

STRETCHES: Final = 150  # of a curve
BROAD: Final = 40  # of shares, which are unsteady in narrow ones
ENOUGH: Final = 8  # lives in a stretch, where there are so many: single lives are no curve
FIGURES: Final = 15  # small plots of learning
LINES: Final = 50  # of a table
SPARKS: Final = 16  # bars in a line of text
TOOK: Final = {"steps_per_second": "steps/s", "updates_per_second": "updates/s", "memory_mb": "MB"}
MAX_TEXT: Final = 1 << 20
# What meta.json says and the report tells elsewhere, or in other words.
ELSEWHERE: Final = (
    "recipe", "asked", "overrides", "resumed_with", "seed", "seconds", "summary", "size", "places", "threads", "rows",
    "files",
)  # fmt: skip
HASHES: Final = ("recipe_hash", "world", "evaluation_world", "gym", "interface")
UNSHOWN: Final = ("episode_length", "updates_per_second", "memory_mb")  # shown above, or of little use over time
NO_STAGE: Final = "0"  # of lives in a run without a curriculum


def write_report(run: Run) -> tuple[Path, Path]:
    """Write report.md (with plots/) and report.html; give their paths."""
    meta = run.meta()
    with MetricsReader(run.metrics_file) as store:
        sections = [section for section in _sections(run, meta, store) if section]
    title = f"{meta.get('recipe') or run.name}, seed {meta.get('seed', '?')}"
    about = f"Run {run.name}, begun {str(meta.get('created', '?'))[:16].replace('T', ' ')} UTC"
    try:
        disk.make_folder(run.plots)
    except OSError as error:
        raise disk.describe_error(error, f"cannot write {run.plots}") from error
    drawn = {plot.name: plot for section in sections for plot in section.plots}
    for plot in drawn.values():
        disk.replace_file(run.plots / f"{plot.name}.svg", plot.standalone())
    for old in run.plots.glob("*.svg"):
        if old.stem not in drawn:  # of a report before this one
            old.unlink(missing_ok=True)
    text = markup.markdown(title, about, sections, run.plots.name)
    disk.replace_file(run.report_md, text.encode("utf-8", "replace"))
    disk.replace_file(run.report_html, markup.html(title, about, sections).encode("utf-8", "replace"))
    files = [run.report_md, run.report_html, *(run.plots / f"{name}.svg" for name in drawn)]
    names = [str(file.relative_to(run.path)) for file in files]
    disk.replace_file(run.report_seal, provenance.format_checksums(provenance.checksums(run.path, names)))
    return run.report_md, run.report_html


def _sections(run: Run, meta: Mapping[str, Any], store: MetricsReader) -> list[Section | None]:
    told = report_terms(meta)
    ended = lives(store, told.metric)
    greedy, random = (store.read("evaluations", where={"policy": policy}) for policy in ("greedy", "random"))
    yardstick = random[told.metric][-1] if random[told.metric] else None
    fine, broad = (_stretches(ended, size) for size in (STRETCHES, BROAD))
    return [
        _summary(meta, store, ended, greedy, yardstick),
        _alerts(store),
        _setting_changes(store),
        _progress(told, ended, fine, greedy, yardstick, meta.get("threshold")),
        _evaluations(greedy),
        _videos(run),
        _shares(told, told.ends, "causes", "cause", broad, ended.causes),
        _meters(store, ended),
        kept_lives(store, list(ended.meters[-1]) if ended.meters else []),
        _cells(store, meta),
        _transitions(store, meta),
        _shares(told, "Stages over time", "stages", "stage", broad, _staged(ended)),
        _stage_changes(store),
        _learning(store),
        _resources(store, meta),
        Section("What was trained", rows=_facts(run, meta)),
        _settings(run),
    ]


def _summary(
    meta: Mapping[str, Any],
    store: MetricsReader,
    ended: Lives,
    greedy: Mapping[str, list[Any]],
    yardstick: float | None,
) -> Section:
    moments = [*store.read("updates", ("env_steps",), last=1)["env_steps"], *greedy["env_steps"][-1:], 0]
    cards = summary_text.cards(meta, greedy, yardstick, max(moments))
    told = summary_text.result(meta, greedy, yardstick, ended)
    again = summary_text.repeat(meta)
    return Section("", [*told, *(["Train it again:"] if again else [])], cards=cards, code=again)


def _stretches(ended: Lives, most: int) -> Stretches | None:
    if not len(ended.moment):
        return None
    return stretches(ended.moment, max(1, min(most, int(ended.count.sum()) // ENOUGH)))


def learning_curve_png(run: Run) -> bytes | None:
    """The learning curve of a run as a PNG; None where no episode ended."""
    told = report_terms(meta := run.meta())
    with MetricsReader(run.metrics_file) as store:
        ended = lives(store, told.metric)
        greedy, random = (store.read("evaluations", where={"policy": policy}) for policy in ("greedy", "random"))
    if (part := _stretches(ended, STRETCHES)) is None:
        return None
    yardstick = random[told.metric][-1] if random[told.metric] else None
    return plots.png(plots.CURVE, plots.progress(told, ended, part, greedy, yardstick, meta.get("threshold")))


def _progress(
    told: ReportTerms,
    ended: Lives,
    part: Stretches | None,
    greedy: Mapping[str, list[Any]],
    yardstick: float | None,
    goal: float | None,
) -> Section | None:
    if part is None:
        return None
    staged = "While training, a life is lived at the stage of its row; evaluations are in the whole world."
    paragraphs = [staged] if _staged(ended) else []
    paint = plots.progress(told, ended, part, greedy, yardstick, goal)
    drawn = plots.draw(told.plot, f"{told.axis} over env_steps", plots.CURVE, paint)
    return Section(told.curve, paragraphs, plots=[drawn])


def _facts(run: Run, meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All that is known and not told above; what has parts of its own in one line."""
    rows = []
    for name, value in meta.items():
        if name in ELSEWHERE or value is None or value in ("", [], {}):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = ", ".join(map(str, value))
        rows.append((f"{name} (sha256)" if name in HASHES else name, str(value)))
    with suppress(TownletError):  # where resolved.yaml is damaged, the other facts stand
        rows.append(("recipe without seed (sha256)", experiment_hash(run)))
    return rows


def _evaluations(greedy: Mapping[str, list[Any]]) -> Section | None:
    names = ("env_steps", "episodes", "limit", "length", "length_min", "length_max", "return", "survived", "works")
    shown = [name for name in names if any(value is not None for value in greedy[name])]

    def column(name: str) -> list[str]:
        return [summary_text.share(v) if name in ("survived", "works") else _figure(v) for v in greedy[name][-LINES:]]

    rows = list(zip(*map(column, shown), strict=True))
    return Section("Evaluations", header=[name.replace("_m", ", m") for name in shown], rows=rows) if rows else None


def _videos(run: Run) -> Section | None:
    found = videos.list_videos(run.videos)
    told = {"start": "before the first step", "best": "the best evaluation so far", "end": "the end"}
    links = [(f"{one.env_steps:,} env_steps: {told[one.why]}", f"{run.videos.name}/{one.path.name}") for one in found]
    return Section("Videos", ["Evaluation episodes, filmed."], links=links) if links else None


def _meters(store: MetricsReader, ended: Lives) -> Section | None:
    """While training, and at the end of lives."""
    names = [name for name in store.names() if name.startswith(METER_PREFIX)]
    series = {name.removeprefix(METER_PREFIX): store.series(name, STRETCHES) for name in names}
    drawn = [plots.meter_history(series)] if series else []
    drawn += [plots.final_meters(ended)] if any(ended.meters) else []
    told = "Over time while training, and at the end of the first and of the last tenth of all lives."
    return Section("Meters", [told] if len(drawn) == 2 else [], plots=drawn) if drawn else None


def _shares(
    words: ReportTerms, title: str, name: str, label: str, part: Stretches | None, counts: Sequence[dict[str, float]]
) -> Section | None:
    """Labels over time; where all have the same, a sentence says more than a plot."""
    found = {one for each in counts for one in each}
    if part is None or not found:
        return None
    if len(found) == 1:
        return Section(title, [f"All {words.episodes} that ended have the same {label}: {found.pop()}."])
    about = f"share of each {label} over env_steps"
    told = ["“time”: the limit was reached."] if "time" in found else []
    return Section(title, told, plots=[plots.shares(name, about, part, part.shares(counts))])


def _staged(ended: Lives) -> list[dict[str, float]]:
    """Stages of lives, none at all in a run without a curriculum."""
    return ended.stages if any(one.keys() - {NO_STAGE} for one in ended.stages) else []


def _stage_changes(store: MetricsReader) -> Section | None:
    found = store.read("stage_changes", ("env_steps", "row", "from_stage", "to_stage", "reason"), last=LINES)
    rows = [tuple(_figure(value) for value in row) for row in zip(*found.values(), strict=True)]
    count = sum(1 for _ in store.read("stage_changes", ("row",))["row"])
    told = f"The last {len(rows)} of {count:,} changes." if count > len(rows) else ""
    header = ("env_steps", "row", "from", "to", "reason")
    return Section("Changes of stage", [told] if told else [], header=header, rows=rows) if rows else None


def _transitions(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    """The last quarter of the run: what the agent does now, not what it once tried."""
    moments = store.read("affordance_transitions", ("env_steps",))["env_steps"]
    if not moments:
        return None
    since = max(moments) * 3 // 4
    counts = {
        (str(a), str(b)): n for (a, b), n in store.totals("affordance_transitions", ("from", "to"), since).items()
    }
    told = f"Which affordance (below) was used after which (left), by the watched rows after env_steps {since:,}."
    drawn = maps.transitions(counts, list(meta.get("places") or ()))
    return Section("Ways between affordances", [told], plots=[drawn])


def _cells(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    """Visits in the whole run, and the last novelty of each cell where it was recorded."""
    visits = {cell: n for (cell,), n in store.totals("cell_visits", ("cell",)).items() if isinstance(cell, int)}
    if not visits:
        return None
    found = store.read("cell_visits", ("cell", "novelty"))
    novelty = {
        c: n for c, n in zip(found["cell"], found["novelty"], strict=True) if isinstance(c, int) and n is not None
    }
    size = meta.get("size") or []
    known = size if all(0 < n <= 4096 for n in size) else []
    places = meta.get("places") or {}
    drawn = [maps.cells(visits, known, places, "cells", "visits")]
    drawn += [maps.cells(novelty, known, places, "novelty", "novelty")] if novelty else []
    told = "How many steps of the watched rows ended on each cell, in the whole run."
    if novelty:
        told += " Below, how new each cell still is to the agent at the end."
    pictures: list[Plot] = [plot for plot in drawn if plot]
    if pictures:
        return Section("Where it went", [told], plots=pictures)
    most = sorted(visits.items(), key=lambda one: -one[1])[:LINES]  # a map that paper cannot show
    return Section("Where it went", [told], header=("cell", "visits"), rows=[(str(c), f"{n:,}") for c, n in most])


def _learning(store: MetricsReader) -> Section | None:
    """Figures in the order of the catalogue, those of one's own after it; what never changed says nothing here."""
    order = list(METRICS)
    names = sorted(store.names(), key=lambda name: order.index(name) if name in order else len(order))
    series = {name: store.series(name, STRETCHES) for name in names if not name.startswith((METER_PREFIX, *UNSHOWN))}
    series = {name: pair for name, pair in series.items() if len(set(pair[1])) > 1 or name not in METRICS}
    shown = dict(list(series.items())[:FIGURES])
    if not shown:
        return None
    rows = [
        (name, sparkline(values, SPARKS), metric.about, metric.formula)
        for name, (_, values) in shown.items()
        if (metric := describe_metric(name))
    ]
    header = ("figure", "from begin to end", "what it is", "formula")
    return Section("Learning", header=header, rows=rows, plots=[plots.learning(shown)])


def _resources(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    """What it took: time, speed and memory."""
    found = {name: store.series(name, STRETCHES)[1] for name in TOOK}
    rows = [] if meta.get("seconds") is None else [("time", summary_text.duration(meta["seconds"]))]
    for name, unit in TOOK.items():
        if values := found[name]:
            value = max(values) if name == "memory_mb" else sum(values) / len(values)
            rows.append((METRICS[name].about, f"{value:,.0f} {unit}"))
    rows += [(name, str(meta[name])) for name in ("threads", "rows") if meta.get(name) is not None]
    return Section("Resources", rows=rows) if any(found.values()) else None


def _alerts(store: MetricsReader) -> Section | None:
    found = store.read("alerts", ("env_steps", "name", "message", "tip"), last=LINES)
    rows = [tuple(_figure(value) for value in row) for row in zip(*found.values(), strict=True)]
    return Section("Alerts", header=tuple(found), rows=rows) if rows else None


def _setting_changes(store: MetricsReader) -> Section | None:
    found = store.read("setting_changes", ("env_steps", "key", "old", "new", "why"), last=LINES)
    flat = [
        (f"{at:,}", key, to_flow_yaml(old), to_flow_yaml(new), why)
        for at, key, old, new, why in zip(*found.values(), strict=True)
    ]
    return Section("Settings that changed while it trained", header=tuple(found), rows=flat) if flat else None


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
