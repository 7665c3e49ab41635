"""The end of a training in plain sentences: whether the environment is solved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from townlet.tasks.evaluation import Evaluated
from townlet.tasks.task import Best


@dataclass(frozen=True)
class GymSummary:
    """What is won: at random, and by the agent; `threshold` is where the environment counts as solved."""

    random: Evaluated
    agent: Evaluated
    threshold: float | None
    best: Best | None = None
    greedy: bool = True

    @property
    def solved(self) -> bool | None:
        """Whether the threshold is reached; None where there is none."""
        return None if self.threshold is None else self.agent.score("return") >= self.threshold

    def sentences(self) -> list[str]:
        """What a person should know, the best and the worst of it."""
        agent, random = self.agent, self.random
        drawn = "" if self.greedy else ", its actions drawn by chance"
        worst, most = np.min(agent.reward), np.max(agent.reward)
        told = [
            f"A random agent gets {figure(random.reward.mean())} in an episode of {random.mean:.0f} steps.",
            f"This one gets {figure(agent.reward.mean())} in {agent.mean:.0f} steps, from {figure(worst)} to "
            f"{figure(most)} in {len(agent.reward)} episodes{drawn}.",
        ]
        if self.threshold is not None:
            asked = f"from {figure(self.threshold)} on it counts as solved"
            told.append(f"That is solved: {asked}." if self.solved else f"That is not solved: {asked}.")
        if self.best:
            told.append(
                f"This is the last checkpoint. `eval` and `play` take the best one ({self.best.metric} "
                f"{self.best.score:.1f} at {self.best.env_steps:,} env_steps), and this one with --which last."
            )
        return told


def figure(value: float) -> str:
    """A return in as many digits as it is worth."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
