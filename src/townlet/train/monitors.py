"""Figures that should worry somebody: told once with what to do, and again only after they had been well."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

from townlet.interfaces.state import State
from townlet.runs.metrics_reader import TIMED_METRICS

PATIENCE: Final = 5  # marks in a row: one bad interval is an accident
SMOOTH: Final = 10  # marks that a steady figure is the mean of
STALE: Final = 30  # marks without a new best of it
FELL: Final = 0.3  # of all that was gained


@dataclass
class Past:
    """What a figure has been so far, mark by mark."""

    first: float
    recent: list[float] = field(default_factory=list)  # the last ones, this one included
    begun: float | None = None  # its first steady value
    best: float | None = None  # its best steady value
    stale: int = 0  # marks since that one

    def add(self, value: float) -> None:
        """One more mark."""
        self.recent = [*self.recent, value][-SMOOTH:]
        if len(self.recent) < SMOOTH:
            return
        self.begun = self.steady if self.begun is None else self.begun
        self.stale = 0 if self.best is None or self.steady > self.best else self.stale + 1
        self.best = self.steady if self.best is None else max(self.best, self.steady)

    @property
    def steady(self) -> float:
        """The mean of the last marks."""
        return sum(self.recent) / len(self.recent)

    @property
    def usual(self) -> float:
        """The middle one of the last marks before this one."""
        earlier = sorted(self.recent[:-1])
        return earlier[len(earlier) // 2] if earlier else self.recent[-1]

    @property
    def fell(self) -> bool:
        """Whether it lost much of what it had gained, and more than it ever moves between marks."""
        if self.best is None or self.begun is None:
            return False
        lost, spread = self.best - self.steady, max(self.recent) - min(self.recent)
        return lost > max(FELL * (self.best - self.begun), spread)


@dataclass(frozen=True)
class Monitor:
    """Looks at one figure. `message` may speak of its {value} and of its past: {first}, {usual}, {best}, {steady}.

    One that depends on the clock is named after its figure, by which the store knows that it does.
    """

    name: str
    figure: str
    worrying: Callable[[float, Past], bool]
    message: str
    tip: str
    patience: int = PATIENCE
    needs: tuple[str, float] | None = None  # another figure, up to this value of which it says nothing


def above(limit: float) -> Callable[[float, Past], bool]:
    """Worrying above this; what is not a number is not below it either."""
    return lambda value, past: not value <= limit


def below(limit: float) -> Callable[[float, Past], bool]:
    """Worrying below this."""
    return lambda value, past: not value >= limit


SCORE: Final = "score"  # stands for the figure that evaluations are judged by: episode_return or episode_length
SMALLER: Final = "lower agent.lr, agent.epochs or agent.clip"
LARGER: Final = "where it learns too slowly, raise agent.lr or agent.epochs; near the end of a schedule all is well"
STEPPED: Final = ("gradient_steps", 1.0)  # ratios are taken before a step: before the only one nothing has moved
RUNAWAY: Final = "lower agent.lr or agent.reward_scale"
MONITORS: Final = (
    Monitor("kl high", "approx_kl", above(0.05), "the policy moved by {value:.3g} nats in an update, above .05",
            f"updates are too large: {SMALLER}, or give agent.target_kl"),
    Monitor("kl low", "approx_kl", below(0.001), "the policy moved by {value:.3g} nats in an update, below .001",
            LARGER, needs=STEPPED),
    Monitor("clip high", "clip_fraction", above(0.5), "{value:.0%} of the steps are beyond the clip, above 50%",
            f"updates are too large: {SMALLER}"),
    Monitor("clip low", "clip_fraction", below(0.05), "{value:.1%} of the steps are beyond the clip, below 5%", LARGER,
            needs=STEPPED),
    Monitor("explained variance", "explained_variance", below(-0.2),
            "explained_variance is {value:.3g}, below -.2: the value is worse than a constant",
            "raise agent.value_coef, scale the reward by agent.reward_scale, or set agent.shared: false"),
    Monitor("entropy collapse", "entropy", lambda value, past: value < 0.25 * past.first,
            "entropy is {value:.3g}, below 25% of the {first:.3g} it began with",
            "it hardly explores any more; where it has not learned enough, raise agent.entropy_coef or lower agent.lr"),
    Monitor("deviation collapse", "action_std", below(1e-3), "actions are tried only {value:.2g} around their means",
            "it hardly explores any more; where it has not learned enough, raise agent.entropy_coef"),
    Monitor("score stalls", SCORE, lambda value, past: past.stale >= STALE,
            f"{{figure}} has not risen above {{best:.4g}} for {STALE} marks and is {{steady:.4g}} now",
            "if that is too low, explore more (agent.entropy_coef, explore), change agent.lr, or widen the network", 1),
    Monitor("score falls", SCORE, lambda value, past: past.fell, "{figure} was {best:.4g} and is {steady:.4g} now",
            "what was learned is being lost: lower agent.lr, or let it fall by a schedule; the best checkpoint stays"),
    Monitor("dead units", "dead_units", above(0.5), "{value:.0%} of the units do nothing whatever is seen, above 50%",
            "lower agent.lr, take network.layer_norm or another network.activation, or normalize what is seen"),
    Monitor("gradient explosion", "grad_norm", lambda value, past: not value <= max(1e3, 100 * past.first),
            "gradients are {value:.3g} long; they began with {first:.3g}", f"{RUNAWAY}, or agent.max_grad_norm"),
    Monitor("gradient vanishes", "grad_norm", below(1e-8), "gradients are {value:.2g} long: nothing is learned",
            "look at dead_units and agent.lr; a reward that never comes teaches nothing"),
    Monitor("loss runs away", "loss", lambda value, past: not abs(value) <= 1e4, "the loss is {value:.3g}", RUNAWAY),
    Monitor("value loss", "value_loss", above(1e4), "the error of values is {value:.3g}", RUNAWAY),
    Monitor("td error", "td_error", above(1e3), "values are {value:.3g} from their targets",
            f"estimates run away: {RUNAWAY}, or raise agent.target_every"),
    Monitor("values run away", "mean_q", lambda value, past: not abs(value) <= 1e4, "the mean value is {value:.3g}",
            f"where no return is that large, take agent.double, or {RUNAWAY}"),
    Monitor("novelty", "rnd_loss", above(100.0), "the predictor of novelty is off by {value:.3g}",
            "where this does not fall, novelty tells nothing: lower explore.bonus.lr"),
    Monitor("steps_per_second", "steps_per_second",
            lambda value, past: past.begun is not None and value < 0.5 * past.usual,
            "{value:,.0f} steps per second, less than half of the usual {usual:,.0f}",
            "look what else runs on this machine, and whether its memory or disk is full", 3),
)  # fmt: skip


class Alert(NamedTuple):
    """What should be looked at."""

    name: str
    message: str
    value: float
    tip: str


class Monitors:
    """Looks at the figures of every mark. `score` is the figure that matters, from `goal` on it need not rise."""

    def __init__(self, score: str = "episode_return", goal: float | None = None) -> None:
        self._score, self._goal = score, goal
        self._watched = {score, *(monitor.figure for monitor in MONITORS)}
        self._past: dict[str, Past] = {}
        self._bad: dict[str, int] = {}  # marks in a row, by monitor

    def look(self, figures: Mapping[str, float]) -> list[Alert]:
        """What has just become worrying."""
        for figure in self._watched & figures.keys():
            if figure not in self._past:
                self._past[figure] = Past(figures[figure])
            self._past[figure].add(figures[figure])
        return [alert for monitor in MONITORS if (alert := self._ask(monitor, figures))]

    def _ask(self, monitor: Monitor, figures: Mapping[str, float]) -> Alert | None:
        figure = self._score if monitor.figure == SCORE else monitor.figure
        if figure not in figures:
            return None
        value, past = figures[figure], self._past[figure]
        worrying = monitor.worrying(value, past) and not (self._reached(monitor, past) or _silent(monitor, figures))
        self._bad[monitor.name] = self._bad.get(monitor.name, 0) + 1 if worrying else 0
        if self._bad[monitor.name] != monitor.patience:
            return None
        known = {name: getattr(past, name) for name in ("first", "usual", "steady", "best")}
        return Alert(monitor.name, monitor.message.format(figure=figure, value=value, **known), value, monitor.tip)

    def _reached(self, monitor: Monitor, past: Past) -> bool:
        """Whether the figure is where it should be, so that it need not rise."""
        return monitor.figure == SCORE and self._goal is not None and past.steady >= self._goal

    def state(self) -> State:
        """The past of each figure and since how many marks it is bad, less what depends on the clock."""
        past = {figure: asdict(past) for figure, past in self._past.items() if figure not in TIMED_METRICS}
        return {"past": past, "bad": {name: count for name, count in self._bad.items() if name not in TIMED_METRICS}}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken; the machine may be another one."""
        self._past = {figure: Past(**past) for figure, past in state["past"].items()}
        self._bad = {name: int(count) for name, count in state["bad"].items()}


def _silent(monitor: Monitor, figures: Mapping[str, float]) -> bool:
    """Whether another figure tells that this one means nothing."""
    if monitor.needs is None:
        return False
    figure, least = monitor.needs
    return figures.get(figure, math.inf) <= least
