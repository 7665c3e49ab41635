"""Every metric described once: for the console, the page, the report and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """One figure; `timed` ones depend on the clock. Which values should worry is in `townlet.train.monitors`."""

    name: str
    about: str
    formula: str
    unit: str = ""
    timed: bool = False


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
    Metric("survived", "share of evaluated lives that reached the limit", "truncated / episodes", "share"),
    Metric("works", "share of evaluated lives that earned money", "lives with a gain of money / lives", "share"),
    # Exploration
    Metric("epsilon", "share of random actions, mean over rows", "ε", "share"),
    Metric("intrinsic_weight", "weight of novelty in the reward", "w"),
    Metric("intrinsic_reward", "mean intrinsic reward of the last step, unweighted", "mean bonus", "reward"),
    Metric("rnd_loss", "error of the predictor of random features", "mean (f̂(s) − f(s))²"),
    Metric("entropy", "how undecided the policy is", "−Σ p log p", "nats"),
    Metric("normalized_entropy", "the same beside a blind choice", "entropy / log (valid actions)", "share"),
    Metric("action_std", "standard deviation of continuous actions", "mean σ"),
    Metric("temperature", "Boltzmann's temperature", "T"),
    # Learning from values
    Metric("loss", "what the optimizer minimizes", "mean loss of the update"),
    Metric("td_error", "how far estimates are from their targets", "mean |target − Q|", "reward"),
    Metric("mean_q", "mean estimate of the actions taken", "mean Q(s, a)", "reward"),
    Metric("grad_norm", "length of the gradient before clipping", "‖∇‖₂"),
    Metric("lr", "learning rate", "lr"),
    Metric("beta", "how much of the bias by priorities is corrected now", "β", "share"),
    Metric("dead_units", "units that are 0 whatever is seen", "share of relu units that are 0 at 256 observations"),
    # Learning a policy
    Metric("policy_loss", "loss of the policy", "−mean A log π, or clipped −mean min(r A, clip(r) A)"),
    Metric("value_loss", "error of the value estimate", "mean (V − return)²"),
    Metric("approx_kl", "how far the policy moved in one update", "mean (r − 1 − log r)", "nats"),
    Metric("clip_fraction", "share of samples beyond the clip", "mean |r − 1| > clip", "share"),
    Metric("explained_variance", "how much of the returns the value explains", "1 − Var(return − V) / Var(return)"),
    Metric("clip", "how far probabilities may move now", "ε"),
    Metric("value_clip", "how far values may move now", "ε of V", "reward"),
    Metric("entropy_coef", "weight of the bonus for undecided policies now", "c₂"),
    Metric("value_coef", "weight of the value's loss now", "c₁"),
    Metric("epochs_done", "times each step was learned from", "epochs until target_kl stopped them", "epochs"),
    Metric("gradient_steps", "gradient steps of one update", "epochs × batches", "steps"),
    # The machine
    Metric("steps_per_second", "speed of the whole loop", "Δ env_steps / Δ time", "steps/s", timed=True),
    Metric("updates_per_second", "speed of learning", "Δ updates / Δ time", "1/s", timed=True),
    Metric("memory_mb", "the most memory the process ever held", "largest resident set", "MB", timed=True),
)  # fmt: skip

METER_PREFIX: Final = "meter_"  # followed by the name of a meter
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL}


def describe_metric(name: str) -> Metric | None:
    """What is known of a figure; each meter of a world has one of its own."""
    if name.startswith(METER_PREFIX):
        about = f"how full the meter {name.removeprefix(METER_PREFIX)} is while training"
        return Metric(name, about, "mean over watched rows and steps", "share")
    return METRICS.get(name)
