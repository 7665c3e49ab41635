"""An experiment: a recipe together with the environment it trains in, checked against each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from townlet.agents.registry import entries, entry
from townlet.config.yaml import Node
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete
from townlet.recipes.catalogue import GENERIC_GYM
from townlet.recipes.load import LoadedRecipe, load_recipe
from townlet.recipes.schema import Recipe
from townlet.tasks.task import Task
from townlet.tasks.town import TownTask
from townlet.tasks.town_worlds import Worlds, load_worlds
from townlet.town.world.tables import World

ACTIONS: Final[dict[type[Actions], str]] = {Discrete: "discrete", Binary: "binary", Continuous: "continuous"}


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment(LoadedRecipe):
    """A valid recipe and its task."""

    task: Task

    @property
    def worlds(self) -> Worlds:
        """The worlds of a town; an error for any other environment."""
        if not isinstance(self.task, TownTask):
            raise TownletError(f"{self.recipe.env} is not a town", "this works for runs in towns only")
        return self.task.worlds


def load_experiment(asked: str, overrides: Sequence[str] = (), worlds: Worlds | None = None) -> LoadedExperiment:
    """Load a recipe and build its task; raises ConfigError with everything that is wrong.

    `worlds` replaces the worlds that the recipe names: a run has copies.
    """
    loaded = load_recipe(asked, overrides)
    diagnostics, recipe, node = list(loaded.diagnostics), loaded.recipe, loaded.node
    try:
        task = make_task(recipe, node, worlds)
    except ConfigError as error:
        raise ConfigError([*diagnostics, *error.diagnostics]) from None
    diagnostics += check_task(recipe, node, task, loaded.repaired)
    if diagnostics:
        raise ConfigError(diagnostics)
    recipe = with_threshold(recipe, task, node)
    return LoadedExperiment(loaded.name, loaded.overrides, recipe, node, loaded.notes, task=task)


def make_task(recipe: Recipe, node: Node, worlds: Worlds | None = None) -> Task:
    """The town or Gymnasium environment of a recipe; raises ConfigError."""
    if recipe.gym is None:
        return TownTask(worlds or load_worlds(recipe, node))
    from townlet.gym.make import without_autoreset_steps  # imports Gymnasium, which towns do without
    from townlet.tasks.gym import GymTask

    if recipe.env == GENERIC_GYM:
        fix = f"name one: townlet train ID:{recipe.variant or 'VARIANT'}, or `env: ID` in a recipe"
        raise ConfigError(
            [Diagnostic(f"{GENERIC_GYM} is no environment, these are settings for any", fix, node.location_of("env"))]
        )
    try:
        spec = without_autoreset_steps(recipe.env, recipe.gym) if recipe.network.is_recurrent else recipe.gym
        task = GymTask(recipe.env, spec, recipe.reward_threshold)
        task.look()
    except TownletError as error:
        raise ConfigError(
            [Diagnostic(m.what, m.fix, m.where or _gym_mark(m, node)) for m in error.diagnostics]
        ) from None
    return task


def _gym_mark(mistake: Diagnostic, node: Node) -> SourceLocation:
    """Position of the `gym` key that a mistake mentions; by default that of the environment's id."""
    gym, text = node.child("gym"), f"{mistake.what} {mistake.fix}"
    keys = gym.value if gym is not None and isinstance(gym.value, dict) else ()
    typed = (key for key in keys if node.location_of("gym", key).source.startswith("command line"))
    key = next((key for key in keys if key.removesuffix("s") in text), next(typed, None))
    return node.location_of("gym", key) if key else node.location_of("env")


def check_task(recipe: Recipe, node: Node, task: Task, repaired: Collection[str] = ()) -> list[Diagnostic]:
    """What in the recipe does not suit its environment; rules about `repaired` parts are skipped."""
    mistakes: list[Diagnostic] = []
    if not {"agent", "gym"} & {*repaired}:
        mistakes += _unsupported(recipe, node, task)
    if isinstance(task, TownTask) and not {"curriculum", "potential", "change"} & {*repaired}:
        mistakes += _missing_rewards(recipe, node, task.worlds.training)
    return mistakes


def _unsupported(recipe: Recipe, node: Node, task: Task) -> Iterator[Diagnostic]:
    """Actions and observations that the agent cannot learn with."""
    agent, where, layout = entry(recipe.agent.name), node.location_of("agent", "name"), task.layout
    if not isinstance(task.actions, agent.actions):
        needed = " or ".join(ACTIONS[kind] for kind in agent.actions)
        what = f"{agent.name} needs {needed} actions, and those of this environment are {ACTIONS[type(task.actions)]}"
        others = [e.name for e in entries() if isinstance(task.actions, e.actions)]
        yield Diagnostic(what, f"take {' or '.join(others)}", where)
    elif agent.observations == "index" and [(b.kind, b.size) for b in layout] != [("index", 1)]:
        seen = ", ".join(layout.names)
        what = f"{agent.name} needs an observation that is the number of a state, and this one is {seen}"
        others = [e.name for e in entries() if e.observations == "any" and isinstance(task.actions, e.actions)]
        yield Diagnostic(what, f"take {' or '.join(others[:3])}, or an environment with discrete observations", where)


def _missing_rewards(recipe: Recipe, node: Node, world: World) -> Iterator[Diagnostic]:
    """Rewards that the curriculum's stages pay and the world does not have."""
    if recipe.curriculum is None:
        return
    paid = {name for stage in recipe.curriculum.stage_list for name, share in stage.reward_weights.items() if share}
    if lacking := sorted(paid - set(world.rewards)):
        what = f"the curriculum's stages pay {', '.join(lacking)}, and {world.name} has only {', '.join(world.rewards)}"
        guided = "potential: 1, or " if lacking == ["potential"] else ""
        fix = f"add {guided}change: {{rewards: [{', '.join((*world.rewards, *lacking))}]}}"
        yield Diagnostic(what, fix, node.location_of("curriculum"))


def with_threshold(recipe: Recipe, task: Task, node: Node) -> Recipe:
    """The recipe with the number that `true` stands for in its budget; raises ConfigError if there is none."""
    keys = [key for key in ("threshold", "train_threshold") if getattr(recipe.budget, key) is True]
    if not keys:
        return recipe
    what = ""
    if task.threshold is None:
        what = f"{recipe.env} has no threshold of its own"
    elif recipe.metric != "return":
        what = f"true stands for a return, and evaluation.metric is {recipe.metric}"
    if what:
        raise ConfigError(
            [Diagnostic(what, "write the number to reach", node.location_of("budget", key)) for key in keys]
        )
    budget = recipe.budget.model_copy(update=dict.fromkeys(keys, task.threshold))
    return recipe.model_copy(update={"budget": budget})
