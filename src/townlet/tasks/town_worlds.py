"""The worlds of a recipe: the one it trains in and the one it is measured in, with `change` laid over them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from townlet.config.merge import MAX_SHOWN
from townlet.config.scalar import shorten, to_flow_yaml
from townlet.config.yaml import Node
from townlet.errors import ConfigError, Diagnostic, SourceLocation
from townlet.recipes.schema import Recipe
from townlet.town.world.load import find_world, from_text, load
from townlet.town.world.schema import Potential
from townlet.town.world.tables import World

Change = tuple[str, SourceLocation]  # `key=value` for the world, and where the recipe says it


class Worlds(NamedTuple):
    """Two worlds with the same interface."""

    training: World
    evaluation: World


def load_worlds(recipe: Recipe, node: Node) -> Worlds:
    """Both worlds; raises ConfigError at the places of the recipe that caused them."""
    training = list(changes(node.child("change")))
    evaluation = node.child("evaluation")
    further = list(changes(evaluation.child("change") if evaluation else None))
    here = changed_world(recipe, node, training)
    # Guidance is for learning: what is measured is paid by the world's own rewards.
    plain = recipe.model_copy(update={"potential": 0.0})
    there = changed_world(plain, node, [*training, *further]) if further or recipe.potential else here
    if there.interface_hash != here.interface_hash:
        what = "evaluation.change gives the agent other actions or another observation than it is trained with"
        fix = "change only what is neither seen nor done, as max_steps"
        raise ConfigError([Diagnostic(what, fix, node.location_of("evaluation", "change"))])
    return Worlds(here, there)


def changes(node: Node | None, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """Each value of a `change` as `key=value`; a mapping leads down by key, or by name into a list."""
    if node is None:
        return
    if isinstance(node.value, dict) and (node.value or not path):
        for key, below in node.value.items():
            yield from changes(below, (*path, key))
        return
    text = json.dumps(node.to_python(), ensure_ascii=False)
    yield f"{'.'.join(path)}={text}", node.key_location or node.location


def changed_world(recipe: Recipe, node: Node, wanted: Sequence[Change]) -> World:
    """The recipe's world with these changes alone; a guiding reward follows the agent's discount."""
    path = find_world(recipe.world or recipe.env, Path(), node.location_of("world" if recipe.world else "env"))
    world = _load(path, wanted)
    guidance = next((r for r in world.spec.rewards if isinstance(r, Potential)), None)
    gamma = recipe.agent.gamma
    if guidance is None and recipe.potential:
        return _load(path, [*wanted, (_guided(world, recipe.potential, gamma), node.location_of("potential"))])
    if guidance is None or guidance.gamma == gamma:
        return world
    if "gamma" in guidance.model_fields_set:
        what = f"the reward `potential` has gamma {guidance.gamma:g} and the agent {gamma:g}: that changes what is best"
        fix = "leave gamma out of the reward, then it follows agent.gamma"
        raise ConfigError([Diagnostic(what, fix, node.location_of("change", "rewards"))])
    return _load(path, [*wanted, (f"rewards.potential.gamma={gamma!r}", node.location_of("agent", "gamma"))])


def _guided(world: World, weight: float, gamma: float) -> str:
    """The world's own rewards, and the potential of its needs beside them."""
    rewards = [reward.model_dump(mode="json", exclude_unset=True) for reward in world.spec.rewards]
    return "rewards=" + json.dumps([*rewards, {"name": "potential", "weight": weight, "gamma": gamma}])


def _load(path: Path, wanted: Sequence[Change]) -> World:
    """The world with these changes; what is wrong with one is said of its place in the recipe."""
    places = {f"command line: {shorten(text, MAX_SHOWN)}": mark for text, mark in wanted}
    try:
        return load(path, [text for text, _ in wanted])
    except ConfigError as error:
        moved = [
            Diagnostic(m.what, m.fix, places.get(m.where.source, m.where) if m.where else None)
            for m in error.diagnostics
        ]
        raise ConfigError(moved) from None


def changed(world: World, words: Sequence[str]) -> World:
    """A world with `key=value` laid over it."""
    if not words:
        return world
    found = from_text(text_of(world, "run"), f"the world {world.name} of this run", words)
    return replace(found, name=world.name)


def text_of(world: World, role: str) -> str:
    """The world as YAML that stands alone, an entry of a list in each line."""
    lines = [f"# {world.name}, the world of this {role}, whole: what it extends and every change are in it."]
    for key, value in world.spec.model_dump(mode="json", by_alias=True).items():
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            lines += [f"{key}:", *(f"  - {to_flow_yaml(entry)}" for entry in value)]
        else:
            lines.append(f"{key}: {to_flow_yaml(value)}")
    return "\n".join(lines) + "\n"
