"""Evaluation of a policy in towns, and the summary of a training run in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.interfaces.vec_env import FinalObs
from townlet.rng import Streams
from townlet.tasks.evaluation import (
    ActingPolicy,
    BestCheckpoint,
    EpisodeStats,
    EvaluationResult,
    run_episodes,
    summarized_agent,
)
from townlet.town.env import Town
from townlet.town.planner import PlannerPlayer
from townlet.town.usage_counts import LifetimeStats, workplaces
from townlet.town.world.load import from_spec
from townlet.town.world.tables import World

PARALLEL_TOWNS: Final = 512
LIMIT_FACTOR: Final = 4  # summaries also evaluate with `max_steps` times this: longer than the initial money lasts
HARDLY_ANY, NEARLY_ALL = 0.05, 0.95  # fractions of episodes
NEARLY_BROKE: Final = 0.05  # value of the currency meter below which it buys hardly anything


class PlannerPolicy:
    """The planner as a policy. It knows all rules and the town's full state: its score is close to optimal."""

    def __init__(self, world: World) -> None:
        self._player = PlannerPlayer(world)
        self._town: Town | None = None

    def attach(self, town: Town) -> None:
        """Set the town to plan in."""
        self._town = town

    def reset(self, rows: int) -> None:
        """Nothing to reset."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        """Actions [N] int64: the first action of each row's best plan; the arguments are ignored."""
        assert self._town is not None
        return torch.from_numpy(self._player.act(self._town.engine))


@dataclass(frozen=True)
class TownEvaluation(EvaluationResult):
    """Results of n complete episodes in towns; each array has one entry per episode."""

    world: World
    uses: NDArray[np.int64]  # [n, A] steps in which each affordance was used
    earned: NDArray[np.float64]  # money earned, in the unit of the currency meter
    meters: NDArray[np.float64]  # [n, M] at the end

    @property
    def earns_money(self) -> float | None:
        """Fraction of episodes in which the agent earned money; None if no affordance pays."""
        work = workplaces(self.world)
        return float((self.uses[:, work].sum(1) > 0).mean()) if work.any() else None

    def columns(self, policy: str, metric: str) -> dict[str, Any]:
        meters = dict(zip(self.world.meters, self.meters.mean(0).round(4).tolist(), strict=True))
        return super().columns(policy, metric) | {"earns_money": self.earns_money, "meters": meters}


def town_stats(town: Town) -> EpisodeStats:
    """A callback for `run_episodes`: uses of affordances, money earned, cause of the end and final meters."""
    lifetimes = LifetimeStats(town)

    def add_step(ended: FinalObs) -> dict[str, NDArray[Any]]:
        totals = lifetimes.update()
        if not len(totals.rows):
            return {}
        codes, meters = town.causes(ended).numpy(), town.final_meters(ended).double().numpy()
        return {"cause_code": codes, "uses": totals.uses, "earned": totals.earned, "meters": meters}

    return add_step


def town_seed(seed: int) -> int:
    """The seed of the towns of an evaluation."""
    return Streams(seed).child("0").key("env")


def evaluate_town(
    policy: ActingPolicy,
    world: World,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    device: str = "cpu",
    check_interrupt: Callable[[], None] = no_interrupt,
) -> TownEvaluation:
    """Play complete episodes in towns that depend only on the seed; see `run_episodes`.

    `device` is that of the policy. The towns are always on the CPU: compiling an engine for another device would take
    longer than the evaluation.
    """
    town = Town(world, min(PARALLEL_TOWNS, episodes), threads=1)
    if isinstance(policy, PlannerPolicy):
        policy.attach(town)
    columns = run_episodes(
        policy, town, episodes, town_seed(seed), greedy=greedy, device=device, make_stats=lambda: town_stats(town),
        check_interrupt=check_interrupt,
    )  # fmt: skip
    town.close()
    causes = tuple(town.cause_names[code] for code in columns.pop("cause_code"))
    return TownEvaluation(limit=world.spec.max_steps, causes=causes, world=world, **columns)


@dataclass(frozen=True)
class TownSummary:
    """Episodes of a random agent, of the trained agent, and of the trained agent with a raised step limit."""

    random: TownEvaluation
    trained: TownEvaluation
    with_raised_limit: TownEvaluation
    best: BestCheckpoint | None = None
    greedy: bool = True

    def sentences(self) -> list[str]:
        """The result in sentences."""
        trained, longer, limit = self.trained, self.with_raised_limit, self.trained.world.spec.max_steps
        sampling = "" if self.greedy else ", with sampled actions"
        sentences = [
            f"A random agent survives {self.random.mean_length:.0f} of {limit} steps.",
            f"{summarized_agent(self.best)} survives {trained.mean_length:.0f}: "
            f"{share_text(trained.survived)} of its {len(trained.length)} episodes reach the limit{sampling}.",
        ]
        if trained.survived < NEARLY_ALL:
            sentences.append(f"Causes of death: {death_causes(trained)}.")
        raised_limit = longer.world.spec.max_steps
        sentences.append(
            f"With the limit raised to {raised_limit} it survives {longer.mean_length:.0f} steps; "
            f"{share_text(longer.survived)} of its episodes reach that limit."
        )
        if longer.survived < NEARLY_ALL and death_causes(longer) != death_causes(trained):
            sentences.append(f"Causes of death with the raised limit: {death_causes(longer)}.")
        sentences += money_summary(longer)
        return [*sentences, self.best.note()] if self.best else sentences


def with_limit(world: World, max_steps: int) -> World:
    """The same world with another step limit, which need not be reachable."""
    return from_spec(world.spec.model_copy(update={"max_steps": max_steps}), world.name, with_survival=False)


def money_summary(result: TownEvaluation) -> list[str]:
    """One sentence on whether the agent works or lives on its initial money; [] if no affordance pays."""
    world, fraction = result.world, result.earns_money
    if fraction is None:
        return []
    if fraction >= NEARLY_ALL:
        return [f"It earns money in {share_text(fraction)} of these episodes."]
    if fraction > HARDLY_ANY:
        return [
            f"It earns money in {share_text(fraction)} of these episodes; in the others it lives on its initial money."
        ]
    consequence = ", which suffices here"
    if result.survived < 0.5:
        money_left = float(result.meters[result.terminated, world.tables.currency].mean())
        broke = money_left < NEARLY_BROKE
        consequence = " and dies when it is spent" if broke else " and dies of other causes before it is spent"
    return [f"It has not learned to work: it lives on its initial money{consequence}."]


def share_text(fraction: float) -> str:
    """A fraction in words: "all", "none" or a percentage."""
    if fraction == 1:
        return "all"
    return "none" if fraction == 0 else f"{fraction:.0%}"


def death_causes(result: EvaluationResult) -> str:
    """The meters that ran out, each with the number of deaths it caused, the most frequent first."""
    counts = Counter(cause for cause, dead in zip(result.causes, result.terminated, strict=True) if dead)
    return ", ".join(f"no {cause} ({count})" for cause, count in counts.most_common())
