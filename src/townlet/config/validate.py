"""Validate a tree of nodes against a Pydantic model; each error has its location, the value and a fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from townlet.config import type_info
from townlet.config.merge import entry_name
from townlet.config.scalar import describe_value, shorten
from townlet.config.type_info import AllowedType
from townlet.config.yaml import MAX_DIAGNOSTICS, Node
from townlet.errors import ConfigError, Diagnostic, did_you_mean, nearest

M = TypeVar("M", bound=BaseModel)

MAX_ATTEMPTS: Final = 3  # removing a wrong value may reveal another

# Error types, besides *_type, for a value of the wrong type: other members of a union may give a better message.
WRONG_TYPE: Final = ("literal_error", "none_required", "model_attributes_type")


@dataclass(frozen=True)
class _Error:
    """A Pydantic error, traced back to the path and the allowed types."""

    type: str
    path: tuple[str | int, ...]
    types: tuple[AllowedType, ...]  # allowed at the path
    owner: tuple[AllowedType, ...]  # allowed one level above
    union: tuple[str | int, ...] | None  # path of the union, if a member of one reports the error
    value: Any
    message: str
    about_key: bool  # whether a key of a mapping is wrong, not a value

    @property
    def wrong_type(self) -> bool:
        return self.path == self.union and (self.type.endswith("_type") or self.type in WRONG_TYPE)


def validate_model(model: type[M], node: Node, extra: Sequence[str] = ()) -> M:
    """The model of a tree; raises ConfigError if it is invalid. `extra` are further top-level keys to suggest."""
    built, errors = _validate(model, node)
    if built is not None:
        return built
    diagnostics = ConfigError(_diagnostic(e, node, extra) for e in errors).diagnostics  # sorted
    raise ConfigError(diagnostics[:MAX_DIAGNOSTICS])


def validate_partially(model: type[M], node: Node, droppable: Sequence[str] = ()) -> tuple[M, Node] | None:
    """The model and the tree without wrong values, so that later checks can run; None if that is impossible.

    A list entry with a wrong `name` is removed only from the lists in `droppable`; elsewhere, too much depends on it.
    """
    for _ in range(MAX_ATTEMPTS):
        built, errors = _validate(model, node)
        if built is not None:
            return built, node
        paths = {e.path[:-1] if e.path[-1:] == ("name",) and e.path[0] in droppable else e.path for e in errors}
        if any(not path or path[-1] == "name" or node.at(path) is None for path in paths):
            return None  # a required value is missing, or too much depends on it
        # From the last list entry to the first, so that the indices of the others stay valid.
        for path in sorted(paths, key=lambda path: [str(item).rjust(9, "0") for item in path], reverse=True):
            node = node.without(*path)
    return None


def _validate(model: type[M], node: Node) -> tuple[M | None, list[_Error]]:
    try:
        return model.model_validate(node.to_python()), []
    except ValidationError as error:
        raw: list[Any] = error.errors(include_url=False)[: 4 * MAX_DIAGNOSTICS]
    # Pydantic counts only valid entries: a list is too short only because of invalid ones, which are reported anyway.
    relevant = [e for e in raw if e["type"] != "too_short" or len(e["input"]) < e["ctx"]["min_length"]]
    return None, _drop_other_members([_locate(model, item, node) for item in relevant])


def _locate(model: type[BaseModel], item: Any, node: Node) -> _Error:
    """Follow Pydantic's location through the types; it contains names of union members, which are not keys."""
    path: list[str | int] = []
    types: tuple[AllowedType, ...] = (AllowedType(model),)
    owner: tuple[AllowedType, ...] = ()
    union: tuple[str | int, ...] | None = None
    for step in item["loc"]:
        if step == "[key]":
            types = type_info.allowed_types(get_args(owner[0].type)[0])  # of the keys of a mapping
            break
        if len(types) > 1:
            union = tuple(path)  # the innermost: in a discriminated union only the chosen member reports
            types = type_info.union_member(types, str(step))
        else:
            path.append(step)
            owner, types = types, type_info.child_types(types[0], step) if types else ()
    found = node.at(path)
    value = item["input"] if found is None else found.to_python()
    message = str(item["msg"]).removeprefix("Value error, ")
    return _Error(item["type"], tuple(path), types, owner, union, value, message, "[key]" in item["loc"])


def _drop_other_members(errors: list[_Error]) -> list[_Error]:
    """In a union keep the errors of the matching member; if none matches, one error that allows all types."""
    matched = {e.union for e in errors if e.union is not None and not e.wrong_type}
    unmatched: dict[tuple[str | int, ...], _Error] = {}
    kept: list[_Error] = []
    for e in errors:
        if e.union is None or not e.wrong_type:
            kept.append(e)
        elif e.union not in matched:
            before = unmatched.get(e.union)
            types = (*before.types, *e.types) if before else e.types
            unmatched[e.union] = replace(e, types=types, union=None)
    return kept + list(unmatched.values())


