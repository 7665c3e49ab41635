"""What a run is about, in words: in a town lives are lived as long as possible, elsewhere returns are won."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from townlet.runs.curves import Lives


@dataclass(frozen=True)
class ReportTerms:
    """How to speak of the episodes of a run, and which column of them matters."""

    metric: Literal["length", "return"]
    episodes: str
    curve: str  # title of the plot over time
    plot: str  # name of its file
    axis: str
    ends: str  # title of what ended them
    evaluated: str  # label of the figure that one looks for first

    def figure(self, value: float) -> str:
        """A score in as many digits as it is worth."""
        return f"{value:.0f}" if self.metric == "length" or abs(value) >= 100 else f"{value:.3g}"


TOWN_TERMS: Final = ReportTerms(
    "length", "lives", "How long lives last", "survival", "length of a life in steps", "What ends lives",
    "lives, evaluated",
)  # fmt: skip
GYM_TERMS: Final = ReportTerms(
    "return", "episodes", "What is won", "returns", "return of an episode", "What ends episodes", "return, evaluated"
)


def report_terms(meta: Mapping[str, Any]) -> ReportTerms:
    """The words for a run, by what its meta.json says."""
    return GYM_TERMS if meta.get("gym") else TOWN_TERMS


Evaluations = Mapping[str, list[Any]]  # columns, from old to new


def result(meta: Mapping[str, Any], greedy: Evaluations, yardstick: float | None, ended: Lives) -> list[str]:
    """What the training itself said at its end, or what the metrics tell of a run that has not ended."""
    told = meta.get("summary") or _so_far(report_terms(meta), greedy, yardstick, ended)
    return [" ".join(told)]


def cards(
    meta: Mapping[str, Any], greedy: Evaluations, yardstick: float | None, env_steps: int
) -> list[tuple[str, str]]:
    """The figures that one looks for first; a dash where nothing was measured."""
    last = {name: values[-1] if values else None for name, values in greedy.items()}
    told = report_terms(meta)
    limit = f" of {last['limit']}" if last["limit"] and told is TOWN_TERMS else ""
    score = last[told.metric]
    solved = ("solved", _solved(score, meta.get("threshold")))
    return [
        (told.evaluated, "–" if score is None else f"{told.figure(score)}{limit}"),
        ("a random agent", "–" if yardstick is None else f"{told.figure(yardstick)}{limit}"),
        ("reach the limit", share(last["survived"])),
        ("work for money", share(last["works"])) if told is TOWN_TERMS else solved,
        ("env_steps", f"{env_steps:,}"),
        ("time", "–" if meta.get("seconds") is None else duration(meta["seconds"])),
        ("seed", str(meta.get("seed", "–"))),
        ("recipe", str(meta.get("recipe") or "–")),
    ]


def _solved(score: float | None, goal: float | None) -> str:
    """Against the threshold; a dash where there is none."""
    if goal is None:
        return "–"
    return f"{'yes' if score is not None and score >= goal else 'no'}, from {goal:g}"


def repeat(meta: Mapping[str, Any]) -> str:
    """The commands that train the same again, also where a program began the run; nothing when nobody knows."""
    if not meta.get("asked"):
        return str(meta.get("command") or "")
    first = shlex.join(["townlet", "train", meta["asked"], *meta.get("overrides", ())])
    if not meta.get("resumed_with"):
        return first
    # Not in one: schedules followed the first budget until then.
    return f"{first}\n{shlex.join(['townlet', 'train', '--resume', 'latest', *meta['resumed_with']])}"


def duration(seconds: float) -> str:
    """Seconds in the units that people use."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def share(value: float | None) -> str:
    """A share in per cent."""
    return "–" if value is None else f"{100 * value:.0f} %"


def _so_far(told: ReportTerms, greedy: Evaluations, yardstick: float | None, ended: Lives) -> list[str]:
    measured = _measured if told is TOWN_TERMS else _won
    return [*measured(greedy, yardstick, ended), *_better_before(told, greedy)]


def _won(greedy: Evaluations, yardstick: float | None, ended: Lives) -> list[str]:
    words = [] if yardstick is None else [f"A random agent gets {yardstick:.4g} in an episode."]
    if not greedy["return"] or greedy["return"][-1] is None:
        if len(ended.moment):
            words.append(f"The last episodes while training got {_latest(ended):.4g} on average.")
        return [*words, "The agent was not evaluated."]
    last = {name: values[-1] for name, values in greedy.items()}
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    return [*words, f"This agent gets {last['return']:.4g}{count}, after {last['env_steps']:,} env_steps."]


def _latest(ended: Lives) -> float:
    """The mean score of the last tenth of what ended."""
    tenth = slice(-max(1, len(ended.moment) // 10), None)
    return float(np.average(ended.score[tenth], weights=np.maximum(ended.count[tenth], 1e-12)))


def _measured(greedy: Evaluations, yardstick: float | None, ended: Lives) -> list[str]:
    words = [] if yardstick is None else [f"A random agent lives {yardstick:.0f} steps."]
    if not greedy["length"] or greedy["length"][-1] is None:
        if len(ended.moment):
            words.append(f"The last lives while training lasted {_latest(ended):.0f} steps on average.")
        return [*words, "The agent was not evaluated."]
    last = {name: values[-1] for name, values in greedy.items()}
    limit = f" of {last['limit']}" if last["limit"] else ""
    count = f" over {last['episodes']} episodes" if last["episodes"] else ""
    words.append(
        f"This agent lives {last['length']:.0f}{limit} steps, greedy{count}, after {last['env_steps']:,} env_steps."
    )
    if last["survived"] is not None:
        words.append(f"{share(last['survived'])} of its lives reached the limit.")
    return words + ([] if last["works"] is None else [_work(last["works"])])


def _work(part: float) -> str:
    if part == 0:
        return "It lives on its inheritance: no evaluated life earned money."
    if part == 1:
        return "Every evaluated life works for its money."
    return f"{share(part)} of the evaluated lives work for their money."


def _better_before(told: ReportTerms, greedy: Evaluations) -> Sequence[str]:
    scores = greedy[told.metric]
    known = [(score, -at) for score, at in zip(scores, greedy["env_steps"], strict=True) if score]
    if not known or scores[-1] is None or (best := max(known))[0] <= scores[-1] + 0.05 * abs(scores[-1]):
        return []
    unit = " steps" if told is TOWN_TERMS else ""
    return [f"It was better before: {told.figure(best[0])}{unit} at {-best[1]:,} env_steps."]
