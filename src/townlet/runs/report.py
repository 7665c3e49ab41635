"""The report of a run, with summary, tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.errors import TownletError
from townlet.runs import disk, markup, plots, provenance, summary_text, town_sections, videos
from townlet.runs.curves import Bins, EpisodeCurve, make_bins, read_episode_curve
from townlet.runs.folder import Run
from townlet.runs.markup import Section
from townlet.runs.metric_catalog import METER_PREFIX, METRICS, describe_metric
from townlet.runs.metrics_reader import Columns, MetricsReader
from townlet.runs.overview import sparkline
from townlet.runs.summary_text import Evaluations, ReportTerms, report_terms

CURVE_BINS: Final = 150
FRACTION_BINS: Final = 40  # fewer, because fractions of few episodes fluctuate
MIN_EPISODES: Final = 8  # on average per bin
MAX_METRICS: Final = 15  # in the grid of small plots
MAX_ROWS: Final = 50  # in a table
EVALUATION_HEADINGS: Final = {
    "length_min": "length, min", "length_max": "length, max", "survived": "reach the limit",
    "earns_money": "earn money",
}  # fmt: skip
SPARKLINE_WIDTH: Final = 16
RESOURCE_UNITS: Final = {"steps_per_second": "steps/s", "updates_per_second": "updates/s", "memory_mb": "MB"}
MAX_TEXT_BYTES: Final = 1 << 20
# Keys of meta.json that other sections show.
SHOWN_ELSEWHERE: Final = (
    "recipe", "recipe_argument", "overrides", "resumed_with", "seed", "seconds", "summary", "size", "places", "threads",
    "rows", "files", "threshold", "goal",
)  # fmt: skip
HASHES: Final = ("recipe_hash", "world", "evaluation_world", "gym", "interface")
NOT_PLOTTED: Final = ("episode_length", "updates_per_second", "memory_mb")  # in other sections, or nearly constant
NO_STAGE: Final = "0"  # stage of every episode in a run without a curriculum


def write_report(run: Run) -> tuple[Path, Path]:
    """Write report.md (with plots/) and report.html; returns their paths."""
    meta = run.meta()
    with MetricsReader(run.metrics_file) as store:
        sections = [section for section in _sections(run, meta, store) if section]
    title = f"{meta.get('recipe') or run.name}, seed {meta.get('seed', '?')}"
    about = f"Run {run.name}, started {str(meta.get('created', '?'))[:16].replace('T', ' ')} UTC"
    with disk.os_errors(f"cannot write {run.plots}"):
        disk.make_folder(run.plots)
    drawn = {plot.name: plot for section in sections for plot in section.plots}
    for plot in drawn.values():
        disk.replace_file(run.plots / f"{plot.name}.svg", plot.standalone())
    for old in run.plots.glob("*.svg"):
        if old.stem not in drawn:  # a plot of an earlier report
            old.unlink(missing_ok=True)
    text = markup.markdown(title, about, sections, run.plots.name)
    disk.replace_file(run.report_md, text.encode("utf-8", "replace"))
    disk.replace_file(run.report_html, markup.html(title, about, sections).encode("utf-8", "replace"))
    files = [run.report_md, run.report_html, *(run.plots / f"{name}.svg" for name in drawn)]
    names = [str(file.relative_to(run.path)) for file in files]
    disk.replace_file(run.report_seal, provenance.format_checksums(provenance.checksums(run.path, names)))
    return run.report_md, run.report_html


def _sections(run: Run, meta: Mapping[str, Any], store: MetricsReader) -> list[Section | None]:
    terms = report_terms(meta)
    curve, greedy, random_score = _read_scores(store, terms)
    coarse = _bins(curve, FRACTION_BINS)
    return [
        _summary(meta, store, curve, greedy, random_score),
        _alerts(store),
        _setting_changes(store),
        _score_section(meta, curve, greedy, random_score),
        _evaluations(greedy),
        _videos(run),
        _fractions(terms.causes_title, "causes", "cause", coarse, curve.causes),
        town_sections.meters_section(store, curve),
        town_sections.highlights_section(store, list(curve.meters[-1]) if curve.meters else []),
        town_sections.cells_section(store, meta),
        town_sections.transitions_section(store, meta),
        _fractions("Stages over time", "stages", "stage", coarse, _stages(curve)),
        _stage_changes(store),
        _updates(store),
        _resources(store, meta),
        Section("Run", rows=_meta_rows(run, meta)),
        _settings(run),
    ]


def _read_scores(store: MetricsReader, terms: ReportTerms) -> tuple[EpisodeCurve, Evaluations, float | None]:
    """Training episodes, evaluations of the agent, and the score of a random agent."""
    curve = read_episode_curve(store, terms.curve_metric)
    greedy, random = (store.read("evaluations", where={"policy": policy}) for policy in ("greedy", "random"))
    return curve, greedy, random[terms.curve_metric][-1] if random[terms.curve_metric] else None


def _summary(
    meta: Mapping[str, Any], store: MetricsReader, curve: EpisodeCurve, greedy: Evaluations, random_score: float | None
) -> Section:
    env_steps = [*store.read("updates", ("env_steps",), last=1)["env_steps"], *greedy["env_steps"][-1:], 0]
    cards = summary_text.cards(meta, greedy, random_score, max(env_steps))
    paragraphs = summary_text.summary_paragraphs(meta, greedy, random_score, curve)
    command = summary_text.rerun_command(meta)
    return Section("", [*paragraphs, *(["To repeat this training:"] if command else [])], cards=cards, code=command)


def _bins(curve: EpisodeCurve, max_bins: int) -> Bins | None:
    if not len(curve.env_steps):
        return None
    return make_bins(curve.env_steps, max(1, min(max_bins, int(curve.count.sum()) // MIN_EPISODES)))


def learning_curve(run: Run) -> plots.Paint | None:
    """A function that paints the learning curve of a run; None where no episode ended."""
    meta = run.meta()
    with MetricsReader(run.metrics_file) as store:
        return _score_curve(meta, *_read_scores(store, report_terms(meta)))


def learning_curve_png(run: Run) -> bytes | None:
    """The learning curve of a run as a PNG; None where no episode ended."""
    paint = learning_curve(run)
    return plots.png(plots.CURVE_SIZE, paint) if paint else None


def _score_curve(
    meta: Mapping[str, Any], curve: EpisodeCurve, greedy: Evaluations, random_score: float | None
) -> plots.Paint | None:
    if (bins := _bins(curve, CURVE_BINS)) is None:
        return None
    return plots.score_curve(report_terms(meta), curve, bins, greedy, random_score, summary_text.success_marks(meta))


def _score_section(
    meta: Mapping[str, Any], curve: EpisodeCurve, greedy: Evaluations, random_score: float | None
) -> Section | None:
    if (paint := _score_curve(meta, curve, greedy, random_score)) is None:
        return None
    terms = report_terms(meta)
    staged = "Training episodes have the curriculum stage of their row; evaluations are at full difficulty."
    plot = plots.draw(terms.plot_name, f"{terms.axis_label} over env_steps", plots.CURVE_SIZE, paint)
    return Section(terms.curve_title, [staged] if _stages(curve) else [], plots=[plot])


def _meta_rows(run: Run, meta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Entries of meta.json that no other section shows; nested values in one line."""
    rows = []
    for name, value in meta.items():
        if name in SHOWN_ELSEWHERE or value is None or value in ("", [], {}):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = ", ".join(map(str, value))
        rows.append((f"{name} (sha256)" if name in HASHES else name, str(value)))
    with suppress(TownletError):  # a damaged resolved.yaml does not hide the other rows
        rows.append(("recipe without seed (sha256)", provenance.experiment_hash(run)))
    return rows


