"""A tree of nodes into a model: every mistake at once, each with its place, the value and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from townlet.config.merge import entry_name
from townlet.config.scalar import shorten, show
from townlet.config.type_info import (
    AllowedType,
    child_choices,
    child_types,
    describe,
    fields_by_key,
    key_types,
    union_member,
)
from townlet.config.yaml import MAX_DIAGNOSTICS, Node
from townlet.errors import ConfigError, Diagnostic, did_you_mean, nearest

M = TypeVar("M", bound=BaseModel)

MENDS: Final = 3  # taking out a wrong value may uncover another

# These say only that a value is of the wrong sort; in a union the other arms may still say more.
WRONG_SORT: Final = ("literal_error", "none_required", "model_attributes_type")


@dataclass(frozen=True)
class _Error:
    """One of pydantic's errors, led back to the node and the type it is about."""

    type: str
    path: tuple[str | int, ...]
    kinds: tuple[AllowedType, ...]  # allowed at the path
    owner: tuple[AllowedType, ...]  # allowed one level above
    union: tuple[str | int, ...] | None  # path of the union whose arm complains
    value: Any
    message: str
    about_key: bool

    @property
    def wrong_sort(self) -> bool:
        return self.path == self.union and (self.type.endswith("_type") or self.type in WRONG_SORT)


def validate_model(model: type[M], node: Node, extra: Sequence[str] = ()) -> M:
    """The model of these values; raises ConfigError. `extra` are further top-level keys worth suggesting."""
    built, errors = _validate(model, node)
    if built is not None:
        return built
    mistakes = [_diagnostic(e, node, extra) for e in errors]
    raise ConfigError(ConfigError(mistakes).diagnostics[:MAX_DIAGNOSTICS])


def validate_partially(model: type[M], node: Node, droppable: Sequence[str] = ()) -> tuple[M, Node] | None:
    """The model of what is left when wrong values are taken out, so that later checks can speak as well.

    An entry whose `name` is wrong can be taken out of `droppable` lists only: of others too much hangs on it.
    """
    for _ in range(MENDS):
        built, errors = _validate(model, node)
        if built is not None:
            return built, node
        paths = {e.path[:-1] if e.path[-1:] == ("name",) and e.path[0] in droppable else e.path for e in errors}
        if any(not path or path[-1] == "name" or _at(node, path) is None for path in paths):
            return None  # something is missing, or too central
        for path in sorted(paths, key=lambda path: [str(item).rjust(9, "0") for item in path], reverse=True):
            node = node.without(*path)
    return None


def _validate(model: type[M], node: Node) -> tuple[M | None, list[_Error]]:
    try:
        return model.model_validate(node.to_python()), []
    except ValidationError as error:
        raw = error.errors(include_url=False)[: 4 * MAX_DIAGNOSTICS]
    return None, _without_other_arms([_locate(model, item, node) for item in raw if not _follows(item)])


