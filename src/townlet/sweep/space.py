"""The search space of a sweep: from the command line, the recipe, or the agent's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from townlet.agents.registry import entry
from townlet.config.models import SearchRange
from townlet.config.scalar import to_flow_yaml
from townlet.config.schedule import Schedule
from townlet.config.type_info import allowed_types, fields_by_key
from townlet.config.yaml import parse_value
from townlet.errors import SourceLocation, TownletError
from townlet.recipes.layers import normalize
from townlet.recipes.schema import Recipe
from townlet.tasks.experiment import load_experiment

NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE: Final = re.compile(rf"({NUMBER})\.\.({NUMBER})")
SEPARATOR: Final = re.compile(r""",(?![^\[{("']*[\]})"'])""")  # a comma outside brackets, braces and quotes
SIGNIFICANT_DIGITS: Final = 4  # in suggested numbers, for readability

SearchSpace = dict[str, SearchRange]


def split_overrides(overrides: Sequence[str]) -> tuple[list[str], SearchSpace]:
    """Fixed overrides, and the keys to search: KEY=LOW..HIGH or KEY=A,B,C."""
    fixed: list[str] = []
    space: SearchSpace = {}
    for override in overrides:
        path, _, text = override.partition("=")
        parts = [part.strip() for part in SEPARATOR.split(text)]
        if match := RANGE.fullmatch(text.strip()):
            space[path.strip()] = _range(override, low=_value(match[1], override), high=_value(match[2], override))
        elif len(parts) > 1:
            space[path.strip()] = _range(override, choices=tuple(_value(part, override) for part in parts))
        else:
            fixed.append(override)
    return fixed, space


def _value(text: str, override: str) -> Any:
    """The value of an override."""
    return normalize(parse_value(text, f"command line: {override}")).to_python()


def _range(override: str, **keys: Any) -> SearchRange:
    try:
        return SearchRange(**keys)
    except ValueError as error:
        what = str(error).partition("Value error, ")[2].partition(" [")[0]
        where = SourceLocation(f"command line: {override}")
        raise TownletError(what, "write it like agent.lr=1e-5..1e-2 or agent.lr=1e-4,1e-3", where) from None


def search_space(recipe: Recipe, given: SearchSpace) -> SearchSpace:
    """The space to search: the one given, else the recipe's, else the agent's defaults.

    If the recipe has a schedule for a key of the agent's defaults, only its `start` is searched.
    """
    if given or recipe.sweep:
        return given or recipe.sweep
    space: SearchSpace = {}
    for key, search_range in entry(recipe.agent.name).sweep.items():
        scheduled = isinstance(_value_at(recipe, f"agent.{key}"), Schedule)
        space[f"agent.{key}.start" if scheduled else f"agent.{key}"] = search_range
    return space


def check_space(recipe_name: str, overrides: Sequence[str], space: SearchSpace) -> None:
    """Raise an error for unknown keys, and for values (both ends of a range, all choices) that the recipe rejects."""
    if "seed" in space:
        raise TownletError("seed cannot be searched: all trials train with the same seeds", "use --seeds 3")
    for path, search_range in space.items():
        for value in search_range.checked_values:
            load_experiment(recipe_name, [*overrides, f"{path}={to_flow_yaml(value)}"])


def recipe_values(recipe: Recipe, space: SearchSpace) -> dict[str, Any]:
    """The recipe's values of the searched keys, if they lie in the space; choices are encoded as in the study."""
    values = {}
    for path, search_range in space.items():
        value, low, high = _value_at(recipe, path), search_range.low, search_range.high
        if isinstance(value, BaseModel):  # a schedule is not compared with the space
            continue
        if search_range.choices:
            if (encoded := encode_choice(value)) in map(encode_choice, search_range.choices):
                values[path] = encoded
        elif type(value) in (int, float) and low is not None and high is not None and low <= value <= high:
            values[path] = value
    return values


def is_integer(recipe: Recipe, path: str, search_range: SearchRange) -> bool:
    """Whether to suggest integers: both ends are integers and the key accepts them."""
    if not (isinstance(search_range.low, int) and isinstance(search_range.high, int)):
        return False
    parent, _, last = path.rpartition(".")
    owner = _value_at(recipe, parent) if parent else recipe
    info = fields_by_key(type(owner)).get(last) if isinstance(owner, BaseModel) else None
    return info is None or any(allowed.type is int for allowed in allowed_types(info.annotation))


def _value_at(recipe: Recipe, path: str) -> Any:
    """The value at a path, or None."""
    value: Any = recipe
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return list(value) if isinstance(value, tuple) else value


def encode_choice(choice: Any) -> Any:
    """A choice as the study stores it: numbers, booleans and null as they are, anything else as YAML text."""
    return choice if choice is None or isinstance(choice, bool | int | float) else to_flow_yaml(choice)


def round_suggested(value: Any) -> Any:
    """A suggested number, rounded to `SIGNIFICANT_DIGITS`."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
