"""Every metric described once: for the console, the page, the alerts, the report and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """One figure. Outside the `healthy` range `advice` says what it may mean; `timed` ones depend on the clock.

    Below the share `collapse` of its first value it is unhealthy too.
    """

    name: str
    about: str
    formula: str
    unit: str = ""
    healthy: tuple[float, float] | None = None
    advice: str = ""
    timed: bool = False
    collapse: float = 0.0


_BIG: Final = 1e9
_ALL: Final = (
    # Lives
    Metric("episode_length", "how long an episode lasted", "steps from reset to its end", "steps"),
    Metric("episode_return", "what the world's own rewards paid in an episode: unscaled, without guidance or novelty",
           "Σ reward, less `potential`", "reward"),
    Metric("extrinsic", "what the environment paid in an episode, guidance included", "Σ reward", "reward"),
    Metric("intrinsic", "novelty met in an episode, unweighted", "Σ bonus", "reward"),
    Metric("stage", "the curriculum's stage, mean over rows", "mean stage", "stage"),
    # Evaluation: no exploration, fresh episodes
    Metric("evaluation_length", "how long a life lasts without exploration", "mean length of evaluated lives", "steps"),
    Metric("evaluation_return", "what a life pays without exploration", "mean Σ reward of evaluated lives", "reward"),
    Metric("survived", "share of evaluated lives that reached the limit", "truncated / episodes", "share", (0, 1)),
    Metric("works", "share of evaluated lives that earned money", "lives with a gain of money / lives", "share", (0, 1),
           "at 0 every life is spent from its inheritance: a longer limit would end it"),
    # Exploration
    Metric("epsilon", "share of random actions, mean over rows", "ε", "share", (0, 1)),
    Metric("intrinsic_weight", "weight of novelty in the reward", "w", "", (0, 10)),
    Metric("novelty", "mean novelty of what was reached, unweighted", "mean bonus", "reward", (0, 100),
           "it should fall while a place becomes known"),
    Metric("rnd_loss", "error of the predictor of random features", "mean (f̂(s) − f(s))²", "", (0, 100),
           "where it does not fall, novelty tells nothing"),
    Metric("entropy", "how undecided the policy is", "−Σ p log p", "nats", (0.001, 10),
           "the policy hardly explores any more; where it has not learned enough, raise the entropy bonus",
           collapse=0.25),
    Metric("normalized_entropy", "the same beside a blind choice", "entropy / log (valid actions)", "share", (0, 1)),
    Metric("deviation", "how far actions that are numbers are tried around their means", "mean σ", "", (1e-3, 1e2),
           "below this it hardly explores any more; far above the bounds of the actions most of it is cut off"),
    Metric("temperature", "Boltzmann's temperature", "T", "", (0, 100)),
    # Learning from values
    Metric("loss", "what the optimizer minimises", "mean loss of the update", "", (-1e4, 1e4),
           "where it grows without end, lower lr or scale the reward"),
    Metric("td_error", "how far estimates are from their targets", "mean |target − Q|", "reward", (0, 1e3),
           "where it grows without end, estimates run away: use a target network, lower lr"),
    Metric("mean_q", "mean estimate of the actions taken", "mean Q(s, a)", "reward", (-1e4, 1e4),
           "far above any possible return, estimates run away: use double, lower lr"),
    Metric("grad_norm", "length of the gradient before clipping", "‖∇‖₂", "", (1e-8, 1e3),
           "at 0 nothing is learned; far above the clip every step is as long as the clip"),
    Metric("lr", "learning rate", "lr", "", (0, 1)),
    # Learning a policy
    Metric("policy_loss", "the clipped surrogate", "−mean min(r A, clip(r) A)", "", (-10, 10)),
    Metric("value_loss", "error of the value estimate", "mean (V − return)²", "", (0, 1e4),
           "where it grows without end, scale the reward"),
    Metric("approx_kl", "how far the policy moved in one update", "mean (r − 1 − log r)", "nats", (0, 0.05),
           "above this, updates are too large: lower lr, epochs or clip"),
    Metric("clip_fraction", "share of samples beyond the clip", "mean |r − 1| > clip", "share", (0, 0.5),
           "above this, updates are too large: lower lr or epochs"),
    Metric("explained_variance", "how much of the returns the value explains", "1 − Var(return − V) / Var(return)", "",
           (-0.2, 1), "below 0 the value is worse than a constant: raise its share, or scale the reward"),
    Metric("clip", "how far probabilities may move now", "ε", "", (0, 1)),
    Metric("value_clip", "how far values may move now", "ε of V", "reward"),
    Metric("entropy_weight", "weight of the bonus for undecided policies now", "c₂"),
    Metric("value_weight", "weight of the value's loss now", "c₁"),
    Metric("epochs_done", "times each step was learned from", "epochs until target_kl stopped them", "epochs"),
    # The machine
    Metric("steps_per_second", "speed of the whole loop", "Δ env_steps / Δ time", "steps/s", (1, _BIG), timed=True),
    Metric("updates_per_second", "speed of learning", "Δ updates / Δ time", "1/s", timed=True),
    Metric("memory_mb", "the most memory the process ever held", "largest resident set", "MB", timed=True),
)  # fmt: skip

METER: Final = "meter_"  # followed by the name of a meter
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL}


def described(name: str) -> Metric | None:
    """What is known of a figure; each meter of a world has one of its own."""
    if name.startswith(METER):
        about = f"how full the meter {name.removeprefix(METER)} is while training"
        return Metric(name, about, "mean over watched rows and steps", "share")
    return METRICS.get(name)


def unhealthy(name: str, value: float, first: float | None = None) -> str | None:
    """Why a value should worry, in words; None when it is healthy or nobody knows what healthy is.

    `first` is the figure's first value in the run.
    """
    metric = METRICS.get(name)
    if metric is None or metric.healthy is None:
        return None
    low, high = metric.healthy
    words = ""
    if not low <= value <= high:
        words = f"{name} is {value:.4g}, outside {low:g} to {high:g}"
    elif metric.collapse and first is not None and value < metric.collapse * first:
        words = f"{name} is {value:.4g}, below {metric.collapse:.0%} of the {first:.4g} it began with"
    return f"{words}: {metric.advice}" if words and metric.advice else words or None