def _follows(item: Any) -> bool:
    """True for "too few entries" that only counts the good ones: the bad ones are reported already."""
    return bool(item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"])


def _locate(model: type[BaseModel], item: Any, node: Node) -> _Error:
    """Walk pydantic's location through the types; it holds names of union arms that are no keys."""
    path: list[str | int] = []
    kinds: tuple[AllowedType, ...] = (AllowedType(model),)
    owner: tuple[AllowedType, ...] = ()
    union: tuple[str | int, ...] | None = None
    for step in item["loc"]:
        if step == "[key]":
            kinds = key_types(owner[0])
            break
        if len(kinds) > 1:
            union = tuple(path)  # the innermost: in a choice by name only the chosen arm speaks
            kinds = union_member(kinds, str(step))
        else:
            path.append(step)
            owner, kinds = kinds, child_types(kinds[0], step) if kinds else ()
    found = _at(node, path)
    value = item["input"] if found is None else found.to_python()
    message = str(item["msg"]).removeprefix("Value error, ")
    return _Error(item["type"], tuple(path), kinds, owner, union, value, message, "[key]" in item["loc"])


def _at(node: Node, path: Iterable[str | int]) -> Node | None:
    found: Node | None = node
    for item in path:
        found = found.child(item) if found else None
    return found


def _without_other_arms(errors: list[_Error]) -> list[_Error]:
    """In a union keep what the fitting arm says; where none fits, one error that allows the kinds of all."""
    fitting = {e.union for e in errors if e.union is not None and not e.wrong_sort}
    misfits: dict[tuple[str | int, ...], _Error] = {}
    kept: list[_Error] = []
    for e in errors:
        if e.union is None or not e.wrong_sort:
            kept.append(e)
        elif e.union not in fitting:
            before = misfits.get(e.union)
            kinds = (*before.kinds, *e.kinds) if before else e.kinds
            misfits[e.union] = _Error(e.type, e.path, kinds, e.owner, None, e.value, e.message, e.about_key)
    return kept + list(misfits.values())


def _diagnostic(e: _Error, node: Node, extra: Sequence[str]) -> Diagnostic:
    """One error in words."""
    where, label, last = node.location_of(*e.path), _label(e.path, node), e.path[-1] if e.path else ""
    inside = _label(e.path[:-1], node)
    if e.type == "extra_forbidden":
        fields = {key: info for kind in e.owner if kind.model for key, info in fields_by_key(kind.model).items()}
        known = [*fields, *(extra if len(e.path) == 1 else [])]
        fix = _by_meaning(str(last)[:80], fields) if nearest(str(last)[:80], known) is None else None
        return Diagnostic(
            f"unknown key {show(last)}" + (f" in {inside}" if inside else ""), fix or _near(last, known), where
        )
    if e.type == "missing" and isinstance(last, str):
        return Diagnostic(f"{inside or 'the file'} has no '{last}'", f"add {last}: {describe(e.kinds)}", where)
    if e.type == "missing":  # a list of a fixed length is too short
        return _wrong_length(e.path[:-1], e.owner, e.value, node)
    if e.type in ("too_short", "too_long"):
        return _wrong_length(e.path, e.kinds, e.value, node)
    if e.type in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_name(e, node)
    if e.type in ("value_error", "assertion_error"):
        return Diagnostic(f"{label}: {e.message}" if label else e.message, "", where)
    if e.about_key:
        return Diagnostic(f"{inside} cannot have a key {show(last)}", f"write {describe(e.kinds)}", where)
    texts = any(kind.type is str or kind.choices for kind in e.kinds)
    text = "the text " if isinstance(e.value, str) and not texts else ""
    return Diagnostic(f"{label or 'the file'} cannot be {text}{show(e.value)}", _what_to_write(e), where)


def _what_to_write(e: _Error) -> str:
    """The nearest choice when a word was meant as one, else everything that is allowed."""
    choices = [str(choice) for kind in e.kinds for choice in kind.choices]
    near = _near(e.value, choices) if choices and isinstance(e.value, str) else ""
    return near if near.startswith("did you mean") else f"write {describe(e.kinds)}"


def _wrong_length(path: tuple[str | int, ...], kinds: tuple[AllowedType, ...], value: Any, node: Node) -> Diagnostic:
    found = _at(node, path)
    count = len(value if found is None else found.to_python())
    what = f"{_label(path, node)} has {count} {'entry' if count == 1 else 'entries'}"
    return Diagnostic(what, f"write {describe(kinds)}", node.location_of(*path))


def _wrong_name(e: _Error, node: Node) -> Diagnostic:
    """An entry that is told apart from others by its `name` has none or an unknown one."""
    names = [str(choice) for kind in e.kinds for choice in child_choices(kind, "name")]
    path = (*e.path, "name")
    if e.type == "union_tag_not_found":
        return Diagnostic(
            f"{_label(e.path, node)} has no 'name'", f"add name: one of {', '.join(names)}", node.location_of(*path)
        )
    name = e.value.get("name") if isinstance(e.value, dict) else e.value
    return Diagnostic(f"{_label(path, node)} cannot be {show(name)}", _near(name, names), node.location_of(*path))


def _by_meaning(word: str, fields: Mapping[str, FieldInfo]) -> str | None:
    """A hint for whoever wrote out what a key is short for, as learning_rate: the first words of its description."""
    meant = {
        re.split(r"[.,:;]", info.description or "")[0].strip().replace(" ", "_"): key for key, info in fields.items()
    }
    near = nearest(word, [phrase for phrase in meant if phrase])
    return f"did you mean '{meant[near]}'?" if near else None


def _near(word: object, known: Sequence[str]) -> str:
    return did_you_mean(str(word)[:80], known)


def _label(path: Sequence[str | int], node: Node) -> str:
    """The path as an override writes it, with the names of entries; an index where the name itself is wrong."""
    label = ""
    current: Node | None = node
    for depth, item in enumerate(path):
        current = current.child(item) if current else None
        if current is None and item == "name" and depth:
            break  # a bare word stands for an entry with that name
        if isinstance(item, int):
            name = entry_name(current) if current and isinstance(current.value, dict) else None
            wrong = path[depth + 1 : depth + 2] == ("name",)
            label += f".{shorten(name)}" if name and not wrong else f"[{item}]"
        else:
            label += f".{shorten(item)}"
    return label.removeprefix(".")
