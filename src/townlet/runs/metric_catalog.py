"""Descriptions of all metrics, for the console, the live page, reports and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Metric:
    """A metric; one that is not `reproducible` (speed, memory) differs between otherwise identical runs."""

    name: str
    about: str
    formula: str
    unit: str = ""
    reproducible: bool = True


_ALL: Final = (
    # Episodes
    Metric("episode_length", "length of an episode", "steps from reset to its end", "steps"),
    Metric("episode_return", "unscaled return of an episode, without shaping or intrinsic reward",
           "Σ reward without `potential`", "reward"),
    Metric("best_return", "highest return of a training episode so far", "max Σ reward without `potential`", "reward"),
    Metric("extrinsic", "return of an episode, including shaping", "Σ reward", "reward"),
    Metric("intrinsic", "intrinsic return of an episode, unweighted", "Σ bonus", "reward"),
    Metric("stage", "curriculum stage, mean over rows", "mean stage", "stage"),
    # Evaluation: separate episodes with the greedy policy
    Metric("evaluation_length", "mean length of evaluation episodes", "mean length", "steps"),
    Metric("evaluation_return", "mean return of evaluation episodes", "mean Σ reward", "reward"),
    Metric("survived", "fraction of evaluation episodes that reached the limit", "truncated / episodes", "fraction"),
    Metric("earns_money", "fraction of evaluation episodes with income", "episodes with income / episodes", "fraction"),
    # Exploration
    Metric("epsilon", "probability of a random action, mean over rows", "ε", "fraction"),
    Metric("intrinsic_weight", "weight of the intrinsic reward", "w"),
    Metric("intrinsic_reward", "mean intrinsic reward of the last step, unweighted", "mean bonus", "reward"),
    Metric("rnd_loss", "error of the RND predictor", "mean (f̂(s) − f(s))²"),
    Metric("entropy", "entropy of the policy", "−Σ p log p", "nats"),
    Metric("normalized_entropy", "entropy relative to a uniform policy", "entropy / log (valid actions)", "fraction"),
    Metric("action_std", "standard deviation of continuous actions", "mean σ"),
    Metric("temperature", "Boltzmann temperature", "T"),
    # Value learning
    Metric("loss", "loss minimized by the optimizer", "mean loss of the update"),
    Metric("td_error", "absolute TD error", "mean |target − Q|", "reward"),
    Metric("mean_q", "mean value of the actions taken", "mean Q(s, a)", "reward"),
    Metric("grad_norm", "gradient norm before clipping", "‖∇‖₂"),
    Metric("grad_norm_body", "gradient norm of the shared body at the last gradient step", "‖∇_body‖₂"),
    Metric("grad_norm_actor", "gradient norm of the policy at the last gradient step", "‖∇_actor‖₂"),
    Metric("grad_norm_critic", "gradient norm of the state value at the last gradient step", "‖∇_critic‖₂"),
    Metric("grad_norm_head", "gradient norm of the head of a Q-network at the last gradient step", "‖∇_head‖₂"),
    Metric("lr", "learning rate", "lr"),
    Metric("beta", "exponent of the importance weights of prioritized replay", "β", "fraction"),
    Metric("dead_units", "fraction of ReLU units that are 0 for all sampled observations", "dead / all", "fraction"),
    # Policy learning; ρ is the probability ratio of the new and the old policy
    Metric("policy_loss", "policy loss", "−mean A log π, or clipped: −mean min(ρ A, clip(ρ) A)"),
    Metric("value_loss", "value loss", "mean (V − return)²"),
    Metric("approx_kl", "KL divergence of the policy before and after an update", "mean (ρ − 1 − log ρ)", "nats"),
    Metric("clip_fraction", "fraction of clipped samples", "mean (|ρ − 1| > clip)", "fraction"),
    Metric("explained_variance", "variance of returns explained by the value", "1 − Var(return − V) / Var(return)"),
    Metric("clip", "current clip range of the probability ratio", "ε"),
    Metric("value_clip", "current clip range of values", "ε of V", "reward"),
    Metric("entropy_coef", "current entropy coefficient", "c_e"),
    Metric("value_coef", "current value coefficient", "c_v"),
    Metric("epochs_done", "epochs of the update", "all, or those until `target_kl` is exceeded", "epochs"),
    Metric("gradient_steps", "gradient steps of one update", "epochs × minibatches", "steps"),
    # Resources
    Metric("steps_per_second", "steps per second of training", "Δ env_steps / Δ time", "steps/s", reproducible=False),
    Metric("updates_per_second", "updates per second of training", "Δ updates / Δ time", "1/s", reproducible=False),
    Metric("memory_mb", "peak memory of the process", "largest resident set", "MB", reproducible=False),
)  # fmt: skip

METER_PREFIX: Final = "meter_"  # followed by the name of a meter
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL}
EVALUATION_METRICS: Final = ("length", "return", "survived", "earns_money")  # columns of the table evaluations


def describe_metric(name: str) -> Metric | None:
    """The description of a metric; every meter of a world has a metric too."""
    if name.startswith(METER_PREFIX):
        about = f"mean of the meter {name.removeprefix(METER_PREFIX)} during training"
        return Metric(name, about, "mean over rows and steps", "fraction")
    return METRICS.get(name)
