"""Summary of a run in sentences and key figures, with the terms of its kind of task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from townlet.runs.curves import EpisodeCurve

Evaluations = Mapping[str, list[Any]]  # columns, oldest first


@dataclass(frozen=True)
class ReportTerms:
    """Terms of a kind of task; `curve_metric` is the episode column that its curves show."""

    curve_metric: Literal["length", "return"]
    curve_title: str
    plot_name: str
    axis_label: str
    causes_title: str
    score_label: str

    def format_score(self, value: float) -> str:
        return f"{value:.0f}" if self.curve_metric == "length" or abs(value) >= 100 else f"{value:.3g}"


TOWN_TERMS: Final = ReportTerms(
    "length",
    "Episode length",
    "survival",
    "episode length in steps",
    "Causes of death",
    "episode length, last evaluation",
)
GYM_TERMS: Final = ReportTerms(
    "return", "Return", "returns", "return per episode", "Ends of episodes", "return, last evaluation"
)


def report_terms(meta: Mapping[str, Any]) -> ReportTerms:
    return GYM_TERMS if meta.get("gym") else TOWN_TERMS


def summary_paragraphs(
    meta: Mapping[str, Any], greedy: Evaluations, random_score: float | None, curve: EpisodeCurve
) -> list[str]:
    """The summary that was written at the end of training, or one from the metrics so far."""
    terms = report_terms(meta)
    sentences = meta.get("summary") or [*_summarize(terms, greedy, random_score, curve), *_better_before(terms, greedy)]
    return [" ".join(sentences)]


def cards(
    meta: Mapping[str, Any], greedy: Evaluations, random_score: float | None, env_steps: int
) -> list[tuple[str, str]]:
    """The key figures as (name, value); a dash for values that were not measured."""
    last = {name: values[-1] if values else None for name, values in greedy.items()}
    terms = report_terms(meta)
    limit = f" of {last['limit']}" if last["limit"] and terms is TOWN_TERMS else ""
    score = last[terms.curve_metric]
    successes = [
        (f"{name} {mark:g}", "yes" if score is not None and score >= mark else "no")
        for name, mark in success_marks(meta).items()
    ]
    return [
        (terms.score_label, "–" if score is None else f"{terms.format_score(score)}{limit}"),
        ("a random agent", "–" if random_score is None else f"{terms.format_score(random_score)}{limit}"),
        ("reach the limit", format_percent(last["survived"])),
        *([("earn money", format_percent(last["earns_money"]))] if terms is TOWN_TERMS else successes),
        ("env_steps", f"{env_steps:,}"),
        ("time", "–" if meta.get("seconds") is None else format_duration(meta["seconds"])),
        ("seed", str(meta.get("seed", "–"))),
        ("recipe", str(meta.get("recipe") or "–")),
    ]


def success_marks(meta: Mapping[str, Any]) -> dict[str, float]:
    """The scores that count as success, each after its name: Gymnasium's threshold, and a goal of the recipe's own."""
    threshold, goal = meta.get("threshold"), meta.get("goal")
    marks = {} if threshold is None else {"solved at": threshold}
    return marks if goal in (None, threshold) else marks | {"goal of this recipe:": goal}


def rerun_command(meta: Mapping[str, Any]) -> str:
    """The commands that repeat the training; "" if they are not known."""
    if not meta.get("recipe_argument"):
        return str(meta.get("command") or "")
    first = shlex.join(["townlet", "train", meta["recipe_argument"], *meta.get("overrides", ())])
    if not meta.get("resumed_with"):
        return first
    # Not one command: until the resume, schedules followed the first budget.
    return f"{first}\n{shlex.join(['townlet', 'train', '--resume', 'latest', *meta['resumed_with']])}"


def format_duration(seconds: float) -> str:
    """A duration in two units: 2 h 5 min, 5 min 10 s; below a minute in seconds."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def format_percent(value: float | None) -> str:
    """A fraction as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.0f} %"


def _summarize(terms: ReportTerms, greedy: Evaluations, random_score: float | None, curve: EpisodeCurve) -> list[str]:
    town = terms is TOWN_TERMS
    sentences = []
    if random_score is not None:
        random = f"survives {random_score:.0f} steps" if town else f"gets a return of {random_score:.4g}"
        sentences.append(f"A random agent {random}.")
    if not greedy[terms.curve_metric] or greedy[terms.curve_metric][-1] is None:
        if len(curve.env_steps):
            tenth = slice(-max(1, len(curve.env_steps) // 10), None)
            mean = float(np.average(curve.score[tenth], weights=np.maximum(curve.count[tenth], 1e-12)))
            recent = f"lasted {mean:.0f} steps" if town else f"had a return of {mean:.4g}"
            sentences.append(f"The last training episodes {recent} on average.")
        return [*sentences, "The agent was not evaluated."]
    last = {name: values[-1] for name, values in greedy.items()}
    limit = f" of {last['limit']}" if last["limit"] else ""
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    score = f"survives {last['length']:.0f}{limit} steps" if town else f"gets {last['return']:.4g}"
    sentences.append(f"This agent {score}{count}, after {last['env_steps']:,} env_steps.")
    if town and last["survived"] is not None:
        sentences.append(f"{format_percent(last['survived'])} of its episodes reached the limit.")
    if town and last["earns_money"] == 0:
        sentences.append("It does not work: no evaluation episode earned money.")
    elif town and last["earns_money"] == 1:
        sentences.append("It earns money in every evaluation episode.")
    elif town and last["earns_money"] is not None:
        sentences.append(f"It earns money in {format_percent(last['earns_money'])} of the evaluation episodes.")
    return sentences


def _better_before(terms: ReportTerms, greedy: Evaluations) -> Sequence[str]:
    scores = greedy[terms.curve_metric]
    known = [(score, -at) for score, at in zip(scores, greedy["env_steps"], strict=True) if score is not None]
    if not known or scores[-1] is None:
        return []
    best, minus_env_steps = max(known)  # the earliest of equals
    if best <= scores[-1] + 0.05 * abs(scores[-1]):
        return []
    unit = " steps" if terms is TOWN_TERMS else ""
    return [f"An earlier evaluation was better: {terms.format_score(best)}{unit} at {-minus_env_steps:,} env_steps."]
