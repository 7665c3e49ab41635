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
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult, RandomPolicy, summarized_agent
from townlet.tasks.town_evaluation import TownEvaluation, evaluate_town
from townlet.town.usage_counts import workplaces
from townlet.town.world.tables import World

FIVE_NUMBERS: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
FIVE_NUMBER_LABELS: Final = ("min", "25 %", "median", "75 %", "max")
MIN_USES: Final = 0.05  # affordances that every policy uses less often per episode are left out of the table
GENERALIZATION_RATIO: Final = 0.9  # at least this fraction of the mean length on the training map is needed
HARDLY_BETTER: Final = 1.25  # up to this multiple of a random agent's mean length


class ResultTable(NamedTuple):
    """A table of formatted values; the first column names its rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def five_number_summary(values: NDArray[Any]) -> dict[str, float]:
    """Minimum, quartiles and maximum, by the names of `FIVE_NUMBERS`."""
    return dict(zip(FIVE_NUMBERS, np.quantile(values, list(FIVE_NUMBERS.values())).tolist(), strict=True))


def format_return(value: float) -> str:
    """A return with two decimals below 10, one below 100, else none."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class TownComparison:
    """The same episodes of a world played by three policies.

    `on_training_map` is the trained agent on its own map, if the others were evaluated on other maps.
    """

    title: str
    trained: TownEvaluation
    random: TownEvaluation
    planner: TownEvaluation
    on_training_map: TownEvaluation | None = None

    def by_name(self) -> dict[str, TownEvaluation]:
        original = {"trained, original map": self.on_training_map} if self.on_training_map else {}
        return {"trained": self.trained, **original, "random": self.random, "planner": self.planner}

    def sentences(self) -> list[str]:
        """The result in sentences."""
        trained, limit = self.trained, self.trained.world.spec.max_steps
        share = town_evaluation.share_text(trained.survived)
        sentences = [
            f"This agent survives {trained.mean_length:.0f} of {limit} steps on average; {share} of its "
            f"{len(trained.length)} episodes reach the limit.",
            f"A random agent survives {self.random.mean_length:.0f} steps, "
            f"the planner, which knows every rule, {self.planner.mean_length:.0f}.",
        ]
        if trained.survived < town_evaluation.NEARLY_ALL:
            sentences.append(f"Causes of death: {town_evaluation.death_causes(trained)}.")
        sentences += town_evaluation.money_summary(trained)
        if self.on_training_map:
            sentences.append(self._map_sentence(self.on_training_map))
        return sentences

    def tables(self) -> list[ResultTable]:
        """Two tables: episode lengths, and uses of affordances."""
        has_jobs = self.trained.earns_money is not None
        rows = []
        for name, result in self.metrics().items():
            lengths = [f"{result[key]:.0f}" for key in ("mean", *FIVE_NUMBERS)]
            work_cells = (f"{result['earns_money']:.0%}", f"{result['work_per_episode']:.1f}") if has_jobs else ()
            rows.append((name, *lengths, f"{result['survived']:.0%}", *work_cells))
        work_headings = ("earn money", "work/episode") if has_jobs else ()
        headings = ("episode length", "mean", *FIVE_NUMBER_LABELS, "reach the limit", *work_headings)
        lengths_table = ResultTable(self.title, headings, rows)
        uses = {name: uses_per_episode(result) for name, result in self.by_name().items()}
        uses_rows = [
            (affordance, *(f"{counts[affordance]:.1f}" for counts in uses.values()))
            for affordance in sorted(uses["trained"], key=uses["trained"].__getitem__, reverse=True)
            if any(counts[affordance] >= MIN_USES for counts in uses.values())
        ]
        return [lengths_table, ResultTable("uses per episode", ("affordance", *uses), uses_rows)]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """All results by policy, as JSON values."""
        return {name: town_metrics(result) for name, result in self.by_name().items()}

    def _map_sentence(self, on_training_map: TownEvaluation) -> str:
        """Whether the agent generalizes to other layouts or has memorized its map."""
        start = f"On its training map it survives {on_training_map.mean_length:.0f} steps"
        if on_training_map.mean_length <= HARDLY_BETTER * self.random.mean_length:
            return f"{start}, hardly more than a random agent: it has learned very little."
        if self.trained.mean_length >= GENERALIZATION_RATIO * on_training_map.mean_length:
            return f"{start}, on other maps {self.trained.mean_length:.0f}: it generalizes to other layouts."
        if self.trained.mean_length <= HARDLY_BETTER * self.random.mean_length:
            return f"{start}, on other maps hardly more than a random agent: it has only memorized its map."
        return f"{start}, on other maps {self.trained.mean_length:.0f}: it generalizes only in part."


