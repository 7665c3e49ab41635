"""Load a recipe: find its file, merge layers and overrides, check it. Recipes are data: no environment is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pydantic import BaseModel

from townlet.agents import registry
from townlet.config import user_code
from townlet.config.merge import apply_overrides, merge
from townlet.config.models import json_schema
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, nearest
from townlet.gym.spec import EnvSpec
from townlet.recipes.catalogue import STRUCTURE, choose, from_command_line
from townlet.recipes.schema import Budget, Checkpoints, Evaluation, Metrics, Recipe
from townlet.recipes.validate import check, unused
from townlet.town.world.schema import WorldSpec

# Where a mapping needs a name and has a usual one, so that `explore.choose.end=.05` need not repeat it.
USUAL: Final = {"network": "mlp", "explore.choose": "epsilon", "explore.weight": "fixed"}
SHORT: Final = ("env_steps", "minutes")  # of the budget: what people change most needs no home on the command line
HOMES: Final[dict[str, type[BaseModel]]] = {
    "budget": Budget,
    "evaluation": Evaluation,
    "checkpoints": Checkpoints,
    "metrics": Metrics,
    "change": WorldSpec,
    "gym": EnvSpec,
}
ELSEWHERE: Final = {"n_envs": "rows", "num_envs": "rows"}  # what others call a key of the recipe itself


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe with the source position of every value and everything found wrong so far.

    `diagnostics` are not raised by `load_recipe`, so that `townlet.tasks` can add those of the environment.
    `repaired` names the parts from which wrong values were removed to check the rest.
    """

    asked: str
    overrides: tuple[str, ...]
    recipe: Recipe
    node: Node
    notes: tuple[str, ...] = ()  # hints for the user
    diagnostics: tuple[Diagnostic, ...] = ()
    repaired: frozenset[str] = frozenset()


