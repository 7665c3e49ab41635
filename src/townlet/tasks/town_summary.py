"""The end of a training in plain sentences: what was learned, and what was not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from townlet.recipes.schema import Recipe
from townlet.tasks.evaluation import Acting, Evaluated
from townlet.tasks.task import Best
from townlet.tasks.town_evaluation import TownEvaluated, evaluate
from townlet.town.world.load import from_spec
from townlet.town.world.tables import World

LIFTED: Final = 4  # times the limit of an episode: long enough for an inheritance to be spent
FEW: Final = 0.05
MOST: Final = 0.95
SPENT: Final = 0.05  # of a full purse: less buys hardly anything


@dataclass(frozen=True)
class TownSummary:
    """How long lives are: at random, of the agent, and of the agent when nothing stops it but death."""

    random: TownEvaluated
    agent: TownEvaluated
    lifted: TownEvaluated
    best: Best | None = None
    greedy: bool = True

    def sentences(self) -> list[str]:
        """What a person should know, the best and the worst of it."""
        agent, lifted, limit = self.agent, self.lifted, self.agent.world.spec.max_steps
        drawn = "" if self.greedy else ", its actions drawn by chance"
        told = [
            f"A random agent lives {self.random.mean:.0f} of {limit} steps.",
            f"This one lives {agent.mean:.0f}: "
            f"{in_share(agent.survived)} of {len(agent.length)} lives reach the limit{drawn}.",
        ]
        if agent.survived < MOST:
            told.append(f"What ends its lives: {deaths(agent)}.")
        more = lifted.world.spec.max_steps
        told.append(
            f"With the limit lifted to {more} it lives {lifted.mean:.0f}; {in_share(lifted.survived)} reach that."
        )
        if lifted.survived < MOST and deaths(lifted) != deaths(agent):
            told.append(f"What ends its lives then: {deaths(lifted)}.")
        told += about_money(lifted)
        if self.best:
            told.append(
                f"This is the last checkpoint. `eval` and `play` take the best one ({self.best.metric} "
                f"{self.best.score:.1f} at {self.best.env_steps:,} env_steps), and this one with --which last."
            )
        return told


def summarize(
    policy: Acting, recipe: Recipe, random: TownEvaluated, agent: TownEvaluated, best: Best | None
) -> TownSummary:
    """Measure once more, in the same way, with the limit lifted; and put it all together."""
    world, wanted = agent.world, recipe.evaluation
    longer, greedy = lift(world, LIFTED * world.spec.max_steps), wanted.deterministic
    lifted = evaluate(policy, longer, len(agent.length), wanted.seed, greedy=greedy, device=recipe.device)
    return TownSummary(random, agent, lifted, best, greedy)


def lift(world: World, max_steps: int) -> World:
    """The same world with longer episodes."""
    return from_spec(world.spec.model_copy(update={"max_steps": max_steps}), world.name)


def about_money(found: TownEvaluated) -> list[str]:
    """Heir or worker, in a sentence; none where no place pays."""
    world, works = found.world, found.works
    if works is None:
        return []
    if works >= MOST:
        return [f"It works for its money, in {in_share(works)} of these lives."]
    if works > FEW:
        return [
            f"It works for money in {in_share(works)} of these lives; in the others it lives on what it starts with."
        ]
    fate = "and that is enough here"
    if found.survived < 0.5:
        left = float(found.meters[found.terminated, world.tables.currency].mean())
        fate = "and dies when that is spent" if left < SPENT else "and dies of other things before that is spent"
    return [f"It has not learned to work: it lives on the money it starts with, {fate}."]


def in_share(part: float) -> str:
    """A share in words."""
    return "all" if part == 1 else "none" if part == 0 else f"{part:.0%}"


def deaths(found: Evaluated) -> str:
    """What ended lives before the limit, the most frequent first."""
    counts = Counter(cause for cause, dead in zip(found.causes, found.terminated, strict=True) if dead)
    return ", ".join(f"no {cause} ({count})" for cause, count in counts.most_common())
