"""Load a recipe: find its file, merge layers and overrides, check the result. No environment is created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from townlet.agents import registry
from townlet.config import user_code
from townlet.config.merge import apply_overrides, merge
from townlet.config.models import json_schema
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, nearest
from townlet.gym.settings import GymSettings
from townlet.recipes.catalog import FILE_KEYS, find_layers
from townlet.recipes.layers import normalize, with_absolute_paths
from townlet.recipes.schema import Budget, CheckpointSettings, EvaluationSettings, MetricsSettings, Recipe
from townlet.recipes.validate import check_recipe, usage_hints
from townlet.town.world.schema import WorldSpec

# Default names of parts, so that `explore.action_selection.end=.05` need not repeat them.
DEFAULT_NAMES: Final = {
    "network": {"name": "mlp"},
    "explore": {"action_selection": {"name": "epsilon"}, "weight": {"name": "scheduled"}},
}
BUDGET_KEYS: Final = ("env_steps", "minutes")  # overrides that may leave `budget.` out
SECTIONS: Final[dict[str, type[BaseModel]]] = {
    "budget": Budget,
    "evaluation": EvaluationSettings,
    "checkpoints": CheckpointSettings,
    "metrics": MetricsSettings,
    "change": WorldSpec,
    "gym": GymSettings,
}
SYNONYMS: Final = {"n_envs": "rows", "num_envs": "rows"}  # names in other libraries


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe with the source location of every value and the errors found so far.

    `diagnostics` are not raised by `load_recipe`, so that `townlet.tasks` can add those of the environment.
    `repaired` names the sections from which wrong values were removed to check the rest.
    """

    name: str  # ENV:VARIANT as requested
    overrides: tuple[str, ...]
    recipe: Recipe
    node: Node
    notes: tuple[str, ...] = ()  # hints for the user
    diagnostics: tuple[Diagnostic, ...] = ()
    repaired: frozenset[str] = frozenset()


