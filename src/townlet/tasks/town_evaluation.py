"""How well a policy lives: in towns that only the seed decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.vec_env import FinalObs, Step
from townlet.rng import Streams
from townlet.tasks.evaluation import Acting, Evaluated, play
from townlet.town.env import Town
from townlet.town.planner import PlannerPlayer
from townlet.town.usage_counts import LifetimeStats, workplaces
from townlet.town.world.tables import World

SIDE_BY_SIDE: Final = 512  # lives at once


class Planning:
    """One that knows every rule and looks at the town itself: the other yardstick."""

    def __init__(self, world: World) -> None:
        self._player = PlannerPlayer(world)
        self._town: Town | None = None

    def sit(self, town: Town) -> None:
        """Look at this town from now on."""
        self._town = town

    def reset(self, rows: int) -> None:
        """There is no past."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N] int64, each the first of the best plan."""
        assert self._town is not None
        return torch.from_numpy(self._player.act(self._town.engine))


@dataclass(frozen=True)
class TownEvaluated(Evaluated):
    """Whole lives, one entry each [n]."""

    world: World
    uses: NDArray[np.int64]  # [n, A]
    earned: NDArray[np.float64]
    meters: NDArray[np.float64]  # [n, M] at the end

    @property
    def works(self) -> float | None:
        """The share of lives that worked for money; None where no place pays."""
        work = workplaces(self.world)
        return float((self.uses[:, work].sum(1) > 0).mean()) if work.any() else None

    def columns(self, policy: str, metric: str) -> dict[str, Any]:
        """The evaluation as a row of the metrics store, less its moment."""
        meters = dict(zip(self.world.meters, self.meters.mean(0).round(4).tolist(), strict=True))
        return super().columns(policy, metric) | {"works": self.works, "meters": meters}


class Afar:
    """A policy on another device, for towns on the CPU."""

    def __init__(self, policy: Acting, device: str) -> None:
        self._policy, self._device = policy, device

    def reset(self, rows: int) -> None:
        """Forget the past."""
        self._policy.reset(rows)

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions of all rows."""
        allowed, begin = (None if given is None else given.to(self._device) for given in (mask, episode_start))
        return self._policy.act(obs.to(self._device), allowed, begin, greedy).cpu()


class LifeSums:
    """What is used and earned in a life, and how it ends."""

    def __init__(self, town: Town) -> None:
        self._town, self._lives = town, LifetimeStats(town)

    def note(self, step: Step, ended: FinalObs) -> dict[str, NDArray[Any]]:
        """Add the last step; columns of the lives that it ended."""
        lived = self._lives.update()
        if not len(lived.rows):
            return {}
        return {
            "code": self._town.causes(ended).numpy(),
            "uses": lived.uses,
            "earned": lived.earned,
            "meters": self._town.final_meters(ended).double().numpy(),
        }


def stream(seed: int) -> int:
    """What decides the towns of an evaluation."""
    return Streams(seed).child("0").key("env")


def evaluate(
    policy: Acting,
    world: World,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    device: str = "cpu",
    ask: Callable[[], None] = no_interrupt,
) -> TownEvaluated:
    """So many whole lives in towns that only the seed decides; `ask` is called before every step and may raise.

    `device` is that of the policy. The towns are few and on the CPU in any case: an engine for another device would
    take longer to compile than they live.
    """
    town = Town(world, min(SIDE_BY_SIDE, episodes), threads=1)
    if isinstance(policy, Planning):
        policy.sit(town)
    if device != "cpu":
        policy = Afar(policy, device)
    found = play(policy, town, episodes, stream(seed), greedy=greedy, watch=lambda: LifeSums(town), ask=ask)
    town.close()
    causes = tuple(town.cause_names[code] for code in found.pop("code"))
    return TownEvaluated(limit=world.spec.max_steps, causes=causes, world=world, **found)
