"""Checks of a training run: values that are not finite stop it, suspicious metrics raise an alert.

A monitor raises its alert once, and again only after the metric has recovered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs.metrics_reader import IRREPRODUCIBLE_METRICS

LOWER_LR: Final = (
    "lower agent.lr and resume: the last checkpoint is from before this; "
    "or start a new run with a lower agent.reward_scale"
)

ENVIRONMENT_REWARD: Final = (
    "it comes from the environment: check its rewards and reward wrappers, then resume: "
    "the last checkpoint is from before this"
)


class Diverged(TownletError):
    """Training produced a value that is NaN or infinite; `tensor` is the name of that value."""

    exit_code = 3

    def __init__(self, tensor: str, value: float, when: str, fix: str = LOWER_LR) -> None:
        super().__init__(f"training diverged: {tensor} is {value} {when}", fix)
        self.tensor = tensor


def check_reward(reward: Tensor, when: str, rows: Tensor | None = None) -> None:
    """Raise `Diverged` if a reward [k] is not finite; `rows` [k] are their rows, by default 0 to k − 1."""
    if bad := first_bad_reward(reward):
        index, value = bad
        row = index if rows is None else int(rows[index])
        raise Diverged(f"reward of row {row}", value, when, ENVIRONMENT_REWARD)


def first_bad_reward(reward: Tensor) -> tuple[int, float] | None:
    """Index and value of the first reward [k] that is not finite; None if all are finite.

    A finite sum proves that all are finite, with one synchronization.
    """
    if math.isfinite(float(reward.sum())):
        return None
    bad = torch.isfinite(reward).logical_not().nonzero()
    return (int(bad[0]), float(reward[bad[0]])) if len(bad) else None


def check_metrics(metrics: Mapping[str, float], when: str) -> None:
    """Raise `Diverged` if a metric of an update is not finite; losses are reported first."""
    if all(map(math.isfinite, metrics.values())):
        return
    for name in sorted(metrics, key=lambda name: "loss" not in name):
        if not math.isfinite(metrics[name]):
            raise Diverged(name, metrics[name], when)


@torch.no_grad()
def check_weights(weights: Mapping[str, Tensor], when: str) -> None:
    """Raise `Diverged` if a weight is not finite; a finite total norm proves that all are finite."""
    if math.isfinite(nn.utils.get_total_norm(weights.values()).item()):
        return
    for name, values in weights.items():
        bad = values[torch.isfinite(values).logical_not()]
        if len(bad):
            raise Diverged(f"weight {name}", float(bad[0]), when)


PATIENCE_INTERVALS: Final = 5  # bad intervals in a row before an alert
WINDOW: Final = 10  # intervals over which a metric is averaged
STALE_INTERVALS: Final = 30  # intervals without a new best mean
FALL_FRACTION: Final = 0.3  # fraction of the total gain whose loss counts as a fall
MIN_GAIN: Final = 0.25  # fraction of the way from a random agent to the goal
FALL_ERRORS: Final = 4.0  # standard errors that a fall must exceed: about 2.8 of the difference of two evaluations
PATIENCE_EVALUATIONS: Final = 2  # fallen evaluations in a row before an alert
EVALUATION_TIP: Final = (
    "lower agent.lr, or decay it with a schedule; if only greedy evaluations fall, set evaluation.deterministic=false; "
    "the best checkpoint is kept"
)


@dataclass
class MetricHistory:
    """The history of one metric. Means are over the last `WINDOW` intervals."""

    first: float  # value in the first interval
    recent: list[float] = field(default_factory=list)  # values of the last intervals, including the current one
    initial: float | None = None  # first mean
    best: float | None = None  # best mean
    stale: int = 0  # intervals since the best mean

    def add(self, value: float) -> None:
        self.recent = [*self.recent, value][-WINDOW:]
        if len(self.recent) < WINDOW:
            return
        self.initial = self.mean if self.initial is None else self.initial
        self.stale = 0 if self.best is None or self.mean > self.best else self.stale + 1
        self.best = self.mean if self.best is None else max(self.best, self.mean)

    @property
    def mean(self) -> float:
        """Mean of the last intervals, including the current one."""
        return sum(self.recent) / len(self.recent)

    @property
    def median(self) -> float:
        """Median of the last intervals before the current one."""
        earlier = sorted(self.recent[:-1])
        return earlier[len(earlier) // 2] if earlier else self.recent[-1]

    @property
    def has_fallen(self) -> bool:
        """Whether the mean lost much of what it had gained, and more than the recent values fluctuate."""
        if self.best is None or self.initial is None:
            return False
        lost, spread = self.best - self.mean, max(self.recent) - min(self.recent)
        return lost > max(FALL_FRACTION * (self.best - self.initial), spread)


@dataclass
class EvaluationHistory:
    """Scores of evaluations so far."""

    random: float | None = None  # of a random agent
    best: float | None = None
    last: float | None = None
    fallen: int = 0  # evaluations in a row that were much worse than the best


@dataclass(frozen=True)
class Monitor:
    """A rule for one metric. `message` may contain {metric}, {value}, and {first}, {median}, {best}, {mean} (history).

    A monitor of a metric that depends on the clock has the name of that metric, so that the store can omit both.
    """

    name: str
    metric: str
    is_bad: Callable[[float, MetricHistory], bool]
    message: str
    tip: str
    patience: int = PATIENCE_INTERVALS
    needs: tuple[str, float] | None = None  # the rule applies only while this other metric exceeds this value
    while_stalled: bool = False  # the rule applies only while the score neither rises nor is good enough


def above(limit: float) -> Callable[[float, MetricHistory], bool]:
    """A rule: a value is bad if it is above this limit or NaN."""
    return lambda value, past: not value <= limit


def below(limit: float) -> Callable[[float, MetricHistory], bool]:
    """A rule: a value is bad if it is below this limit or NaN."""
    return lambda value, past: not value >= limit


STALLED: Final = ", and the score does not rise"  # part of the message of a monitor that applies only then
SCORE: Final = "score"  # stands for the metric of evaluations: episode_return or episode_length
SMALLER_UPDATES: Final = "lower agent.lr, agent.epochs or agent.clip"
LARGER_UPDATES: Final = "raise agent.lr or agent.epochs"
ANNEALED: Final = 0.5  # fraction of the initial learning rate below which small updates raise no alert
STALLS: Final = "score stalls"
# Ratios are measured before each gradient step, so with a single one the policy has not changed yet.
SEVERAL_STEPS: Final = ("gradient_steps", 1.0)
LOWER_LR_OR_SCALE: Final = "lower agent.lr or agent.reward_scale"
MONITORS: Final = (
    Monitor("kl high", "approx_kl", above(0.05), "approx_kl is {value:.3g} per update, above 0.05",
            f"updates are too large: {SMALLER_UPDATES}, or set agent.target_kl", while_stalled=True),
    Monitor("kl low", "approx_kl", below(0.001), "approx_kl is {value:.3g} per update, below 0.001",
            LARGER_UPDATES, needs=SEVERAL_STEPS, while_stalled=True),
    Monitor("clip high", "clip_fraction", above(0.5), "clip_fraction is {value:.0%}, above 50%",
            f"updates are too large: {SMALLER_UPDATES}", while_stalled=True),
    Monitor("clip low", "clip_fraction", below(0.05), "clip_fraction is {value:.1%}, below 5%", LARGER_UPDATES,
            needs=SEVERAL_STEPS, while_stalled=True),
    Monitor("explained variance", "explained_variance", below(-0.2),
            "explained_variance is {value:.3g}, below -0.2: the value function predicts worse than a constant",
            "raise agent.value_coef, scale rewards with agent.reward_scale, or set agent.shared: false",
            while_stalled=True),
    Monitor("entropy collapse", "entropy", lambda value, past: value < 0.25 * past.first,
            "entropy is {value:.3g}, below 25% of its initial value {first:.3g}",
            "the policy hardly explores: raise agent.entropy_coef or lower agent.lr", while_stalled=True),
    Monitor("action_std collapse", "action_std", below(1e-3),
            "action_std is {value:.2g}: the policy is nearly deterministic",
            "the policy hardly explores: raise agent.entropy_coef", while_stalled=True),
    Monitor(STALLS, SCORE, lambda value, past: past.stale >= STALE_INTERVALS,
            f"{{metric}} has not exceeded {{best:.4g}} for {STALE_INTERVALS} intervals; now {{mean:.4g}}",
            "if that is too low, explore more (agent.entropy_coef, explore), change agent.lr, or widen the network", 1),
    Monitor("score falls", SCORE, lambda value, past: past.has_fallen, "{metric} fell from {best:.4g} to {mean:.4g}",
            "performance is degrading: lower agent.lr, or decay it with a schedule; the best checkpoint is kept"),
    Monitor("dead units", "dead_units", above(0.5),
            "{value:.0%} of the relu units are dead (0 for all observations), above 50%",
            "lower agent.lr, use network.layer_norm or another network.activation, or normalize observations",
            while_stalled=True),
    Monitor("exploding gradients", "grad_norm", lambda value, past: not value <= max(1e3, 100 * past.first),
            "the gradient norm is {value:.3g}, initially {first:.3g}", f"{LOWER_LR_OR_SCALE}, or agent.max_grad_norm"),
    Monitor("vanishing gradients", "grad_norm", below(1e-8), "the gradient norm is {value:.2g}: nothing is learned",
            "check dead_units and agent.lr, and that the environment ever gives a nonzero reward"),
    Monitor("loss diverges", "loss", lambda value, past: not abs(value) <= 1e4, "loss is {value:.3g}",
            LOWER_LR_OR_SCALE),
    Monitor("value loss", "value_loss", above(1e4), "value_loss is {value:.3g}", LOWER_LR_OR_SCALE),
    Monitor("td error", "td_error", above(1e3), "td_error is {value:.3g}",
            f"value estimates diverge: {LOWER_LR_OR_SCALE}, or raise agent.target_every"),
    Monitor("values diverge", "mean_q", lambda value, past: not abs(value) <= 1e4, "mean_q is {value:.3g}",
            f"if returns are not that large, set agent.double: true, or {LOWER_LR_OR_SCALE}"),
    Monitor("rnd loss", "rnd_loss", above(100.0), "rnd_loss is {value:.3g}",
            "if it does not fall, the intrinsic reward is uninformative: lower explore.bonus.lr"),
    Monitor("steps_per_second", "steps_per_second",
            lambda value, past: past.initial is not None and value < past.median / 3,
            "{value:,.0f} steps per second, less than a third of the usual {median:,.0f}",
            "check what else runs on this machine, and whether its memory or disk is full"),
)  # fmt: skip


class Alert(NamedTuple):
    """A monitor whose metric has been bad for `patience` intervals."""

    name: str
    message: str
    value: float
    tip: str


def has_fallen(score: float, best: float, random: float, error: float, goal: float | None = None) -> bool:
    """Whether an evaluation lost much of what the best one had gained over a random agent, and not by chance.

    `error` is the standard error of the evaluation. An agent that has gained little on the way to `goal` cannot fall.
    """
    if best <= random or (goal is not None and goal > random and best - random < MIN_GAIN * (goal - random)):
        return False
    return best - score > max(FALL_FRACTION * (best - random), FALL_ERRORS * error)


class Monitors:
    """Checks the metrics of every interval. `score` is maximized; at or above `goal` it may stall or fall."""

    def __init__(self, score: str = "episode_return", goal: float | None = None) -> None:
        self._score, self._goal = score, goal
        self._evaluations = EvaluationHistory()
        self._watched = {score, "lr", *(monitor.metric for monitor in MONITORS)}
        self._past: dict[str, MetricHistory] = {}
        self._bad: dict[str, int] = {}  # bad intervals in a row, by monitor

    def check(self, metrics: Mapping[str, float]) -> list[Alert]:
        """Add the metrics of an interval; returns new alerts."""
        for name in self._watched & metrics.keys():
            if name not in self._past:
                self._past[name] = MetricHistory(metrics[name])
            self._past[name].add(metrics[name])
        return [alert for monitor in MONITORS if (alert := self._check(monitor, metrics))]

    def check_evaluation(self, score: float, error: float = 0.0, *, random: bool = False) -> list[Alert]:
        """Add the score of an evaluation of the agent, or of the random agent, with its standard error.

        Returns new alerts.
        """
        past = self._evaluations
        if random:
            past.random = score
            return []
        past.best, past.last = score if past.best is None else max(score, past.best), score
        fallen = past.random is not None and has_fallen(score, past.best, past.random, error, self._goal)
        past.fallen = past.fallen + 1 if fallen else 0
        if past.fallen != PATIENCE_EVALUATIONS:
            return []
        message = f"the score of evaluations fell from {past.best:.4g} to {score:.4g}"
        return [Alert("evaluation falls", message, score, EVALUATION_TIP)]

    def _check(self, monitor: Monitor, metrics: Mapping[str, float]) -> Alert | None:
        name = self._score if monitor.metric == SCORE else monitor.metric
        if name not in metrics:
            return None
        value, past = metrics[name], self._past[name]
        bad = monitor.is_bad(value, past)
        if monitor.metric == SCORE and (self._is_good(past) or (monitor.name == STALLS and self._was_good(past))):
            bad = False
        if monitor.tip is LARGER_UPDATES and self._is_annealed(metrics):
            bad = False
        if monitor.while_stalled and not self._is_stalled():
            bad = False
        if monitor.needs is not None and metrics.get(monitor.needs[0], math.inf) <= monitor.needs[1]:
            bad = False
        self._bad[monitor.name] = self._bad.get(monitor.name, 0) + 1 if bad else 0
        if self._bad[monitor.name] != monitor.patience:
            return None
        history = {key: getattr(past, key) for key in ("first", "median", "mean", "best")}
        message = monitor.message.format(metric=name, value=value, **history)
        message += STALLED if monitor.while_stalled and self._score in self._past else ""
        return Alert(monitor.name, message, value, monitor.tip)

    def _is_good(self, score: MetricHistory) -> bool:
        """Whether the score has reached the goal, in training or, without exploration, in the last evaluation."""
        last = self._evaluations.last
        return self._goal is not None and (score.mean >= self._goal or (last is not None and last >= self._goal))

    def _was_good(self, score: MetricHistory) -> bool:
        """Whether the score has reached the goal before; a score at its maximum cannot rise."""
        return self._goal is not None and score.best is not None and score.best >= self._goal

    def _is_annealed(self, metrics: Mapping[str, float]) -> bool:
        """Whether the learning rate has decayed so far that small updates are intended."""
        return "lr" in metrics and metrics["lr"] < ANNEALED * self._past["lr"].first

    def _is_stalled(self) -> bool:
        """Whether the score is neither rising nor good enough; true if it is not known."""
        score = self._past.get(self._score)
        return score is None or (score.stale >= WINDOW and not self._is_good(score))

    def state(self) -> State:
        """Histories and numbers of bad intervals in a row, except for metrics that are not reproducible."""
        past = {name: asdict(past) for name, past in self._past.items() if name not in IRREPRODUCIBLE_METRICS}
        bad = {name: count for name, count in self._bad.items() if name not in IRREPRODUCIBLE_METRICS}
        return {"past": past, "bad": bad, "evaluations": asdict(self._evaluations)}

    def restore(self, state: State) -> None:
        self._past = {name: MetricHistory(**past) for name, past in state["past"].items()}
        self._bad = {name: int(count) for name, count in state["bad"].items()}
        self._evaluations = EvaluationHistory(**state.get("evaluations", {}))  # missing in version 0.2.0
