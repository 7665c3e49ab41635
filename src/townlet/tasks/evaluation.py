"""Evaluation of a policy on complete episodes.

Every row plays a fixed number of episodes: taking the first episodes that end would favor short ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.vec_env import Actions, Binary, Discrete, FinalObs, VecEnv
from townlet.runs.statistics import score_text

# Why an episode ended: it was truncated at the time limit, or the Gymnasium environment terminated it.
TIME_LIMIT: Final = "time"
TERMINATED: Final = "terminated"
LONG_EPISODE: Final = 50_000  # steps

# Called after every step; returns additional columns [k, …] for the k episodes that ended in it.
EpisodeStats = Callable[[FinalObs], dict[str, NDArray[Any]]]


class ActingPolicy(Protocol):
    """A policy that can be evaluated, such as `townlet.agents.policy.Policy`."""

    def reset(self, rows: int) -> None:
        """Reset the hidden state of all rows."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions of all rows; `episode_start` [N] marks rows at the start of an episode."""


class RandomPolicy:
    """Uniformly random valid actions: the baseline."""

    def __init__(self, actions: Actions, generator: torch.Generator) -> None:
        self._actions, self._generator = actions, generator

    def reset(self, rows: int) -> None:
        """Nothing to reset."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        actions = self._actions
        if isinstance(actions, Discrete):
            assert mask is not None
            draws = torch.rand(mask.shape, generator=self._generator, device=mask.device)
            return draws.masked_fill(mask.logical_not(), -1.0).argmax(1)  # the valid action with the largest draw
        draws = torch.rand((len(obs), actions.n), generator=self._generator, device=obs.device)
        if isinstance(actions, Binary):
            return (draws < 0.5).long()
        low = torch.tensor(actions.low, device=obs.device)
        high = torch.tensor(actions.high, device=obs.device)
        return low + (high - low) * draws


@dataclass(frozen=True)
class EvaluationResult:
    """Results of complete episodes, one entry per episode [n].

    Attributes:
        limit: the number of steps after which an episode is truncated; None without a limit.
        length: the number of steps of each episode.
        returns: the undiscounted return of each episode.
        terminated: whether each episode was terminated; otherwise it was truncated.
        causes: why each episode ended, such as the lethal meter of a town.
    """

    limit: int | None
    length: NDArray[np.int64]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    causes: tuple[str, ...]

    def __repr__(self) -> str:
        means = f"mean return {score_text(self.mean_return)}, mean length {score_text(self.mean_length)}"
        return f"<{len(self.length)} episodes: {means}, {self.survived:.0%} reach the limit>"

    @property
    def mean_length(self) -> float:
        """The mean number of steps of an episode."""
        return float(self.length.mean())

    @property
    def mean_return(self) -> float:
        """The mean return of an episode."""
        return float(self.returns.mean())

    @property
    def survived(self) -> float:
        """Fraction of episodes that were truncated at the limit."""
        return float(1 - self.terminated.mean())

    def score(self, metric: str) -> float:
        """The mean length if the metric is "length", else the mean return: higher is better."""
        return self.mean_length if metric == "length" else self.mean_return

    def standard_error(self, metric: str) -> float:
        """Standard error of `score` over the episodes; 0 if there is only one."""
        values = self.length if metric == "length" else self.returns
        return float(values.std(ddof=1) / sqrt(len(values))) if len(values) > 1 else 0.0

    def columns(self, policy: str, metric: str) -> dict[str, Any]:
        """This evaluation as a row of the metrics store, without the columns env_steps, updates and wall."""
        return {
            "policy": policy,
            "episodes": len(self.length),
            "limit": self.limit,
            "length": self.mean_length,
            "length_min": int(self.length.min()),
            "length_max": int(self.length.max()),
            "return": self.mean_return,
            "survived": self.survived,
            "earns_money": None,
            "score": self.score(metric),
            "causes": dict(Counter(self.causes).most_common()),
            "meters": None,
        }


class BestCheckpoint(NamedTuple):
    """The best checkpoint of a run whose last checkpoint is not the best."""

    env_steps: int
    metric: str
    score: float
    fallen_to: float | None = None  # the score of the last checkpoint if it is much lower

    def note(self) -> str:
        """A note for results of the last checkpoint: which one `eval` and `play` use by default."""
        worse = ""
        if self.fallen_to is not None:
            worse = (
                f"The last evaluation ({self.metric} {score_text(self.fallen_to)}) is far below the best "
                f"({score_text(self.score)}). "
            )
        return worse + (
            f"`eval` and `play` use the best checkpoint ({self.metric} {score_text(self.score)} "
            f"at {self.env_steps:,} env_steps) by default; use --which last for the last one."
        )


def summarized_agent(best: BestCheckpoint | None) -> str:
    """The agent that a training summary is about; `best` is None if its last checkpoint is also the best."""
    return f"At its {'last' if best else 'last and best'} checkpoint, this agent"


class TrainingSummary(Protocol):
    """The result of a training run."""

    def sentences(self) -> list[str]:
        """The result in sentences."""


def run_episodes(
    policy: ActingPolicy,
    env: VecEnv,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    device: str = "cpu",
    make_stats: Callable[[], EpisodeStats] | None = None,
    check_interrupt: Callable[[], None] = no_interrupt,
    on_long_episode: Callable[[], None] = lambda: None,
) -> dict[str, NDArray[Any]]:
    """Play complete episodes, divided evenly among the rows; returns columns [episodes, …].

    The columns are length, returns, terminated, and those of `make_stats`, which is called after the reset.
    `device` is that of the policy; the environment may be on another one. `check_interrupt` is called before every
    step and may raise, `on_long_episode` when an episode has taken many steps: between one and two LONG_EPISODE.
    """
    rows = env.rows
    quota = np.full(rows, episodes // rows) + (np.arange(rows) < episodes % rows)
    first_index = np.cumsum(quota) - quota  # of each row's episodes in the columns
    finished = np.zeros(rows, np.int64)  # episodes of each row so far
    obs, mask = env.reset(seed)
    stats = make_stats() if make_stats else None
    policy.reset(rows)
    length, returns = np.zeros(rows, np.int64), np.zeros(rows)
    columns: dict[str, NDArray[Any]] = {}
    episode_start = None
    steps = 0
    while (finished < quota).any():
        check_interrupt()
        steps += 1
        if steps % LONG_EPISODE == 0 and length.max() >= LONG_EPISODE:
            on_long_episode()
        start = None if episode_start is None else episode_start.to(device)
        step = env.step(policy.act(obs.to(device), mask.to(device), start, greedy).to(env.device))
        if step.autoreset_step is None:
            length += 1
        else:
            length += step.autoreset_step.logical_not().cpu().numpy()
        returns += step.reward.cpu().numpy()
        ended = env.final_obs()
        ended_rows = ended.rows.cpu().numpy()
        extra = stats(ended) if stats else {}
        if len(ended_rows):
            terminated = step.terminated.cpu().numpy()[ended_rows]
            results = {"length": length[ended_rows], "returns": returns[ended_rows], "terminated": terminated, **extra}
            counted = finished[ended_rows] < quota[ended_rows]
            index = (first_index[ended_rows] + finished[ended_rows])[counted]
            for name, values in results.items():
                if name not in columns:
                    columns[name] = np.zeros((episodes, *values.shape[1:]), values.dtype)
                columns[name][index] = values[counted]
            finished[ended_rows] += 1
            length[ended_rows] = returns[ended_rows] = 0
        obs, mask, episode_start = step.obs, step.mask, step.episode_starts
    return columns
