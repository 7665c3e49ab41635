"""A trained agent beside a random one in the same episodes of a Gymnasium environment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from townlet.rng import Streams
from townlet.tasks.eval_tables import IN_WORDS, QUARTILES, Sheet, quartiles, require_chances
from townlet.tasks.evaluation import Evaluated, Uniform
from townlet.tasks.gym import GymTask
from townlet.tasks.gym_summary import GymSummary, figure
from townlet.train.policies import TrainedPolicy


@dataclass(frozen=True, kw_only=True)
class GymMeasured(GymSummary):
    """The same episodes played by two, with all figures."""

    title: str

    def by_name(self) -> dict[str, Evaluated]:
        """Who was measured."""
        return {"trained": self.agent, "random": self.random}

    def sheets(self) -> list[Sheet]:
        """Returns, and how long episodes are."""
        rows = []
        for name, found in self.by_name().items():
            told = _figures(found)
            won = [figure(told[key]) for key in ("mean", *QUARTILES)]
            rows.append((name, *won, f"{told['length']:.0f}", f"{told['to_the_limit']:.0%}"))
        return [Sheet(self.title, ("return", "mean", *IN_WORDS, "steps", "to the limit"), rows)]

    def figures(self) -> dict[str, Any]:
        """All figures, and whether it is solved."""
        told = {name: _figures(found) for name, found in self.by_name().items()}
        return {"threshold": self.threshold, "solved": self.solved, **told}


def measure(task: GymTask, trained: TrainedPolicy, episodes: int, seed: int, *, greedy: bool = True) -> GymMeasured:
    """So many episodes of each."""
    require_chances(trained, greedy)
    chance = Uniform(task.actions, Streams(seed).torch("random"))
    return GymMeasured(
        task.evaluate(chance, episodes, seed),
        task.evaluate(trained.policy(), episodes, seed, greedy=greedy),
        task.threshold,
        greedy=greedy,
        title=f"{task.name}: {episodes} episodes of each, seed {seed}",
    )


def _figures(found: Evaluated) -> dict[str, Any]:
    """Figures of whole episodes, those of the return first."""
    return {
        "episodes": len(found.reward),
        "limit": found.limit,
        "mean": found.score("return"),
        **quartiles(found.reward),
        "length": found.mean,
        "length_min": int(found.length.min()),
        "length_max": int(found.length.max()),
        "to_the_limit": found.survived,
        "causes": dict(Counter(found.causes).most_common()),
    }