def _evaluations(greedy: Evaluations) -> Section | None:
    fractions = ("survived", "earns_money")
    names = ("env_steps", "episodes", "limit", "length", "length_min", "length_max", "return", *fractions)
    shown = [name for name in names if any(value is not None for value in greedy[name])]

    def column(name: str) -> list[str]:
        format_value = summary_text.format_percent if name in fractions else _format_value
        return [format_value(value) for value in greedy[name][-MAX_ROWS:]]

    rows = list(zip(*map(column, shown), strict=True))
    header = [EVALUATION_HEADINGS.get(name, name) for name in shown]
    return Section("Evaluations", header=header, rows=rows) if rows else None


def _videos(run: Run) -> Section | None:
    reasons = {"start": "before the first step", "best": "the best evaluation so far", "end": "the end"}
    links = [
        (f"{video.env_steps:,} env_steps: {reasons[video.reason]}", f"{run.videos.name}/{video.path.name}")
        for video in videos.list_videos(run.videos)
    ]
    return Section("Videos", ["Videos of evaluation episodes."], links=links) if links else None


def _fractions(
    title: str, name: str, label: str, bins: Bins | None, counts: Sequence[dict[str, float]]
) -> Section | None:
    """Fractions of episodes by cause or stage over time; a sentence if all episodes have the same one."""
    labels = {found for by_label in counts for found in by_label}
    if bins is None or not labels:
        return None
    if len(labels) == 1:
        return Section(title, [f"All episodes that ended have the same {label}: {labels.pop()}."])
    about = f"fraction of each {label} over env_steps"
    note = ["“time” means that the step limit was reached."] if "time" in labels else []
    return Section(title, note, plots=[plots.stacked_fractions(name, about, bins, bins.fractions(counts))])


