"""From ENV:VARIANT and `key=value` to a checked recipe with its worlds: find, merge, check shape, check sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pydantic import BaseModel

from townlet.config.check import build, mend
from townlet.config.json_schema import json_schema
from townlet.config.overrides import apply
from townlet.config.yaml import Node
from townlet.errors import Mark, Mistake, Mistakes
from townlet.train.change import Worlds, load_worlds
from townlet.train.overlay import overlay
from townlet.train.recipe import Budget, Checkpoints, Evaluation, Metrics, Recipe
from townlet.train.recipes import STRUCTURE, choose, from_command_line
from townlet.train.sense import check
from townlet.world.schema import WorldSpec

# Where a mapping needs a name and has a usual one, so that `explore.choose.end=.05` need not repeat it.
USUAL: Final = {"network": "mlp", "explore.choose": "epsilon", "explore.weight": "fixed"}
HOMES: Final[dict[str, type[BaseModel]]] = {
    "change": WorldSpec,
    "budget": Budget,
    "evaluation": Evaluation,
    "checkpoints": Checkpoints,
    "metrics": Metrics,
}


@dataclass(frozen=True)
class Loaded:
    """A recipe ready to be built, with the place of every value."""

    asked: str
    overrides: tuple[str, ...]
    recipe: Recipe
    node: Node
    worlds: Worlds


def load(asked: str, overrides: Sequence[str] = ()) -> Loaded:
    """The recipe of ENV:VARIANT, FILE:VARIANT or WORLD:VARIANT with changes; raises Mistakes, all at once."""
    node = merged(asked, overrides)
    node, found = _without_strays(node)
    try:
        recipe = build(Recipe, node, STRUCTURE)
    except Mistakes as error:
        found += error.mistakes
        rest = mend(Recipe, node)
        raise Mistakes([*found, *(_check(*rest)[0] if rest else ())]) from None
    more, worlds = _check(recipe, node)
    if found or more or worlds is None:
        raise Mistakes([*found, *more])
    return Loaded(asked, tuple(overrides), recipe, node, worlds)


def merged(asked: str, overrides: Sequence[str] = ()) -> Node:
    """All layers of a recipe as one tree, before anything is checked."""
    usual = apply(Node({}, Mark("default")), [f"{path}.name={name}" for path, name in USUAL.items()])
    choice, said = choose(asked), _command_line(overrides)
    tree = reduce(overlay, (_from(usual, Mark("default")), *choice.layers, *said))
    return Node(tree.value, choice.file.own.mark)


def _command_line(overrides: Sequence[str]) -> list[Node]:
    """`key=value` as one layer, in which order does not matter for names: `agent.lr=1e-3 agent=ppo` keeps the lr."""
    found: list[Mistake] = []
    layers: list[Node] = []
    for override in overrides:
        try:
            layers.append(from_command_line(apply(Node({}, Mark("command line")), [override])))
        except Mistakes as error:
            found += error.mistakes
    if found:
        raise Mistakes(found)
    return [reduce(overlay, layers)] if layers else []


def _from(node: Node, mark: Mark) -> Node:
    """The same tree as if all of it stood at one place."""
    if isinstance(node.value, dict):
        return Node({key: _from(below, mark) for key, below in node.value.items()}, mark, mark)
    return Node(node.value, mark, mark)


def _check(recipe: Recipe, node: Node) -> tuple[list[Mistake], Worlds | None]:
    """What is wrong with the worlds and with how the parts go together."""
    try:
        worlds = load_worlds(recipe, node)
    except Mistakes as error:
        return [*check(recipe, node), *error.mistakes], None
    return check(recipe, node, worlds.training), worlds


def _without_strays(node: Node) -> tuple[Node, list[Mistake]]:
    """The tree less the keys that belong elsewhere, and where each belongs."""
    found: list[Mistake] = []
    agent = _agent_keys(node)
    for key in node.value if isinstance(node.value, dict) else ():
        if key in Recipe.model_fields or key in STRUCTURE:
            continue
        homes = [home for home, model in HOMES.items() if key in model.model_fields]
        homes += ["agent"] if key in agent else []
        if homes:
            fix = f"write it in `{homes[0]}`, as {homes[0]}.{key}=… on the command line"
            found.append(Mistake(f"'{key}' is not a key of the recipe itself", fix, node.where(key)))
            node = node.without(key)
    return node, found


def _agent_keys(node: Node) -> set[str]:
    """The settings of the chosen agent, or of all agents when none is."""
    agent = node.child("agent")
    name = agent.child("name") if agent else None
    union: Any = Recipe.model_fields["agent"].annotation
    models = [model for model in union.__args__ if name is None or model.model_fields["name"].default == name.value]
    return {key for model in models for key in model.model_fields}


def schema() -> dict[str, Any]:
    """JSON Schema of a recipe's file, for editors."""
    recipe = {"$ref": "#"}  # a variant may have every key that the file itself may have
    extra = {
        "extends": {
            "type": "string",
            "description": "What to change: of a file another recipe, of a variant another one, as ppo or town:ppo.",
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