def load_recipe(asked: str, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """The recipe of ENV:VARIANT, FILE:VARIANT or WORLD:VARIANT with overrides.

    Raises ConfigError only if so much is wrong that nothing else can be checked.
    """
    node = merged(asked, overrides)
    _register_agent(node)
    node, found = _without_strays(node)
    repaired: frozenset[str] = frozenset()
    try:
        recipe = validate_model(Recipe, node, STRUCTURE)
    except ConfigError as error:
        found += error.diagnostics
        rest = validate_partially(Recipe, node)
        if rest is None:
            raise ConfigError(found) from None
        repaired = _changed_parts(node, rest[1])
        recipe, node = rest
    found += check(recipe, node, repaired)
    return LoadedRecipe(asked, tuple(overrides), recipe, node, tuple(unused(recipe, node)), tuple(found), repaired)


def _register_agent(node: Node) -> None:
    """Run the file that registers the recipe's agent, where it names one and that is allowed; raises ConfigError."""
    agent = node.child("agent")
    name, file = (part.value if agent and (part := agent.child(key)) else None for key in ("name", "file"))
    if isinstance(file, str):
        try:
            user_code.run(file)
        except TownletError as error:
            raise ConfigError(
                Diagnostic(m.what, m.fix, node.location_of("agent", "file")) for m in error.diagnostics
            ) from error
    if isinstance(name, str) and (why := registry.broken(name)):
        raise ConfigError([Diagnostic(f"the agent '{name}' cannot be used", why, node.location_of("agent", "name"))])


def _changed_parts(node: Node, repaired: Node) -> frozenset[str]:
    """The parts from which something wrong was removed: what is odd about them now is not the user's mistake."""
    return frozenset(key for key, below in node.to_python().items() if below != repaired.to_python().get(key))


def merged(asked: str, overrides: Sequence[str] = ()) -> Node:
    """All layers of a recipe as one tree, before anything is checked."""
    usual = apply_overrides(
        Node({}, SourceLocation("default")), [f"{path}.name={name}" for path, name in USUAL.items()]
    )
    choice, said = choose(asked), command_line(overrides)
    tree = reduce(merge, (_from(usual, SourceLocation("default")), *choice.layers, *said))
    return Node(tree.value, choice.file.own.location)


def command_line(overrides: Sequence[str]) -> list[Node]:
    """`key=value` as one layer, in which order does not matter for names: `agent.lr=1e-3 agent=NAME` keeps the lr."""
    found: list[Diagnostic] = []
    layers: list[Node] = []
    for override in overrides:
        try:
            home = "budget." if override.partition("=")[0].strip() in SHORT else ""
            layers.append(
                from_command_line(apply_overrides(Node({}, SourceLocation("command line")), [home + override.lstrip()]))
            )
        except ConfigError as error:
            found += error.diagnostics
    if found:
        raise ConfigError(found)
    return [reduce(merge, layers)] if layers else []


def _from(node: Node, mark: SourceLocation) -> Node:
    """The same tree as if all of it stood at one place."""
    if isinstance(node.value, dict):
        return Node({key: _from(below, mark) for key, below in node.value.items()}, mark, mark)
    return Node(node.value, mark, mark)


def _without_strays(node: Node) -> tuple[Node, list[Diagnostic]]:
    """The tree less the keys that belong elsewhere, and where each belongs."""
    found: list[Diagnostic] = []
    own = [*Recipe.model_fields, *STRUCTURE]
    homes = {home: list(model.model_fields) for home, model in HOMES.items()} | {"agent": _agent_keys(node)}
    for key in node.value if isinstance(node.value, dict) else ():
        if key in own:
            continue
        if key in ELSEWHERE:
            found.append(Diagnostic(f"unknown key '{key}'", f"did you mean '{ELSEWHERE[key]}'?", node.location_of(key)))
            node = node.without(key)
            continue
        exact = next((home for home, keys in homes.items() if key in keys), None)
        words = [(home, k) for home, keys in homes.items() for k in keys if key in k.split("_")]
        near = words or [
            (home, k) for home, keys in homes.items() if (k := nearest(key, keys)) and not nearest(key, own)
        ]
        if exact or near:
            home, meant = (exact, key) if exact else near[0]
            fix = _meant(node.location_of(key), key, home, meant)
            found.append(Diagnostic(f"'{key}' is not a key of the recipe itself", fix, node.location_of(key)))
            node = node.without(key)
    return node, found


def _meant(where: SourceLocation, key: str, home: str, meant: str) -> str:
    """What to write instead: on the command line the whole word, ready to be copied."""
    path, equals, text = where.source.removeprefix("command line: ").partition("=")
    if where.line or not equals:
        return f"write it in `{home}`" if key == meant else f"did you mean '{meant}' in `{home}`?"
    return f"did you mean {home}.{meant}{path.strip().removeprefix(key)}={text}?"


def _agent_keys(node: Node) -> list[str]:
    """The settings of the chosen agent, or of all agents when none is."""
    agent = node.child("agent")
    name = agent.child("name") if agent else None
    models = [entry.settings for entry in registry.entries() if name is None or entry.name == name.value]
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def schema() -> dict[str, Any]:
    """JSON Schema of a recipe's file, for editors."""
    recipe = {"$ref": "#"}  # a variant may have every key that the file itself may have
    extra = {
        "extends": {
            "type": "string",
            "description": "What to change: of a file another recipe, of a variant VARIANT or ENV:VARIANT.",
        },
        "default": {"type": "string", "description": "The variant that the file's name alone stands for."},
        "variants": {
            "type": "object",
            "additionalProperties": recipe,
            "description": "One block per variant; ENV:VARIANT picks it. It is laid over the keys of the file.",
        },
    }
    found: dict[str, Any] = _with_bare_words(json_schema(Recipe, extra))
    return found


def _with_bare_words(schema: Any) -> Any:
    """The same schema in which a part that is chosen by name may be the name alone."""
    if isinstance(schema, list):
        return [_with_bare_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _with_bare_words(part) for key, part in schema.items()}
    if "discriminator" in schema and "oneOf" in schema:
        names = schema.pop("discriminator")["mapping"]
        schema["anyOf"] = [{"enum": list(names)}, *schema.pop("oneOf")]
    return schema
