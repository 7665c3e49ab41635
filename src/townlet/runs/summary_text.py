"""Summary of a run in sentences and key figures, with the terms of its kind of task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from townlet.runs.curves import EpisodeCurve


@dataclass(frozen=True)
class ReportTerms:
    """Terms of a kind of task, and the episode column that is its score."""

    metric: Literal["length", "return"]
    episodes: str
    curve_title: str
    plot_name: str
    axis_label: str
    causes_title: str
    score_label: str

    def format_score(self, value: float) -> str:
        return f"{value:.0f}" if self.metric == "length" or abs(value) >= 100 else f"{value:.3g}"


TOWN_TERMS: Final = ReportTerms(
    "length", "episodes", "Episode length", "survival", "episode length in steps", "Causes of death",
    "episode length, evaluated",
)  # fmt: skip
GYM_TERMS: Final = ReportTerms(
    "return", "episodes", "Return", "returns", "return per episode", "Ends of episodes", "return, evaluated"
)


def report_terms(meta: Mapping[str, Any]) -> ReportTerms:
    return GYM_TERMS if meta.get("gym") else TOWN_TERMS


Evaluations = Mapping[str, list[Any]]  # columns, from old to new


def summary_paragraphs(
    meta: Mapping[str, Any], greedy: Evaluations, random_score: float | None, curve: EpisodeCurve
) -> list[str]:
    """The summary that training wrote at its end, or one from the metrics so far."""
    if not (sentences := meta.get("summary")):
        terms = report_terms(meta)
        summarize = _town_summary if terms is TOWN_TERMS else _gym_summary
        sentences = [*summarize(greedy, random_score, curve), *_better_before(terms, greedy)]
    return [" ".join(sentences)]


def cards(
    meta: Mapping[str, Any], greedy: Evaluations, random_score: float | None, env_steps: int
) -> list[tuple[str, str]]:
    """The key figures; a dash where nothing was measured."""
    last = {name: values[-1] if values else None for name, values in greedy.items()}
    terms = report_terms(meta)
    limit = f" of {last['limit']}" if last["limit"] and terms is TOWN_TERMS else ""
    score = last[terms.metric]
    solved = ("solved", _solved(score, meta.get("threshold")))
    return [
        (terms.score_label, "–" if score is None else f"{terms.format_score(score)}{limit}"),
        ("a random agent", "–" if random_score is None else f"{terms.format_score(random_score)}{limit}"),
        ("reach the limit", format_percent(last["survived"])),
        ("earn money", format_percent(last["works"])) if terms is TOWN_TERMS else solved,
        ("env_steps", f"{env_steps:,}"),
        ("time", "–" if meta.get("seconds") is None else format_duration(meta["seconds"])),
        ("seed", str(meta.get("seed", "–"))),
        ("recipe", str(meta.get("recipe") or "–")),
    ]


def _solved(score: float | None, threshold: float | None) -> str:
    """Whether the threshold is reached; a dash where there is none."""
    if threshold is None:
        return "–"
    return f"{'yes' if score is not None and score >= threshold else 'no'}, from {threshold:g}"


def rerun_command(meta: Mapping[str, Any]) -> str:
    """The commands that repeat the training; empty where they are not known."""
    if not meta.get("asked"):
        return str(meta.get("command") or "")
    first = shlex.join(["townlet", "train", meta["asked"], *meta.get("overrides", ())])
    if not meta.get("resumed_with"):
        return first
    # Not one command: until the resume, schedules followed the first budget.
    return f"{first}\n{shlex.join(['townlet', 'train', '--resume', 'latest', *meta['resumed_with']])}"


def format_duration(seconds: float) -> str:
    """Seconds as hours and minutes, minutes and seconds, or seconds."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def format_percent(value: float | None) -> str:
    """A fraction as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.0f} %"


def _gym_summary(greedy: Evaluations, random_score: float | None, curve: EpisodeCurve) -> list[str]:
    sentences = [] if random_score is None else [f"A random agent gets a return of {random_score:.4g}."]
    if not greedy["return"] or greedy["return"][-1] is None:
        if len(curve.env_steps):
            sentences.append(f"The last training episodes had a return of {_recent_score(curve):.4g} on average.")
        return [*sentences, "The agent was not evaluated."]
    last = {name: values[-1] for name, values in greedy.items()}
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    return [*sentences, f"This agent gets {last['return']:.4g}{count}, after {last['env_steps']:,} env_steps."]


def _recent_score(curve: EpisodeCurve) -> float:
    """The mean score of the last tenth of the curve."""
    tenth = slice(-max(1, len(curve.env_steps) // 10), None)
    return float(np.average(curve.score[tenth], weights=np.maximum(curve.count[tenth], 1e-12)))


def _town_summary(greedy: Evaluations, random_score: float | None, curve: EpisodeCurve) -> list[str]:
    sentences = [] if random_score is None else [f"A random agent survives {random_score:.0f} steps."]
    if not greedy["length"] or greedy["length"][-1] is None:
        if len(curve.env_steps):
            sentences.append(f"The last training episodes lasted {_recent_score(curve):.0f} steps on average.")
        return [*sentences, "The agent was not evaluated."]
    last = {name: values[-1] for name, values in greedy.items()}
    limit = f" of {last['limit']}" if last["limit"] else ""
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    sentences.append(
        f"This agent survives {last['length']:.0f}{limit} steps{count}, after {last['env_steps']:,} env_steps."
    )
    if last["survived"] is not None:
        sentences.append(f"{format_percent(last['survived'])} of its episodes reached the limit.")
    return sentences + ([] if last["works"] is None else [_work_sentence(last["works"])])


def _work_sentence(part: float) -> str:
    if part == 0:
        return "It does not work: no evaluation episode earned money."
    if part == 1:
        return "It earns money in every evaluation episode."
    return f"It earns money in {format_percent(part)} of the evaluation episodes."


def _better_before(terms: ReportTerms, greedy: Evaluations) -> Sequence[str]:
    scores = greedy[terms.metric]
    known = [(score, -at) for score, at in zip(scores, greedy["env_steps"], strict=True) if score]
    if not known or scores[-1] is None or (best := max(known))[0] <= scores[-1] + 0.05 * abs(scores[-1]):
        return []
    unit = " steps" if terms is TOWN_TERMS else ""
    return [f"An earlier evaluation was better: {terms.format_score(best[0])}{unit} at {-best[1]:,} env_steps."]
