"""ConfigError that only show when the parts of a recipe are seen together."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import Final

from pydantic import BaseModel

from townlet.agents.registry import entries, entry
from townlet.config.schedule import Schedule
from townlet.config.yaml import Node
from townlet.errors import Diagnostic
from townlet.recipes.schema import Recipe

TOWN: Final = ("world", "change", "potential", "starts", "curriculum", "engine")  # keys that say nothing elsewhere


def check(recipe: Recipe, node: Node, repaired: Collection[str] = ()) -> list[Diagnostic]:
    """Parts that contradict each other, each with its position; `townlet.tasks` checks what needs the environment.

    A rule that compares a `repaired` part is skipped, because that part's mistake is already reported.
    """
    rules: list[tuple[tuple[str, ...], Iterator[Diagnostic]]] = [
        (("agent", "network"), _recurrent(recipe, node)),
        (("agent", "explore"), _bonus(recipe, node)),
        (("agent",), _settings(recipe, node, None if "rows" in repaired else recipe.row_count)),
        (("budget", "evaluation", "metrics", "agent", "explore", "plateau"), _shares(recipe, node)),
        (("agent", "plateau"), _plateaus(recipe, node)),
        (("metrics",), _loggers(recipe, node)),
        (("agent", "evaluation"), _drawn(recipe, node)),
    ]
    if recipe.gym is not None:
        rules.append((TOWN, _of_towns(recipe, node)))
    return [mistake for parts, found in rules if not {*parts} & {*repaired} for mistake in found]


def unused(recipe: Recipe, node: Node) -> Iterator[str]:
    """Sentences on what was typed and changes nothing: no mistake, since words may be meant for several agents.

    And on what is missing where it is nearly always wanted.
    """
    yield from recipe.agent.hints(recipe.network)
    agent, explore = entry(recipe.agent.name), node.child("explore")
    name = agent.name
    parts = [] if agent.kind == "value" or explore is None else [("explore.choose", explore.child("choose"))]
    if not agent.uses_network:
        parts.append(("network", node.child("network")))
    for path, part in parts:
        keys = part.value if part is not None and isinstance(part.value, dict) else {}
        if any((below.key_location or below.location).source.startswith("command line") for below in keys.values()):
            yield f"{name} makes no use of {path}: what was said of it changes nothing."


def _recurrent(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    agent, recurrent = entry(recipe.agent.name), recipe.network.is_recurrent
    if agent.recurrent == "required" and not recurrent:
        what = f"{agent.name} needs a recurrent network, and {recipe.network.name} is not one"
        yield Diagnostic(
            what, "take network spatial_recurrent, or add network.recurrent", node.location_of("agent", "name")
        )
    if agent.recurrent == "no" and agent.uses_network and recurrent:
        instead = next((e.name for e in entries() if e.kind == agent.kind and e.recurrent != "no"), "")
        fix = f"take agent {instead}, or leave network.recurrent out"
        yield Diagnostic(
            f"{agent.name} cannot train a recurrent network", fix, node.location_of("network", "recurrent")
        )


def _bonus(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    """An intrinsic reward that the agent does not learn from."""
    agent, bonus = entry(recipe.agent.name), recipe.explore.bonus
    if bonus is not None and bonus.name not in agent.bonuses:
        others = " or ".join(f"explore.bonus={name}" for name in agent.bonuses)
        fix = f"write {others}, or leave it out" if others else "leave explore.bonus out"
        yield Diagnostic(
            f"{agent.name} cannot learn from explore.bonus={bonus.name}", fix, node.location_of("explore", "bonus")
        )


def _drawn(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    if entry(recipe.agent.name).kind == "value" and not recipe.evaluation.deterministic:
        what = f"{recipe.agent.name} learns values and has no probabilities to draw from"
        yield Diagnostic(what, "leave out evaluation.deterministic", node.location_of("evaluation", "deterministic"))


def _loggers(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    if recipe.metrics.wandb and find_spec("wandb") is None:
        what = "metrics.wandb needs wandb, which is not installed"
        yield Diagnostic(what, "install it: pip install 'townlet[wandb]'", node.location_of("metrics", "wandb"))


def _settings(recipe: Recipe, node: Node, rows: int | None) -> Iterator[Diagnostic]:
    """Settings of the agent that contradict each other, or the number of rows where that is known."""
    for problem in recipe.agent.problems(rows):
        yield Diagnostic(problem.what, problem.fix, node.location_of("agent", problem.key))


def _plateaus(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    """Only what the agent has can be changed, and only numbers can be multiplied."""
    for place, plateau in enumerate(recipe.plateau):
        where, known = node.location_of("plateau", place, "key"), entry(recipe.agent.name).tunable
        if plateau.key not in known:
            what = f"{recipe.agent.name} has no '{plateau.key}' that could be changed on a plateau"
            yield Diagnostic(what, f"take one of {', '.join(known)}", where)
        elif plateau.set is None and getattr(recipe.agent, plateau.key) is None:
            what = f"agent.{plateau.key} is null and cannot be multiplied or added to"
            yield Diagnostic(what, f"give agent.{plateau.key} a value, or plateau a value to `set`", where)


def _shares(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    """Shares of a budget need one in steps: time would give other moments in every run."""
    if recipe.budget.env_steps is not None:
        return
    fix = "add budget.env_steps, or write the moment in env_steps"
    for part, every in (("evaluation", recipe.evaluation.every), ("metrics", recipe.metrics.every)):
        if every <= 1:
            what = f"{part}.every is a share of the budget, and the budget has no env_steps"
            yield Diagnostic(what, fix, node.location_of(part, "every"))
    for place, plateau in enumerate(recipe.plateau):
        if plateau.patience <= 1:
            what = "plateau.patience is a share of the budget, and the budget has no env_steps"
            yield Diagnostic(what, fix, node.location_of("plateau", place, "patience"))
    if 0 < recipe.evaluation.warmup <= 1:
        what = "evaluation.warmup is a share of the budget, and the budget has no env_steps"
        yield Diagnostic(what, fix, node.location_of("evaluation", "warmup"))
    for path, way in _schedules(recipe, node):
        if way.by_share:
            what = f"{'.'.join(path)} goes by shares of the budget, and the budget has no env_steps"
            yield Diagnostic(what, fix, node.location_of(*path))


def _schedules(model: BaseModel, node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schedule]]:
    """The schedules that were written down, with their paths."""
    for key in type(model).model_fields:
        value, below = getattr(model, key), node.child(key)
        if below is None:
            continue
        if isinstance(value, Schedule):
            yield (*path, key), value
        elif isinstance(value, BaseModel):
            yield from _schedules(value, below, (*path, key))


def _of_towns(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    """What only a town can follow."""
    plain = {key: info.get_default(call_default_factory=True) for key, info in Recipe.model_fields.items()}
    written: list[tuple[str, ...]] = [(key,) for key in TOWN if getattr(recipe, key) != plain[key]]
    written += [("evaluation", "change")] if recipe.evaluation.change else []
    for path in written:
        what = f"`{'.'.join(path)}` is for towns, and this is a Gymnasium environment"
        yield Diagnostic(what, "leave it out; what can be changed stands in `gym`", node.location_of(*path))