def _diagnostic(e: _Error, node: Node, extra: Sequence[str]) -> Diagnostic:
    where, last = node.location_of(*e.path), e.path[-1] if e.path else ""
    label, parent = _label(e.path, node), _label(e.path[:-1], node)
    if e.type == "extra_forbidden":
        models = [allowed.model for allowed in e.owner if allowed.model]
        fields = {key: info for model in models for key, info in type_info.fields_by_key(model).items()}
        known = [*fields, *(extra if len(e.path) == 1 else [])]
        meant = None if nearest(str(last)[:80], known) else _by_meaning(str(last)[:80], fields)
        what = f"unknown key {describe_value(last)}" + (f" in {parent}" if parent else "")
        return Diagnostic(what, meant or _near(last, known), where)
    if e.type == "missing" and isinstance(last, str):
        fix = f"add {last}: {type_info.describe(e.types)}"
        return Diagnostic(f"{parent or 'the file'} has no '{last}'", fix, where)
    if e.type == "missing":  # a list of a fixed length is too short
        return _wrong_length(e.path[:-1], e.owner, e.value, node)
    if e.type in ("too_short", "too_long"):
        return _wrong_length(e.path, e.types, e.value, node)
    if e.type in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_name(e, node)
    if e.type in ("value_error", "assertion_error"):
        return Diagnostic(f"{label}: {e.message}" if label else e.message, "", where)
    if e.about_key:
        fix = f"write {type_info.describe(e.types)}"
        return Diagnostic(f"{parent} cannot have a key {describe_value(last)}", fix, where)
    allows_strings = any(allowed.type is str or allowed.choices for allowed in e.types)
    prefix = "the string " if isinstance(e.value, str) and not allows_strings else ""
    choices = [str(choice) for allowed in e.types for choice in allowed.choices]
    near = nearest(e.value[:80], choices) if isinstance(e.value, str) else None
    fix = f"did you mean '{near}'?" if near else f"write {type_info.describe(e.types)}"
    return Diagnostic(f"{label or 'the file'} cannot be {prefix}{describe_value(e.value)}", fix, where)


def _wrong_length(path: tuple[str | int, ...], types: tuple[AllowedType, ...], value: Any, node: Node) -> Diagnostic:
    found = node.at(path)
    count = len(value if found is None else found.to_python())
    what = f"{_label(path, node)} has {count} {'entry' if count == 1 else 'entries'}"
    return Diagnostic(what, f"write {type_info.describe(types)}", node.location_of(*path))


def _wrong_name(e: _Error, node: Node) -> Diagnostic:
    """A member of a discriminated union has no `name` or an unknown one."""
    names = [str(choice) for allowed in e.types for choice in type_info.child_choices(allowed, "name")]
    path = (*e.path, "name")
    if e.type == "union_tag_not_found":
        fix = f"add name: one of {', '.join(names)}"
        return Diagnostic(f"{_label(e.path, node)} has no 'name'", fix, node.location_of(*path))
    name = e.value.get("name") if isinstance(e.value, dict) else e.value
    what = f"{_label(path, node)} cannot be {describe_value(name)}"
    return Diagnostic(what, _near(name, names), node.location_of(*path))


def _by_meaning(word: str, fields: Mapping[str, FieldInfo]) -> str | None:
    """A hint for a key that resembles the start of a description, such as learning_rate for lr."""
    meant = {
        re.split(r"[.,:;]", info.description or "")[0].strip().replace(" ", "_"): key for key, info in fields.items()
    }
    near = nearest(word, [phrase for phrase in meant if phrase])
    return f"did you mean '{meant[near]}'?" if near else None


def _near(word: object, known: Sequence[str]) -> str:
    return did_you_mean(str(word)[:80], known)


def _label(path: Sequence[str | int], node: Node) -> str:
    """The path as in an override, with entry names; an index if the name itself is wrong."""
    label = ""
    current: Node | None = node
    for depth, item in enumerate(path):
        current = current.child(item) if current else None
        if current is None and item == "name" and depth:
            break  # a string is an entry with that name
        if isinstance(item, int):
            name = entry_name(current) if current and isinstance(current.value, dict) else None
            wrong = path[depth + 1 : depth + 2] == ("name",)
            label += f".{shorten(name)}" if name and not wrong else f"[{item}]"
        else:
            label += f".{shorten(item)}"
    return label.removeprefix(".")
