"""What a sweep searches: said on the command line, in the recipe, or known to matter for its agent."""

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
from townlet.recipes.merge import normalize
from townlet.recipes.schema import Recipe
from townlet.tasks.experiment import load_experiment

NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
STRETCH: Final = re.compile(rf"({NUMBER})\.\.({NUMBER})")
# Commas that are not inside brackets, braces or quotes.
BETWEEN: Final = re.compile(r""",(?![^\[{("']*[\]})"'])""")
DIGITS: Final = 4  # of a number that is drawn: more say nothing and are hard to read

Space = dict[str, SearchRange]


def split(words: Sequence[str]) -> tuple[list[str], Space]:
    """Plain changes, and what is to be searched: KEY=LOW..HIGH or KEY=A,B,C."""
    plain: list[str] = []
    space: Space = {}
    for word in words:
        path, _, text = word.partition("=")
        parts = [part.strip() for part in BETWEEN.split(text)]
        if found := STRETCH.fullmatch(text.strip()):
            space[path.strip()] = _searched(word, low=_value(found[1], word), high=_value(found[2], word))
        elif len(parts) > 1:
            space[path.strip()] = _searched(word, choices=tuple(_value(part, word) for part in parts))
        else:
            plain.append(word)
    return plain, space


def _value(text: str, word: str) -> Any:
    """A value as every change on the command line has it."""
    return normalize(parse_value(text, f"command line: {word}")).to_python()


def _searched(word: str, **keys: Any) -> SearchRange:
    try:
        return SearchRange(**keys)
    except ValueError as error:
        told = str(error).partition("Value error, ")[2].partition(" [")[0]
        raise TownletError(told, "write it like agent.lr=1e-5..1e-2", SourceLocation(f"command line: {word}")) from None


def space_of(recipe: Recipe, said: Space) -> Space:
    """What is searched: what was said, else what the recipe says, else what is known of its agent."""
    return said or recipe.sweep or _known(recipe)


def _known(recipe: Recipe) -> Space:
    """The agent's own space. Of a scheduled value the start is searched, so that the schedule keeps its shape."""
    known = {f"agent.{key}": searched for key, searched in entry(recipe.agent.name).sweep.items()}
    return {
        f"{path}.start" if isinstance(_at(recipe, path), Schedule) else path: searched
        for path, searched in known.items()
    }


def check(asked: str, words: Sequence[str], space: Space) -> None:
    """Refuse now what no trial could train: a key that is not there, an end that its schema does not allow."""
    if "seed" in space:
        raise TownletError("seed cannot be searched: every trial is trained with the same ones", "say --seeds 3")
    for path, searched in space.items():
        for value in searched.ends:
            load_experiment(asked, [*words, f"{path}={to_flow_yaml(value)}"])


def own_values(recipe: Recipe, space: Space) -> dict[str, Any]:
    """The recipe's own value of each key that is searched, where it can be drawn; choices as the texts they are."""
    found = {path: _at(recipe, path) for path in space}
    return {
        p: to_flow_yaml(value) if space[p].choices else value for p, value in found.items() if _can_be(space[p], value)
    }


def _can_be(searched: SearchRange, value: Any) -> bool:
    if isinstance(value, BaseModel):
        return False  # a way from one number to another
    if searched.choices:
        return to_flow_yaml(value) in map(to_flow_yaml, searched.choices)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or searched.low is None or searched.high is None:
        return False
    return searched.low <= value <= searched.high


def is_whole(recipe: Recipe, path: str, searched: SearchRange) -> bool:
    """Whether a stretch is one of whole numbers: both ends are, and so may be the key."""
    if not (isinstance(searched.low, int) and isinstance(searched.high, int)):
        return False
    parent, _, last = path.rpartition(".")
    owner = _at(recipe, parent) if parent else recipe
    info = fields_by_key(type(owner)).get(last) if isinstance(owner, BaseModel) else None
    return info is None or any(kind.type is int for kind in allowed_types(info.annotation))


def _at(recipe: Recipe, path: str) -> Any:
    """The value at a path; None where there is none."""
    value: Any = recipe
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return list(value) if isinstance(value, tuple) else value


def drawn(value: Any) -> Any:
    """A drawn number in as many digits as it is worth."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
