"""Recipes as text: the list of shipped recipes, the reference of all keys, and resolved.yaml.

Nothing here imports torch at module level: listing recipes must be fast.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from townlet.config.merge import merge
from townlet.config.scalar import quote, to_flow_yaml
from townlet.config.schedule import Schedule
from townlet.config.type_info import AllowedType, allowed_types_of_field, child_choices, child_types, fields_by_key
from townlet.config.yaml import Node
from townlet.errors import SourceLocation, TownletError, did_you_mean
from townlet.gym import extras
from townlet.interfaces.counters import format_count
from townlet.recipes.catalog import FOLDER, find_layers, recipe_names
from townlet.runs.summary_text import success_marks

if TYPE_CHECKING:
    from rich.console import RenderableType

    from townlet.recipes.load import LoadedRecipe

UNITS: Final = (("env_steps", "steps"), ("minutes", "min"), ("episodes", "episodes"))
SCHEDULES: Final = "agent.lr and other schedulable values: a number, lin_0.001, or a mapping"
COMMENT_COLUMN: Final = 48


def _contains_all(text: str, words: Sequence[str]) -> bool:
    return all(word.lower() in text.lower() for word in words)


@dataclass(frozen=True)
class RecipeSummary:
    """One recipe of the list."""

    title: str
    agent: str
    budget: str
    description: str
    result: str  # one line per known result
    env: str = ""
    requirement: str = ""  # the extra it needs, and whether that is installed

    def matches(self, words: Sequence[str]) -> bool:
        """Whether it contains every word."""
        parts = (self.title, self.env, self.agent, self.description, self.result, self.requirement)
        return _contains_all(" ".join(parts), words)


def list_recipes(search: str = "") -> list[RecipeSummary]:
    """The shipped recipes that contain every word of the search; raises TownletError if there is none."""
    names = recipe_names()
    summaries = [summary for summary in map(_summarize, names) if summary.matches(search.split())]
    if not summaries:
        raise TownletError(f"no recipe matches '{search[:60]}'", did_you_mean(search, names))
    return summaries


def recipe_table(summaries: Sequence[RecipeSummary]) -> RenderableType:
    """A table of recipes, then a table of their known results."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    recipes, results = (Table(box=None, pad_edge=False) for _ in range(2))
    for name in ("recipe", "agent", "budget"):
        recipes.add_column(name, no_wrap=True)
    recipes.add_column("about")
    results.add_column("recipe", no_wrap=True)
    results.add_column("known result")
    for summary in summaries:
        about = " ".join(part for part in (summary.description, summary.requirement) if part)
        recipes.add_row(Text(summary.title, "bold"), summary.agent, summary.budget, Text(about))
        for number, result in enumerate(summary.result.splitlines()):
            results.add_row(Text("" if number else summary.title, "bold"), Text(result))
    return Group(recipes, "", results) if results.row_count else recipes


def _summarize(name: str) -> RecipeSummary:
    """The summary of a recipe, from its merged YAML alone, because the schema imports torch."""
    values = reduce(merge, find_layers(name).layers).to_python()
    budget, result, env = values.get("budget", {}), values.get("result", ()), str(values.get("env"))
    limits = [f"{format_count(budget[key])} {unit}" for key, unit in UNITS if budget.get(key) is not None]
    results = [result] if isinstance(result, str) else [str(known["what"]) for known in result]
    if not results:
        marks = success_marks({"threshold": extras.reward_threshold(env), "goal": values.get("reward_threshold")})
        results += [f"not measured yet; {name} {mark:g}" for name, mark in marks.items()]
    agent, description = str(values.get("agent", {}).get("name", "")), str(values.get("description", ""))
    requirement = ""
    if family := extras.family(env):
        requirement = f"Needs townlet[{family.extra}]" + ("." if family.installed else ", which is not installed.")
    return RecipeSummary(name, agent, ", ".join(limits), description, "\n".join(results), env, requirement)


@dataclass(frozen=True)
class KeyInfo:
    """One key of a recipe: its path, its default as YAML and its description."""

    path: str
    default: str
    description: str


@dataclass(frozen=True)
class KeySection:
    """The keys of one part; a part that is chosen by name has one section per choice."""

    title: str
    about: str
    keys: tuple[KeyInfo, ...]