def _stages(curve: EpisodeCurve) -> list[dict[str, float]]:
    """Stages of episodes; empty in a run without a curriculum."""
    return curve.stages if any(by_stage.keys() - {NO_STAGE} for by_stage in curve.stages) else []


def _stage_changes(store: MetricsReader) -> Section | None:
    columns = ("env_steps", "row", "from_stage", "to_stage", "reason")
    rows = _table_rows(store.read("stage_changes", columns, last=MAX_ROWS))
    count = len(store.read("stage_changes", ("row",))["row"])
    note = [f"The last {len(rows)} of {count:,} changes."] if count > len(rows) else []
    header = ("env_steps", "row", "from", "to", "reason")
    return Section("Stage changes", note, header=header, rows=rows) if rows else None


def _updates(store: MetricsReader) -> Section | None:
    """Metrics of updates in the order of the catalog, then custom ones; constant catalog metrics are left out."""
    order = list(METRICS)
    names = sorted(store.names(), key=lambda name: order.index(name) if name in order else len(order))
    shown_names = [name for name in names if not name.startswith((METER_PREFIX, *NOT_PLOTTED))]
    series = {name: store.series(name, CURVE_BINS) for name in shown_names}
    series = {name: pair for name, pair in series.items() if len(set(pair[1])) > 1 or name not in METRICS}
    shown = dict(list(series.items())[:MAX_METRICS])
    if not shown:
        return None
    rows = [
        (name, sparkline(values, SPARKLINE_WIDTH), metric.about, metric.formula)
        for name, (_, values) in shown.items()
        if (metric := describe_metric(name))
    ]
    header = ("metric", "over time", "meaning", "formula")
    return Section("Learning", header=header, rows=rows, plots=[plots.metric_grid(shown)])


def _resources(store: MetricsReader, meta: Mapping[str, Any]) -> Section | None:
    series = {name: store.series(name, CURVE_BINS)[1] for name in RESOURCE_UNITS}
    rows = [] if meta.get("seconds") is None else [("time", summary_text.format_duration(meta["seconds"]))]
    for name, unit in RESOURCE_UNITS.items():
        if values := series[name]:
            value = max(values) if name == "memory_mb" else sum(values) / len(values)
            rows.append((METRICS[name].about, f"{value:,.0f} {unit}"))
    rows += [(name, str(meta[name])) for name in ("threads", "rows") if meta.get(name) is not None]
    return Section("Resources", rows=rows) if any(series.values()) else None


def _alerts(store: MetricsReader) -> Section | None:
    alerts = store.read("alerts", ("env_steps", "name", "message", "tip"), last=MAX_ROWS)
    rows = _table_rows(alerts)
    return Section("Alerts", header=tuple(alerts), rows=rows) if rows else None


def _setting_changes(store: MetricsReader) -> Section | None:
    changes = store.read("setting_changes", ("env_steps", "key", "old", "new", "why"), last=MAX_ROWS)
    rows = [
        (f"{env_steps:,}", key, to_flow_yaml(old), to_flow_yaml(new), why)
        for env_steps, key, old, new, why in zip(*changes.values(), strict=True)
    ]
    return Section("Settings changed during training", header=tuple(changes), rows=rows) if rows else None


def _settings(run: Run) -> Section | None:
    try:
        text = disk.read_bounded(run.resolved_file, MAX_TEXT_BYTES).decode("utf-8", "replace")
    except TownletError:
        return None
    return Section("Settings", ["Every setting and its source."], verbatim=text) if text.strip() else None


def _table_rows(columns: Columns) -> list[tuple[str, ...]]:
    return [tuple(_format_value(value) for value in row) for row in zip(*columns.values(), strict=True)]


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
