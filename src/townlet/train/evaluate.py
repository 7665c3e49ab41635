"""How well a policy lives: on towns of its own, one whole life for each row, none counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import unasked
from townlet.rng import Streams
from townlet.sim.diary import Lives, workplaces
from townlet.sim.players import PlannerPlayer
from townlet.sim.town import Town
from townlet.world.tables import World

SIDE_BY_SIDE: Final = 512  # lives at once


class Acting(Protocol):
    """What is measured: see `townlet.agents.policy.Policy`."""

    def start(self, rows: int) -> None:
        """Forget the past."""

    def act(self, obs: Tensor, mask: Tensor | None, fresh: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N]."""


class Uniform:
    """Any valid action: the yardstick."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def start(self, rows: int) -> None:
        """There is no past."""

    def act(self, obs: Tensor, mask: Tensor | None, fresh: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N] int64, each valid one as likely as another."""
        assert mask is not None
        marks = torch.rand(mask.shape, generator=self._generator, device=mask.device)
        return marks.masked_fill(mask.logical_not(), -1.0).argmax(1)


class Planning:
    """One that knows every rule and looks at the town itself: the other yardstick."""

    def __init__(self, world: World) -> None:
        self._player = PlannerPlayer(world)
        self._town: Town | None = None

    def sit(self, town: Town) -> None:
        """Look at this town from now on."""
        self._town = town

    def start(self, rows: int) -> None:
        """There is no past."""

    def act(self, obs: Tensor, mask: Tensor | None, fresh: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N] int64, each the first of the best plan."""
        assert self._town is not None
        return torch.from_numpy(self._player.act(self._town.engine))


@dataclass(frozen=True)
class Evaluated:
    """Whole lives, one entry each [n]."""

    world: World
    length: NDArray[np.int64]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    causes: tuple[str, ...]
    uses: NDArray[np.int64]  # [n, A]
    earned: NDArray[np.float64]
    meters: NDArray[np.float64]  # [n, M] at the end

    @property
    def mean(self) -> float:
        """Steps lived."""
        return float(self.length.mean())

    @property
    def survived(self) -> float:
        """The share of lives that reached the limit."""
        return float(1 - self.terminated.mean())

    @property
    def works(self) -> float | None:
        """The share of lives that worked for money; None where no place pays."""
        work = workplaces(self.world)
        return float((self.uses[:, work].sum(1) > 0).mean()) if work.any() else None

    def score(self, metric: str) -> float:
        """What decides which of two evaluations is better."""
        return self.mean if metric == "length" else float(self.reward.mean())

    def columns(self, policy: str, metric: str) -> dict[str, Any]:
        """The evaluation as a row of the metrics store, less its moment."""
        return {
            "policy": policy,
            "episodes": len(self.length),
            "limit": self.world.spec.max_steps,
            "length": self.mean,
            "length_min": int(self.length.min()),
            "length_max": int(self.length.max()),
            "return": float(self.reward.mean()),
            "survived": self.survived,
            "works": self.works,
            "score": self.score(metric),
            "causes": dict(Counter(self.causes).most_common()),
            "meters": dict(zip(self.world.meters, self.meters.mean(0).round(4).tolist(), strict=True)),
        }


def evaluate(
    policy: Acting,
    world: World,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    device: str = "cpu",
    ask: Callable[[], None] = unasked,
) -> Evaluated:
    """So many whole lives in towns that only the seed decides; `ask` is called before every step and may raise."""
    lives: list[dict[str, Any]] = []
    streams, done = Streams(seed), 0
    while done < episodes:
        rows = min(SIDE_BY_SIDE, episodes - done)
        town = Town(world, rows, device=device, threads=1)
        if isinstance(policy, Planning):
            policy.sit(town)
        lives.append(_live(policy, town, streams.child(str(done)).key("env"), greedy, ask))
        town.close()
        done += rows
    whole = {name: np.concatenate([part[name] for part in lives]) for name in lives[0]}
    return Evaluated(world, causes=tuple(town.cause_names[code] for code in whole.pop("code")), **whole)


def _live(policy: Acting, town: Town, seed: int, greedy: bool, ask: Callable[[], None]) -> dict[str, Any]:
    """The first life of every row."""
    rows = town.rows
    seen, sums = town.reset(seed), Lives(town)
    policy.start(rows)
    alive = np.ones(rows, np.bool_)
    out: dict[str, NDArray[Any]] = {
        "length": np.zeros(rows, np.int64),
        "reward": np.zeros(rows),
        "terminated": np.zeros(rows, np.bool_),
        "code": np.zeros(rows, np.int64),
        "uses": np.zeros((rows, len(town.world.affordances)), np.int64),
        "earned": np.zeros(rows),
        "meters": np.zeros((rows, len(town.world.meters))),
    }
    obs, mask, fresh = seen.obs, seen.mask, None
    while alive.any():
        ask()
        step = town.step(policy.act(obs, mask, fresh, greedy))
        out["length"][alive] += 1
        out["reward"][alive] += step.reward.cpu().numpy()[alive]
        lived, ended = sums.note(), town.ended()
        first = np.flatnonzero(alive[lived.rows])  # of those that ended, the ones in their first life
        over = lived.rows[first]
        if len(over):
            out["terminated"][over] = step.terminated.cpu().numpy()[over]
            out["code"][over] = town.causes(ended).numpy()[first]
            out["uses"][over], out["earned"][over] = lived.uses[first], lived.earned[first]
            out["meters"][over] = town.final_meters(ended).numpy()[first]
            alive[over] = False
        obs, mask, fresh = step.obs, step.mask, step.terminated | step.truncated
    return out
