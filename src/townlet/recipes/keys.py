"""Every key that a recipe may have, read from its models: what it is without you, and what it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from townlet.config.scalar import to_flow_yaml
from townlet.config.schedule import Schedule
from townlet.config.type_info import AllowedType, allowed_types_of_field, child_choices, child_types, fields_by_key
from townlet.errors import TownletError
from townlet.recipes.schema import Recipe

CHANGING: Final = "agent.lr and other values that may change: a number, lin_0.001, or a mapping"


@dataclass(frozen=True)
class Key:
    """One key by its path, with its default as YAML."""

    path: str
    default: str
    meaning: str

    def has(self, words: Sequence[str]) -> bool:
        """Whether every word stands somewhere in it."""
        return all(word in f"{self.path} {self.meaning}".lower() for word in words)


@dataclass(frozen=True)
class Section:
    """The keys of one part; a part that is chosen by name has a section for each choice."""

    title: str
    about: str
    keys: tuple[Key, ...]


def sections(search: str = "") -> list[Section]:
    """All keys in which every word of the search occurs; raises TownletError when there is none."""
    words = search.lower().split()
    every = dict.fromkeys((*_sections(Recipe, "", "a recipe"), *_sections(Schedule, "", CHANGING)))
    found = [Section(s.title, s.about, kept) for s in every if (kept := tuple(k for k in s.keys if k.has(words)))]
    if not found:
        raise TownletError(f"no key of a recipe speaks of '{search[:60]}'", "leave the words out to see all keys")
    return found


def _sections(model: type[BaseModel], path: str, title: str) -> Iterator[Section]:
    """The section of a model, then those of the parts below it."""
    own, parts = [], []
    for key, info in fields_by_key(model).items():
        if key != "name":  # the title says it
            own.append(Key(path + key, _default(info), info.description or ""))
        parts += [(part, path + key) for part in _parts(info)]
    yield Section(title, " ".join((model.__doc__ or "").split()), tuple(own))
    for part, below_path in parts:
        names = " or ".join(map(str, child_choices(AllowedType(part), "name")))
        yield from _sections(part, f"{below_path}.", f"{below_path}: {names}" if names else below_path)


def _parts(info: FieldInfo) -> list[type[BaseModel]]:
    """The models that may stand under a key, alone or as entries of a list; schedules are told of once for all."""
    kinds = [part for kind in allowed_types_of_field(info) for part in (kind, *child_types(kind, 0))]
    return [kind.model for kind in kinds if kind.model is not None and kind.model is not Schedule]


def _default(info: FieldInfo) -> str:
    """The default as it would stand in a file; of a part its name alone, since the keys below it tell the rest."""
    if info.is_required():
        return "needed"
    value: Any = info.get_default(call_default_factory=True)
    if isinstance(value, Schedule):
        return to_flow_yaml(value.model_dump(exclude_defaults=True))
    return str(getattr(value, "name", "as below")) if isinstance(value, BaseModel) else to_flow_yaml(value)
