"""The types that a model allows at a path, from its annotations, and their descriptions in messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from townlet.config.models import RegistryUnion

LIMITS: Final = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
PLURALS: Final = {int: "whole numbers", float: "numbers", str: "strings", bool: "true or false"}


@dataclass(frozen=True)
class AllowedType:
    """One allowed type, with its limits."""

    type: Any
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> type[BaseModel] | None:
        return self.type if isinstance(self.type, type) and issubclass(self.type, BaseModel) else None

    @property
    def choices(self) -> tuple[Any, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their keys in a file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def allowed_types_of_field(info: FieldInfo) -> tuple[AllowedType, ...]:
    """The types that a field allows, without None; for a registry, all current members."""
    for item in info.metadata:
        if isinstance(item, RegistryUnion):
            return tuple(AllowedType(model) for model in item.models())
    return allowed_types(info.annotation, _limits(info.metadata))


def allowed_types(annotation: Any, limits: Mapping[str, Any] | None = None) -> tuple[AllowedType, ...]:
    """The types that an annotation allows, without None."""
    limits = limits or {}
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return allowed_types(inner, {**limits, **_limits(metadata)})
    if origin in (Union, UnionType):
        return tuple(allowed for member in get_args(annotation) for allowed in allowed_types(member, limits))
    return () if annotation is NoneType else (AllowedType(annotation, limits),)


def child_types(allowed: AllowedType, item: str | int) -> tuple[AllowedType, ...]:
    """The types allowed at a key or index of a value of this type; empty if there can be none."""
    if allowed.model is not None:
        info = fields_by_key(allowed.model).get(str(item))
        return allowed_types_of_field(info) if info else ()
    origin, args = get_origin(allowed.type), get_args(allowed.type)
    if origin is dict:
        return allowed_types(args[1])
    if origin in (tuple, list, set, frozenset) and isinstance(item, int):
        if origin is not tuple or args[-1] is Ellipsis:
            return allowed_types(args[0])
        return allowed_types(args[item]) if item < len(args) else ()
    return ()


def union_member(types: Sequence[AllowedType], tag: str) -> tuple[AllowedType, ...]:
    """The union member that Pydantic's tag refers to: a discriminator's value or the name of a type."""
    by_value = tuple(k for k in types if k.model and any(tag in child_choices(k, f) for f in fields_by_key(k.model)))
    word = tag.split("[")[0].removeprefix("constrained-")
    by_type = tuple(k for k in types if _type_name(k) == word)
    by_part = tuple(k for k in types if _type_name(k) in tag)
    return by_value[:1] or by_type[:1] or by_part[:1] or tuple(types[:1])


def child_choices(allowed: AllowedType, item: str) -> tuple[Any, ...]:
    """The literal choices at a key, if it has any."""
    return tuple(choice for k in child_types(allowed, item) for choice in k.choices)


def describe(types: Sequence[AllowedType]) -> str:
    """What to write where these types are allowed."""
    tags = [str(tag) for allowed in types if allowed.model for tag in child_choices(allowed, "name")]
    if len(types) > 1 and all(allowed.model for allowed in types) and tags:
        return f"a mapping whose name is one of {', '.join(tags)}"
    return " or ".join(dict.fromkeys(_describe_one(allowed) for allowed in types)) or "another value"


def _describe_one(allowed: AllowedType) -> str:
    if allowed.model is not None:
        keys = list(fields_by_key(allowed.model))
        return "a mapping with the keys " + ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "")
    if allowed.choices:
        return ("one of " if len(allowed.choices) > 1 else "") + ", ".join(str(c) for c in allowed.choices)
    if allowed.type is bool:
        return "true or false"
    if allowed.type in (int, float):
        return ("a whole number" if allowed.type is int else "a number") + _range(allowed.limits)
    if allowed.type is str:
        pattern = allowed.limits.get("pattern")
        return (
            "a string" + _length(allowed.limits, " of {} characters") + (f" that matches {pattern}" if pattern else "")
        )
    origin, args = get_origin(allowed.type), get_args(allowed.type)
    if origin is dict:
        return "a mapping {key: value}"
    if origin is tuple and Ellipsis not in args:
        return f"a list of {len(args)} {_entries(args[0])}"
    if origin in (tuple, list, set, frozenset):
        return f"a list of {_entries(args[0])}" + _length(allowed.limits, ", {} of them")
    return str(getattr(allowed.type, "__name__", allowed.type))


def _entries(annotation: Any) -> str:
    types = allowed_types(annotation)
    if len(types) == 1 and types[0].type in PLURALS:
        return PLURALS[types[0].type]
    return "mappings" if all(allowed.model for allowed in types) else "values"


def _range(limits: Mapping[str, Any]) -> str:
    ge, gt, le, lt = (_number(limits.get(key)) for key in ("ge", "gt", "le", "lt"))
    if ge is not None and le is not None:
        return f" from {ge} to {le}"
    lower = ("of at least", ge) if ge is not None else ("above", gt)
    upper = ("up to", le) if le is not None else ("below", lt)
    return " and".join(f" {form} {limit}" for form, limit in (lower, upper) if limit is not None)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _length(limits: Mapping[str, Any], form: str) -> str:
    """`form` with the bounds of a length; "" without bounds."""
    minimum, maximum = limits.get("min_length"), limits.get("max_length")
    if minimum is not None and maximum is not None:
        return form.format(f"{minimum} to {maximum}")
    if minimum is None and maximum is None:
        return ""
    return form.format(f"at least {minimum}" if minimum is not None else f"at most {maximum}")


def _limits(metadata: Sequence[Any]) -> dict[str, Any]:
    """The limits in an annotation's metadata, from objects of any library."""
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            found |= _limits(item.metadata)
        else:
            found |= {key: value for key in LIMITS if (value := getattr(item, key, None)) is not None}
    return found


def _type_name(allowed: AllowedType) -> str:
    named = get_origin(allowed.type) or allowed.type
    return "literal" if allowed.choices else str(getattr(named, "__name__", allowed.type))