def compare_town(
    make_policy: Callable[[], ActingPolicy],
    world: World,
    episodes: int,
    seed: int,
    *,
    greedy: bool = True,
    training_map: World | None = None,
) -> TownComparison:
    """Evaluate a policy, a random one and the planner; with `training_map`, evaluate the policy on that one too."""
    random = RandomPolicy(Discrete(world.actions), Streams(seed).torch("random"))
    return TownComparison(
        f"{world.name}: {episodes} episodes each, seed {seed}",
        evaluate_town(make_policy(), world, episodes, seed, greedy=greedy),
        evaluate_town(random, world, episodes, seed),
        evaluate_town(town_evaluation.PlannerPolicy(world), world, episodes, seed),
        evaluate_town(make_policy(), training_map, episodes, seed, greedy=greedy) if training_map else None,
    )


def town_metrics(result: TownEvaluation) -> dict[str, Any]:
    """All results of one policy, as JSON values; `mean` and the five numbers are those of the episode length."""
    work = workplaces(result.world)
    return {
        "episodes": len(result.length),
        "limit": result.world.spec.max_steps,
        "mean": result.mean_length,
        **five_number_summary(result.length),
        "survived": result.survived,
        "causes": dict(Counter(result.causes).most_common()),
        "earns_money": result.earns_money,
        "work_per_episode": float(result.uses[:, work].sum(1).mean()),
        "earned_per_episode": float(result.earned.mean()),
        "uses_per_episode": uses_per_episode(result),
        "return": result.score("return"),
    }


def uses_per_episode(result: TownEvaluation) -> dict[str, float]:
    """Mean number of steps per episode in which each affordance is used."""
    return dict(zip(result.world.affordances, result.uses.mean(0).tolist(), strict=True))


@dataclass(frozen=True)
class GymSummary:
    """Returns of a random agent and of the trained one, and the mean returns that count as success.

    `threshold` is Gymnasium's, at which the environment is solved; `goal` is that of the recipe.
    """

    random: EvaluationResult
    trained: EvaluationResult
    threshold: float | None
    goal: float | None
    best: BestCheckpoint | None = None
    greedy: bool = True

    @property
    def subject(self) -> str:
        """The agent, and at which checkpoint."""
        return summarized_agent(self.best)

    @property
    def solved(self) -> bool | None:
        """Whether Gymnasium's threshold is reached; None if there is none."""
        return None if self.threshold is None else self.trained.score("return") >= self.threshold

    @property
    def reached_goal(self) -> bool | None:
        """Whether the goal of the recipe is reached; None if there is none."""
        return None if self.goal is None else self.trained.score("return") >= self.goal

    def sentences(self) -> list[str]:
        """The result in sentences."""
        trained, random = self.trained, self.random
        sampling = "" if self.greedy else ", with sampled actions"
        lowest, highest = format_return(trained.returns.min()), format_return(trained.returns.max())
        sentences = [
            f"A random agent gets a mean return of {format_return(random.score('return'))} "
            f"in {random.mean_length:.0f} steps on average.",
            f"{self.subject} gets a mean return of {format_return(trained.score('return'))} ({lowest} to {highest}) "
            f"in {trained.mean_length:.0f} steps on average, over {len(trained.returns)} episodes{sampling}.",
        ]
        if self.threshold is not None:
            solves = "solves" if self.solved else "does not solve"
            mark = f"Gymnasium's threshold is {format_return(self.threshold)}"
            sentences.append(f"That {solves} the environment: {mark}.")
        if self.goal is not None and self.goal != self.threshold:
            reaches = "reaches" if self.reached_goal else "does not reach"
            sentences.append(f"That {reaches} the goal of this recipe: {format_return(self.goal)}.")
        return [*sentences, self.best.note()] if self.best else sentences


@dataclass(frozen=True, kw_only=True)
class GymComparison(GymSummary):
    """The same episodes played by two policies."""

    title: str

    @property
    def subject(self) -> str:
        return "This agent"

    def by_name(self) -> dict[str, EvaluationResult]:
        return {"trained": self.trained, "random": self.random}

    def tables(self) -> list[ResultTable]:
        """One table: returns and lengths of episodes."""
        rows = []
        for name, result in self.by_name().items():
            metrics = gym_metrics(result)
            returns = [format_return(metrics[key]) for key in ("mean", *FIVE_NUMBERS)]
            rows.append((name, *returns, f"{metrics['length']:.0f}", f"{metrics['survived']:.0%}"))
        return [ResultTable(self.title, ("return", "mean", *FIVE_NUMBER_LABELS, "steps", "reach the limit"), rows)]

    def metrics(self) -> dict[str, Any]:
        """All results by policy, and whether the environment is solved and the goal of the recipe reached."""
        results = {name: gym_metrics(result) for name, result in self.by_name().items()}
        solved = {"threshold": self.threshold, "solved": self.solved}
        return {**solved, "goal": self.goal, "reached_goal": self.reached_goal, **results}


def gym_metrics(result: EvaluationResult) -> dict[str, Any]:
    """All results of one policy, as JSON values; `mean` and the five numbers are those of the return."""
    return {
        "episodes": len(result.returns),
        "limit": result.limit,
        "mean": result.score("return"),
        **five_number_summary(result.returns),
        "length": result.mean_length,
        "length_min": int(result.length.min()),
        "length_max": int(result.length.max()),
        "survived": result.survived,
        "causes": dict(Counter(result.causes).most_common()),
    }


Comparison = TownComparison | GymComparison
