"""Consistency checks between the sections of a recipe; `townlet.tasks` has those that need the environment."""

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

TOWN_KEYS: Final = ("world", "change", "potential", "starts", "curriculum", "engine")
NO_ENV_STEPS: Final = "a fraction of the budget, but the budget has no env_steps"


def check_recipe(recipe: Recipe, node: Node, repaired: Collection[str] = ()) -> list[Diagnostic]:
    """Contradictions between sections. Checks of a `repaired` section are skipped: its error is known."""
    checks: list[tuple[tuple[str, ...], Iterator[Diagnostic]]] = [
        (("agent", "network"), _check_recurrence(recipe, node)),
        (("budget", "evaluation", "metrics", "agent", "explore", "plateau"), _check_fractions(recipe, node)),
        (("agent", "plateau"), _check_plateaus(recipe, node)),
    ]
    if recipe.gym is not None:
        checks.append((TOWN_KEYS, _check_town_keys(recipe, node)))
    found = [(parts, diagnostic) for parts, diagnostics in checks for diagnostic in diagnostics]

    def report(parts: tuple[str, ...], what: str, fix: str, *path: str) -> None:
        found.append((parts, Diagnostic(what, fix, node.location_of(*path))))

    agent, bonus = entry(recipe.agent.name), recipe.explore.bonus
    for problem in recipe.agent.problems(None if "rows" in repaired else recipe.row_count):
        report(("agent",), problem.what, problem.fix, "agent", problem.key)
    if bonus is not None and bonus.name not in agent.bonuses:
        others = " or ".join(f"explore.bonus={name}" for name in agent.bonuses)
        fix = f"write {others}, or leave it out" if others else "leave explore.bonus out"
        what = f"{agent.name} cannot learn from explore.bonus={bonus.name}"
        report(("agent", "explore"), what, fix, "explore", "bonus")
    if agent.kind == "value" and not recipe.evaluation.deterministic:
        what = f"{agent.name} learns values and has no probabilities to sample from"
        report(("agent", "evaluation"), what, "leave out evaluation.deterministic", "evaluation", "deterministic")
    if recipe.metrics.wandb and find_spec("wandb") is None:
        what, fix = "metrics.wandb needs wandb, which is not installed", "install it: pip install 'townlet[wandb]'"
        report(("metrics",), what, fix, "metrics", "wandb")
    return [diagnostic for parts, diagnostic in found if not {*parts} & {*repaired}]


def usage_hints(recipe: Recipe, node: Node) -> Iterator[str]:
    """Hints about missing settings and about overrides without effect, which may be meant for several agents."""
    yield from recipe.agent.hints(recipe.network)
    agent, explore = entry(recipe.agent.name), node.child("explore")
    unused = []
    if agent.kind != "value" and explore is not None:
        unused.append(("explore.action_selection", explore.child("action_selection")))
    if not agent.uses_network:
        unused.append(("network", node.child("network")))
    for path, part in unused:
        keys = part.value if part is not None and isinstance(part.value, dict) else {}
        if any(child.location_of().source.startswith("command line") for child in keys.values()):
            yield f"{agent.name} does not use {path}: setting it has no effect."


def _check_recurrence(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    agent, recurrent = entry(recipe.agent.name), recipe.network.is_recurrent
    if agent.recurrent == "required" and not recurrent:
        what = f"{agent.name} needs a recurrent network, and {recipe.network.name} is not recurrent"
        fix = "use network spatial_recurrent, or add network.recurrent"
        yield Diagnostic(what, fix, node.location_of("agent", "name"))
    if agent.recurrent == "no" and agent.uses_network and recurrent:
        instead = next((e.name for e in entries() if e.kind == agent.kind and e.recurrent != "no"), "")
        fix = f"use agent {instead}, or remove network.recurrent"
        what = f"{agent.name} cannot train a recurrent network"
        yield Diagnostic(what, fix, node.location_of("network", "recurrent"))


def _check_plateaus(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    for index, plateau in enumerate(recipe.plateau):
        where, known = node.location_of("plateau", index, "key"), entry(recipe.agent.name).changeable
        if plateau.key not in known:
            what = f"{recipe.agent.name} has no setting '{plateau.key}' that can change on a plateau"
            yield Diagnostic(what, f"use one of {', '.join(known)}", where)
        elif plateau.set is None and getattr(recipe.agent, plateau.key) is None:
            what = f"agent.{plateau.key} is null, so nothing can be multiplied or added"
            yield Diagnostic(what, f"give agent.{plateau.key} a value, or use `set`", where)


def _check_fractions(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    """Fractions of the budget need a budget in env_steps: a time limit ends every run at another step."""
    if recipe.budget.env_steps is not None:
        return
    intervals: dict[tuple[str | int, ...], float] = {
        ("evaluation", "every"): recipe.evaluation.every,
        ("evaluation", "warmup"): recipe.evaluation.warmup,
        ("metrics", "every"): recipe.metrics.every,
        **{("plateau", i, "patience"): plateau.patience for i, plateau in enumerate(recipe.plateau)},
    }
    fractions = [path for path, interval in intervals.items() if 0 < interval <= 1]
    fractions += [path for path, schedule in _schedules(recipe, node) if schedule.uses_fractions]
    for path in fractions:
        name = ".".join(part for part in path if isinstance(part, str))
        fix = "add budget.env_steps, or write the value in env_steps"
        yield Diagnostic(f"{name} is {NO_ENV_STEPS}", fix, node.location_of(*path))


def _schedules(model: BaseModel, node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schedule]]:
    """The schedules that the recipe sets, with their paths."""
    for key in type(model).model_fields:
        value, child = getattr(model, key), node.child(key)
        if child is None:
            continue
        if isinstance(value, Schedule):
            yield (*path, key), value
        elif isinstance(value, BaseModel):
            yield from _schedules(value, child, (*path, key))


def _check_town_keys(recipe: Recipe, node: Node) -> Iterator[Diagnostic]:
    defaults = {key: info.get_default(call_default_factory=True) for key, info in Recipe.model_fields.items()}
    changed: list[tuple[str, ...]] = [(key,) for key in TOWN_KEYS if getattr(recipe, key) != defaults[key]]
    changed += [("evaluation", "change")] if recipe.evaluation.change else []
    for path in changed:
        what = f"`{'.'.join(path)}` applies to towns only, and this is a Gymnasium environment"
        yield Diagnostic(what, "leave it out; settings of the environment belong in `gym`", node.location_of(*path))
