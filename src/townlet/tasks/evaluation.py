"""How well a policy does: whole episodes on environments of its own, as many from each row, none counted twice.

Whoever takes the first episodes that end counts short ones too often: so every row owes a fixed number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.vec_env import Actions, Continuous, Discrete, FinalObs, Step, VecEnv

TIME: Final = "time"


class Acting(Protocol):
    """What is measured: see `townlet.agents.policy.Policy`."""

    def reset(self, rows: int) -> None:
        """Forget the past."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions of all rows."""


class Uniform:
    """Any valid action: the yardstick."""

    def __init__(self, actions: Actions, generator: torch.Generator) -> None:
        self._actions, self._generator = actions, generator

    def reset(self, rows: int) -> None:
        """There is no past."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Each valid action as likely as another."""
        kind = self._actions
        if isinstance(kind, Discrete):
            assert mask is not None
            marks = torch.rand(mask.shape, generator=self._generator, device=mask.device)
            return marks.masked_fill(mask.logical_not(), -1.0).argmax(1)
        chance = torch.rand((len(obs), kind.n), generator=self._generator, device=obs.device)
        if isinstance(kind, Continuous):
            low, high = (torch.tensor(bound, device=obs.device) for bound in (kind.low, kind.high))
            return low + (high - low) * chance
        return (chance < 0.5).long()


class Sums(Protocol):
    """What is added up over an episode beside its length and reward."""

    def note(self, step: Step, ended: FinalObs) -> dict[str, NDArray[Any]]:
        """Add the last step; columns [k, …] of the k episodes that it ended."""


@dataclass(frozen=True)
class Evaluated:
    """Whole episodes, one entry each [n]."""

    limit: int | None  # steps after which an episode is cut short
    length: NDArray[np.int64]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    causes: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Steps lived."""
        return float(self.length.mean())

    @property
    def survived(self) -> float:
        """The share of episodes that reached the limit."""
        return float(1 - self.terminated.mean())

    def score(self, metric: str) -> float:
        """What decides which of two evaluations is better."""
        return self.mean if metric == "length" else float(self.reward.mean())

    def columns(self, policy: str, metric: str) -> dict[str, Any]:
        """The evaluation as a row of the metrics store, less its moment."""
        return {
            "policy": policy,
            "episodes": len(self.length),
            "limit": self.limit,
            "length": self.mean,
            "length_min": int(self.length.min()),
            "length_max": int(self.length.max()),
            "return": float(self.reward.mean()),
            "survived": self.survived,
            "works": None,
            "score": self.score(metric),
            "causes": dict(Counter(self.causes).most_common()),
            "meters": None,
        }


def play(
    policy: Acting,
    env: VecEnv,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    watch: Callable[[], Sums] | None = None,
    ask: Callable[[], None] = no_interrupt,
) -> dict[str, NDArray[Any]]:
    """So many whole episodes, row by row; `ask` is called before every step and may raise.

    Columns [episodes, …]: length, reward, terminated, and those of `watch`, which is called once all has begun.
    """
    rows = env.rows
    owed = np.full(rows, episodes // rows) + (np.arange(rows) < episodes % rows)
    first, done = np.cumsum(owed) - owed, np.zeros(rows, np.int64)
    seen = env.reset(seed)
    sums = watch() if watch else None
    policy.reset(rows)
    length, reward = np.zeros(rows, np.int64), np.zeros(rows)
    out: dict[str, NDArray[Any]] = {}
    obs, mask, fresh = seen.obs, seen.mask, None
    while (done < owed).any():
        ask()
        step = env.step(policy.act(obs, mask, fresh, greedy))
        length += 1 if step.autoreset_step is None else ~step.autoreset_step.cpu().numpy()
        reward += step.reward.cpu().numpy()
        ended = env.final_obs()
        over = ended.rows.cpu().numpy()
        more = sums.note(step, ended) if sums else {}
        if len(over):
            dead = step.terminated.cpu().numpy()[over]
            found = {"length": length[over], "reward": reward[over], "terminated": dead, **more}
            counted = done[over] < owed[over]
            place = (first[over] + done[over])[counted]
            for name, values in found.items():
                if name not in out:
                    out[name] = np.zeros((episodes, *values.shape[1:]), values.dtype)
                out[name][place] = values[counted]
            done[over] += 1
            length[over], reward[over] = 0, 0
        obs, mask, fresh = step.obs, step.mask, step.episode_starts
    return out