def key_sections(search: str = "") -> list[KeySection]:
    """All keys that contain every word of the search; raises TownletError if there is none."""
    from townlet.recipes.schema import Recipe

    words = search.split()
    sections = dict.fromkeys((*_sections(Recipe, "", "a recipe"), *_sections(Schedule, "", SCHEDULES)))
    matching = [
        KeySection(section.title, section.about, keys)
        for section in sections
        if (keys := tuple(k for k in section.keys if _contains_all(f"{k.path} {k.description}", words)))
    ]
    if not matching:
        raise TownletError(f"no key of a recipe matches '{search[:60]}'", "leave the words out to see all keys")
    return matching


def _sections(model: type[BaseModel], path: str, title: str) -> Iterator[KeySection]:
    """The section of a model, then those of its parts."""
    keys, parts = [], []
    for key, info in fields_by_key(model).items():
        if key != "name":  # the title has it
            keys.append(KeyInfo(path + key, _default(info), info.description or ""))
        # The models allowed under the key, alone or as list entries; schedules have one section for all keys.
        types = [part for allowed in allowed_types_of_field(info) for part in (allowed, *child_types(allowed, 0))]
        parts += [(t.model, path + key) for t in types if t.model is not None and t.model is not Schedule]
    yield KeySection(title, " ".join((model.__doc__ or "").split()), tuple(keys))
    for part, part_path in parts:
        names = " or ".join(map(str, child_choices(AllowedType(part), "name")))
        yield from _sections(part, f"{part_path}.", f"{part_path}: {names}" if names else part_path)


def _default(info: FieldInfo) -> str:
    """The default as YAML; for a part only its name, because the section of the part lists the rest."""
    if info.is_required():
        return "required"
    value: Any = info.get_default(call_default_factory=True)
    if isinstance(value, Schedule):
        return to_flow_yaml(value.model_dump(exclude_defaults=True))
    return str(getattr(value, "name", "as below")) if isinstance(value, BaseModel) else to_flow_yaml(value)


def resolved_text(loaded: LoadedRecipe) -> str:
    """resolved.yaml: every value of the recipe, with its origin as a comment. It loads as the same recipe."""
    head = f"# {loaded.recipe.title}: every value and its origin. Train it again with: townlet train resolved.yaml\n"
    return head + "\n".join(_mapping_lines(loaded.recipe.model_dump(), loaded.node, 0)) + "\n"


def original_text(loaded: LoadedRecipe) -> str:
    """recipe.yaml: the recipe's file as written, below the command as a comment."""
    overrides = (json.dumps(o, ensure_ascii=False) if " " in o else o for o in loaded.overrides)
    command = " ".join(("townlet train", loaded.name, *overrides))
    return f"# {command}\n" + find_layers(loaded.name).file.path.read_text(encoding="utf-8")


def _mapping_lines(values: dict[str, Any], node: Node | None, depth: int) -> Iterator[str]:
    for key, value in values.items():
        yield from _value_lines(f"{'  ' * depth}{quote(key)}:", value, _child(node, key), depth)


def _value_lines(label: str, value: Any, node: Node | None, depth: int) -> Iterator[str]:
    """A label and its value; mappings and lists of mappings take further lines."""
    if isinstance(value, dict) and value:
        yield label
        yield from _mapping_lines(value, node, depth + 1)
    elif isinstance(value, (list, tuple)) and any(isinstance(part, dict) for part in value):
        yield label
        for index, part in enumerate(value):
            yield _line(f"{'  ' * (depth + 1)}-", part, _child(node, index))
    else:
        yield _line(label, value, node)


def _child(node: Node | None, item: str | int) -> Node | None:
    """The child of a node; a shorthand (lin_0.001, or a mapping in place of a list) is the origin of all its parts."""
    container = dict if isinstance(item, str) else list
    return node.child(item) if node and isinstance(node.value, container) else node


def _line(label: str, value: Any, node: Node | None) -> str:
    """A value with its origin: file and line, the command line, or the default."""
    origin = node.location_of() if node else SourceLocation("default")
    shipped = os.path.dirname(origin.source) == str(FOLDER)
    source = os.path.basename(origin.source) if shipped else origin.source
    location = SourceLocation(" ".join(source.split()), origin.line)
    return f"{label + ' ' + to_flow_yaml(value):<{COMMENT_COLUMN}} # {location}"
