"""A trained agent compared with baselines in the same episodes, as `townlet eval` reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.interfaces.vec_env import Discrete
from townlet.rng import Streams
from townlet.tasks import town_evaluation
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult, RandomPolicy
from townlet.tasks.town_evaluation import TownEvaluation, evaluate_town
from townlet.town.usage_counts import workplaces
from townlet.town.world.tables import World

QUARTILES: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
QUARTILE_LABELS: Final = ("min", "25 %", "median", "75 %", "max")
RARE: Final = 0.05  # uses per episode that are left out of the table
AS_GOOD: Final = 0.9  # of the length on the training map
NOT_BETTER: Final = 1.25  # times the length of a random agent


class ResultTable(NamedTuple):
    """A table for people; the first column names its rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def quartiles(values: NDArray[Any]) -> dict[str, float]:
    """Extremes, quartiles and median."""
    return dict(zip(QUARTILES, np.quantile(values, list(QUARTILES.values())).tolist(), strict=True))


def format_return(value: float) -> str:
    """A return with three significant digits or so."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class TownComparison:
    """The same towns played by three policies; `home` is the agent on its training map, if this is another one."""

    title: str
    trained: TownEvaluation
    random: TownEvaluation
    planner: TownEvaluation
    home: TownEvaluation | None = None

    def by_name(self) -> dict[str, TownEvaluation]:
        home = {"trained, original map": self.home} if self.home else {}
        return {"trained": self.trained, **home, "random": self.random, "planner": self.planner}

    def sentences(self) -> list[str]:
        """What the agent can do and what it cannot, in sentences."""
        trained, limit = self.trained, self.trained.world.spec.max_steps
        share = town_evaluation.share_text(trained.survived)
        sentences = [
            f"This agent survives {trained.mean_length:.0f} of {limit} steps; {share} of its "
            f"{len(trained.length)} episodes reach the limit.",
            f"A random agent survives {self.random.mean_length:.0f} steps, "
            f"the planner, which knows every rule, {self.planner.mean_length:.0f}.",
        ]
        if trained.survived < town_evaluation.NEARLY_ALL:
            sentences.append(f"Causes of death: {town_evaluation.death_causes(trained)}.")
        sentences += town_evaluation.money_summary(trained)
        return sentences + ([self._map_sentence(self.home)] if self.home else [])

    def tables(self) -> list[ResultTable]:
        """Lengths of episodes, and uses of affordances."""
        paid = self.trained.works is not None
        rows = []
        for name, result in self.metrics().items():
            lengths = [f"{result[key]:.0f}" for key in ("mean", *QUARTILES)]
            work = (f"{result['works']:.0%}", f"{result['work_per_episode']:.1f}") if paid else ()
            rows.append((name, *lengths, f"{result['survived']:.0%}", *work))
        work = ("earn money", "work/episode") if paid else ()
        headings = ("episode length", "mean", *QUARTILE_LABELS, "reach the limit", *work)
        lengths_table = ResultTable(self.title, headings, rows)
        uses = {name: uses_per_episode(result) for name, result in self.by_name().items()}
        uses_rows = [
            (place, *(f"{counts[place]:.1f}" for counts in uses.values()))
            for place in sorted(uses["trained"], key=lambda place: -uses["trained"][place])
            if any(counts[place] >= RARE for counts in uses.values())
        ]
        return [lengths_table, ResultTable("uses per episode", ("affordance", *uses), uses_rows)]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """All results by policy, for programs."""
        return {name: town_metrics(result) for name, result in self.by_name().items()}

    def _map_sentence(self, home: TownEvaluation) -> str:
        """Whether the agent generalizes to other layouts or has memorized its map."""
        start = f"On its training map it survives {home.mean_length:.0f} steps"
        if home.mean_length <= NOT_BETTER * self.random.mean_length:
            return f"{start}, hardly more than a random agent: it has learned very little."
        if self.trained.mean_length >= AS_GOOD * home.mean_length:
            return f"{start}, on other maps {self.trained.mean_length:.0f}: it generalizes to other layouts."
        if self.trained.mean_length <= NOT_BETTER * self.random.mean_length:
            return f"{start}, on other maps hardly more than a random agent: it has only memorized its map."
        return f"{start}, on other maps {self.trained.mean_length:.0f}: it generalizes only in part."


def compare_town(
    make_policy: Callable[[], ActingPolicy],
    world: World,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    home: World | None = None,
) -> TownComparison:
    """Evaluate a policy, a random one and the planner; with `home` the policy also there."""
    random = RandomPolicy(Discrete(world.actions), Streams(seed).torch("random"))
    return TownComparison(
        f"{world.name}: {episodes} episodes each, seed {seed}",
        evaluate_town(make_policy(), world, episodes, seed, greedy=greedy),
        evaluate_town(random, world, episodes, seed),
        evaluate_town(town_evaluation.PlannerPolicy(world), world, episodes, seed),
        evaluate_town(make_policy(), home, episodes, seed, greedy=greedy) if home else None,
    )


def town_metrics(result: TownEvaluation) -> dict[str, Any]:
    """All results of one policy, for programs."""
    work = workplaces(result.world)
    return {
        "episodes": len(result.length),
        "limit": result.world.spec.max_steps,
        "mean": result.mean_length,
        **quartiles(result.length),
        "survived": result.survived,
        "causes": dict(Counter(result.causes).most_common()),
        "works": result.works,
        "work_per_episode": float(result.uses[:, work].sum(1).mean()),
        "earned_per_episode": float(result.earned.mean()),
        "uses_per_episode": uses_per_episode(result),
        "return": float(result.reward.mean()),
    }


def uses_per_episode(result: TownEvaluation) -> dict[str, float]:
    """Mean number of steps per episode in which each affordance is used."""
    return dict(zip(result.world.affordances, result.uses.mean(0).tolist(), strict=True))


@dataclass(frozen=True)
class GymSummary:
    """Returns of a random agent and of the trained one; `threshold` is where the environment counts as solved."""

    random: EvaluationResult
    agent: EvaluationResult
    threshold: float | None
    best: BestCheckpoint | None = None
    greedy: bool = True

    @property
    def solved(self) -> bool | None:
        """Whether the threshold is reached; None if there is none."""
        return None if self.threshold is None else self.agent.score("return") >= self.threshold

    def sentences(self) -> list[str]:
        """What the agent learned and what it did not, in sentences."""
        agent, random = self.agent, self.random
        drawn = "" if self.greedy else ", with sampled actions"
        worst, most = np.min(agent.reward), np.max(agent.reward)
        sentences = [
            f"A random agent gets a return of {format_return(random.reward.mean())} in {random.mean_length:.0f} steps.",
            f"This agent gets {format_return(agent.reward.mean())} in {agent.mean_length:.0f} steps, "
            f"from {format_return(worst)} to {format_return(most)} over {len(agent.reward)} episodes{drawn}.",
        ]
        if self.threshold is not None:
            solves = "solves" if self.solved else "does not solve"
            sentences.append(f"That {solves} the environment: the threshold is {format_return(self.threshold)}.")
        return [*sentences, self.best.sentence()] if self.best else sentences


@dataclass(frozen=True, kw_only=True)
class GymComparison(GymSummary):
    """The same episodes played by two policies."""

    title: str

    def by_name(self) -> dict[str, EvaluationResult]:
        return {"trained": self.agent, "random": self.random}

    def tables(self) -> list[ResultTable]:
        """Returns and lengths of episodes."""
        rows = []
        for name, result in self.by_name().items():
            metrics = gym_metrics(result)
            returns = [format_return(metrics[key]) for key in ("mean", *QUARTILES)]
            rows.append((name, *returns, f"{metrics['length']:.0f}", f"{metrics['to_the_limit']:.0%}"))
        return [ResultTable(self.title, ("return", "mean", *QUARTILE_LABELS, "steps", "reach the limit"), rows)]

    def metrics(self) -> dict[str, Any]:
        """All results by policy, and whether the environment is solved."""
        results = {name: gym_metrics(result) for name, result in self.by_name().items()}
        return {"threshold": self.threshold, "solved": self.solved, **results}


def gym_metrics(result: EvaluationResult) -> dict[str, Any]:
    """All results of one policy, those of the return first."""
    return {
        "episodes": len(result.reward),
        "limit": result.limit,
        "mean": result.score("return"),
        **quartiles(result.reward),
        "length": result.mean_length,
        "length_min": int(result.length.min()),
        "length_max": int(result.length.max()),
        "to_the_limit": result.survived,
        "causes": dict(Counter(result.causes).most_common()),
    }


Comparison = TownComparison | GymComparison
