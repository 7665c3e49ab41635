"""A trained agent beside a random one and one that plans, in the same towns: what `townlet eval` tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from townlet.rng import Streams
from townlet.tasks.eval_tables import IN_WORDS, QUARTILES, Sheet, quartiles, require_chances
from townlet.tasks.evaluation import Uniform
from townlet.tasks.experiment import LoadedExperiment
from townlet.tasks.town_evaluation import Planning, TownEvaluated, evaluate
from townlet.tasks.town_summary import MOST, about_money, deaths, in_share
from townlet.tasks.town_worlds import changed
from townlet.town.usage_counts import workplaces
from townlet.town.world.load import load
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy, require_interface

LAYOUTS: Final = {
    "fixed": ("map.layout=fixed",),
    "shuffled": ("map.layout=shuffled", "map.allow_hidden_layout=true"),
}
SELDOM: Final = 0.05  # uses per life that are left out of the table
ALIKE: Final = 0.9  # of the life at home: as good as at home
LITTLE: Final = 1.25  # times a random life: hardly better than that


@dataclass(frozen=True)
class TownMeasured:
    """The same towns lived by three; `home` is the agent on the map it knows, where this is another one."""

    title: str
    trained: TownEvaluated
    random: TownEvaluated
    planner: TownEvaluated
    home: TownEvaluated | None = None

    def by_name(self) -> dict[str, TownEvaluated]:
        """Who was measured."""
        home = {"at home": self.home} if self.home else {}
        return {"trained": self.trained, **home, "random": self.random, "planner": self.planner}

    def sentences(self) -> list[str]:
        """What a person should know, the best and the worst of it."""
        trained, limit = self.trained, self.trained.world.spec.max_steps
        told = [
            f"This agent lives {trained.mean:.0f} of {limit} steps; {in_share(trained.survived)} of its "
            f"{len(trained.length)} lives reach the limit.",
            f"A random agent lives {self.random.mean:.0f}, one that knows every rule {self.planner.mean:.0f}.",
        ]
        if trained.survived < MOST:
            told.append(f"What ends its lives: {deaths(trained)}.")
        told += about_money(trained)
        return told + ([self._about_the_map(self.home)] if self.home else [])

    def sheets(self) -> list[Sheet]:
        """How long lives are, and what is used in them."""
        return [self._lengths(), self._uses()]

    def _lengths(self) -> Sheet:
        rows = []
        for name, told in self.figures().items():
            lived = [f"{told[key]:.0f}" for key in ("mean", *QUARTILES)]
            shares = ["–" if told[key] is None else f"{told[key]:.0%}" for key in ("survived", "works")]
            rows.append((name, *lived, *shares, f"{told['work_per_life']:.1f}"))
        return Sheet(self.title, ("steps lived", "mean", *IN_WORDS, "to the limit", "work", "work/life"), rows)

    def _uses(self) -> Sheet:
        uses = {name: uses_per_life(lives) for name, lives in self.by_name().items()}
        rows = [
            (place, *(f"{counts[place]:.1f}" for counts in uses.values()))
            for place in sorted(uses["trained"], key=lambda place: -uses["trained"][place])
            if any(counts[place] >= SELDOM for counts in uses.values())
        ]
        return Sheet("uses per life", ("place", *uses), rows)

    def figures(self) -> dict[str, dict[str, Any]]:
        """All figures by who lived, for programs."""
        return {name: figures(lives) for name, lives in self.by_name().items()}

    def _about_the_map(self, home: TownEvaluated) -> str:
        """The town, or only its map?"""
        begin = f"On the map it was trained on it lives {home.mean:.0f}"
        if home.mean <= LITTLE * self.random.mean:
            return f"{begin}, hardly longer than at random: it has learned neither the town nor its map."
        if self.trained.mean >= ALIKE * home.mean:
            return f"{begin}, with the places moved {self.trained.mean:.0f}: it learned the town, not only its map."
        if self.trained.mean <= LITTLE * self.random.mean:
            return f"{begin}, with the places moved hardly longer than at random: it learned only its map."
        return f"{begin}, with the places moved {self.trained.mean:.0f}: some of what it learned is its map."


def world_for(
    loaded: LoadedExperiment, words: Sequence[str], name: str | None = None, layout: str | None = None
) -> World:
    """Where to measure: the world of the run's own evaluations, or the one of that name, with changes."""
    words = [*words, *LAYOUTS[layout]] if layout else list(words)
    if name is not None:
        return load(name, words)
    return changed(loaded.worlds.evaluation, words)


def measure(
    trained: TrainedPolicy, world: World, episodes: int, seed: int, *, greedy: bool = True, home: World | None = None
) -> TownMeasured:
    """So many lives of each; `home` is measured as well where it is given."""
    require_interface(trained, world)
    require_chances(trained, greedy)
    random = Uniform(trained.loaded.task.actions, Streams(seed).torch("random"))
    return TownMeasured(
        f"{world.name}: {episodes} lives of each, seed {seed}",
        evaluate(trained.policy(), world, episodes, seed, greedy=greedy),
        evaluate(random, world, episodes, seed),
        evaluate(Planning(world), world, episodes, seed),
        evaluate(trained.policy(), home, episodes, seed, greedy=greedy) if home else None,
    )


def figures(found: TownEvaluated) -> dict[str, Any]:
    """All figures of whole lives, for programs."""
    work = workplaces(found.world)
    return {
        "episodes": len(found.length),
        "limit": found.world.spec.max_steps,
        "mean": found.mean,
        **quartiles(found.length),
        "survived": found.survived,
        "causes": dict(Counter(found.causes).most_common()),
        "works": found.works,
        "work_per_life": float(found.uses[:, work].sum(1).mean()),
        "earned_per_life": float(found.earned.mean()),
        "uses_per_life": uses_per_life(found),
        "return": float(found.reward.mean()),
    }


def uses_per_life(found: TownEvaluated) -> dict[str, float]:
    """Steps in which each affordance is used in a life, on average."""
    return dict(zip(found.world.affordances, found.uses.mean(0).tolist(), strict=True))