def load_recipe(name: str, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """The recipe of ENV:VARIANT, FILE:VARIANT or WORLD:VARIANT with overrides.

    Raises ConfigError only if so much is wrong that nothing else can be checked.
    """
    node = merge_layers(name, overrides)
    _register_agent(node)
    node, diagnostics = _without_misplaced_keys(node)
    repaired: frozenset[str] = frozenset()
    try:
        recipe = validate_model(Recipe, node, FILE_KEYS)
    except ConfigError as error:
        diagnostics += error.diagnostics
        valid = validate_partially(Recipe, node)
        if valid is None:
            raise ConfigError(diagnostics) from None
        after = valid[1].to_python()  # checks of a changed section could report errors that the user did not make
        repaired = frozenset(key for key, section in node.to_python().items() if section != after.get(key))
        recipe, node = valid
    diagnostics += check_recipe(recipe, node, repaired)
    hints = tuple(usage_hints(recipe, node))
    return LoadedRecipe(name, tuple(overrides), recipe, node, hints, tuple(diagnostics), repaired)


def _register_agent(node: Node) -> None:
    """Execute the file that registers the recipe's agent, if it names one; raises ConfigError if that is impossible."""
    agent = node.child("agent")
    name, file = (part.value if agent and (part := agent.child(key)) else None for key in ("name", "file"))
    if isinstance(file, str):
        where = node.location_of("agent", "file")
        try:
            user_code.execute_if_permitted(file)
        except TownletError as error:
            described = ((f"{d.where}: {d.what}" if d.where else d.what, d.fix) for d in error.diagnostics)
            raise ConfigError(Diagnostic(what, fix, where) for what, fix in described) from error
    if isinstance(name, str) and (fix := registry.load_error(name)):
        raise ConfigError([Diagnostic(f"the agent '{name}' cannot be used", fix, node.location_of("agent", "name"))])


def merge_layers(name: str, overrides: Sequence[str] = ()) -> Node:
    """All layers of a recipe merged to one tree, before anything is checked."""
    found = find_layers(name)
    tree = reduce(merge, (_default_node(DEFAULT_NAMES), *found.layers, *override_layers(overrides)))
    return Node(tree.value, found.file.shared.location)


def _default_node(value: Any) -> Node:
    origin = SourceLocation("default")
    children = {key: _default_node(child) for key, child in value.items()} if isinstance(value, dict) else value
    return Node(children, origin, origin)


def override_layers(overrides: Sequence[str]) -> list[Node]:
    """All overrides as one layer (or none), so that `agent.lr=1e-3 agent=NAME` sets the lr of that agent."""
    diagnostics: list[Diagnostic] = []
    layers: list[Node] = []
    for override in overrides:
        prefix = "budget." if override.partition("=")[0].strip() in BUDGET_KEYS else ""
        try:
            layer = apply_overrides(Node({}, SourceLocation("command line")), [prefix + override.lstrip()])
        except ConfigError as error:
            diagnostics += error.diagnostics
        else:
            layers.append(normalize(with_absolute_paths(layer, Path())))
    if diagnostics:
        raise ConfigError(diagnostics)
    return [reduce(merge, layers)] if layers else []


def _without_misplaced_keys(node: Node) -> tuple[Node, list[Diagnostic]]:
    """The tree without top-level keys that belong in a section, and a diagnostic for each that names the section."""
    diagnostics: list[Diagnostic] = []
    own = [*Recipe.model_fields, *FILE_KEYS]
    sections = {section: list(model.model_fields) for section, model in SECTIONS.items()}
    agent = node.child("agent")
    name = agent.child("name") if agent else None
    models = [entry.settings for entry in registry.entries() if name is None or entry.name == name.value]
    sections["agent"] = list(dict.fromkeys(key for model in models for key in model.model_fields))
    for key in node.value if isinstance(node.value, dict) else ():
        if key in own:
            continue
        where = node.location_of(key)
        if key in SYNONYMS:
            diagnostics.append(Diagnostic(f"unknown key '{key}'", f"did you mean '{SYNONYMS[key]}'?", where))
            node = node.without(key)
            continue
        exact = next(((section, key) for section, keys in sections.items() if key in keys), None)
        by_word = [(section, k) for section, keys in sections.items() for k in keys if key in k.split("_")]
        similar = by_word or [
            (section, k) for section, keys in sections.items() if (k := nearest(key, keys)) and not nearest(key, own)
        ]
        if exact or similar:
            fix = _suggest_section(where, key, *(exact or similar[0]))
            diagnostics.append(Diagnostic(f"'{key}' is not a top-level key of a recipe", fix, where))
            node = node.without(key)
    return node, diagnostics


def _suggest_section(where: SourceLocation, key: str, section: str, meant: str) -> str:
    """What to write instead; on the command line the entire argument, ready to be copied."""
    path, equals, text = where.source.removeprefix("command line: ").partition("=")
    if where.line or not equals:
        return f"write it in `{section}`" if key == meant else f"did you mean '{meant}' in `{section}`?"
    return f"did you mean {section}.{meant}{path.strip().removeprefix(key)}={text}?"


def recipe_json_schema() -> dict[str, Any]:
    """JSON Schema of a recipe file, for editors."""
    extra = {
        "extends": {
            "type": "string",
            "description": "What to inherit from: in a file another recipe, in a variant VARIANT or ENV:VARIANT.",
        },
        "default": {"type": "string", "description": "The variant to use if only the file is named."},
        "variants": {
            "type": "object",
            "additionalProperties": {"$ref": "#"},  # a variant may have every key of the file
            "description": "Variants by name, selected by ENV:VARIANT. Their keys are merged into those of the file.",
        },
    }
    schema: dict[str, Any] = _allow_bare_names(json_schema(Recipe, extra))
    return schema


def _allow_bare_names(schema: Any) -> Any:
    """The same schema in which a part that is chosen by name may be the name alone."""
    if isinstance(schema, list):
        return [_allow_bare_names(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _allow_bare_names(part) for key, part in schema.items()}
    if "discriminator" in schema and "oneOf" in schema:
        names = schema.pop("discriminator")["mapping"]
        schema["anyOf"] = [{"enum": list(names)}, *schema.pop("oneOf")]
    return schema
