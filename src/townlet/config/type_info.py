"""What a model expects at a place, found from its annotations and said in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from townlet.config.models import RegistryUnion

LIMITS: Final = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
ENTRIES: Final = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


@dataclass(frozen=True)
class AllowedType:
    """One type that is allowed at a place, with its limits."""

    type: Any
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> type[BaseModel] | None:
        return self.type if isinstance(self.type, type) and issubclass(self.type, BaseModel) else None

    @property
    def choices(self) -> tuple[Any, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the keys that a file has for them."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def allowed_types_of_field(info: FieldInfo) -> tuple[AllowedType, ...]:
    """The types that a field allows, without None; of a registry all that it has now."""
    for location in info.metadata:
        if isinstance(location, RegistryUnion):
            return tuple(AllowedType(model) for model in location.models())
    return allowed_types(info.annotation, _limits(info.metadata))


def allowed_types(annotation: Any, limits: Mapping[str, Any] | None = None) -> tuple[AllowedType, ...]:
    """The types that an annotation allows, without None."""
    limits = limits or {}
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        return allowed_types(inner, {**limits, **_limits(metadata)})
    if origin in (Union, UnionType):
        return tuple(kind for union_member in get_args(annotation) for kind in allowed_types(union_member, limits))
    return () if annotation is NoneType else (AllowedType(annotation, limits),)


def child_types(kind: AllowedType, item: str | int) -> tuple[AllowedType, ...]:
    """The types allowed under a key or index of a value of this kind; none when nothing may be there."""
    if kind.model is not None:
        info = fields_by_key(kind.model).get(str(item))
        return allowed_types_of_field(info) if info else ()
    origin, args = get_origin(kind.type), get_args(kind.type)
    if origin is dict:
        return allowed_types(args[1])
    if origin in (tuple, list, set, frozenset) and isinstance(item, int):
        if origin is not tuple or args[-1] is Ellipsis:
            return allowed_types(args[0])
        return allowed_types(args[item]) if item < len(args) else ()
    return ()


def key_types(kind: AllowedType) -> tuple[AllowedType, ...]:
    """The types allowed as keys of a mapping of this kind."""
    return allowed_types(get_args(kind.type)[0]) if get_origin(kind.type) is dict else ()


def union_member(kinds: Sequence[AllowedType], tag: str) -> tuple[AllowedType, ...]:
    """The arm of a union that pydantic calls by this tag: a discriminator's value or the name of a type."""
    by_value = tuple(k for k in kinds if k.model and any(tag in child_choices(k, f) for f in fields_by_key(k.model)))
    word = tag.split("[")[0].removeprefix("constrained-")
    by_type = tuple(k for k in kinds if _type_name(k) == word)
    by_part = tuple(k for k in kinds if _type_name(k) in tag)
    return by_value[:1] or by_type[:1] or by_part[:1] or tuple(kinds[:1])


def child_choices(kind: AllowedType, item: str) -> tuple[Any, ...]:
    """The words to choose from under a key, if it is a choice."""
    return tuple(choice for k in child_types(kind, item) for choice in k.choices)


def describe(kinds: Sequence[AllowedType]) -> str:
    """What to write at a place that allows these kinds."""
    tags = [str(tag) for kind in kinds if kind.model for tag in child_choices(kind, "name")]
    if len(kinds) > 1 and all(kind.model for kind in kinds) and tags:
        return f"a mapping whose name is one of {', '.join(tags)}"
    return " or ".join(dict.fromkeys(_one_in_words(kind) for kind in kinds)) or "another value"


def _one_in_words(kind: AllowedType) -> str:
    if kind.model is not None:
        keys = list(fields_by_key(kind.model))
        return "a mapping with the keys " + ", ".join(keys[:6]) + (", …" if len(keys) > 6 else "")
    if kind.choices:
        return ("one of " if len(kind.choices) > 1 else "") + ", ".join(str(c) for c in kind.choices)
    if kind.type is bool:
        return "true or false"
    if kind.type is int:
        return "a whole number" + _range(kind.limits)
    if kind.type is float:
        return "a number" + _range(kind.limits)
    if kind.type is str:
        pattern = kind.limits.get("pattern")
        return "a text" + _length(kind.limits, " of {} characters") + (f" that matches {pattern}" if pattern else "")
    origin, args = get_origin(kind.type), get_args(kind.type)
    if origin is dict:
        return "a mapping {key: value}"
    if origin is tuple and Ellipsis not in args:
        return f"a list of {len(args)} {_entries(args[0])}"
    if origin in (tuple, list, set, frozenset):
        return f"a list of {_entries(args[0])}" + _length(kind.limits, ", {} of them")
    return str(getattr(kind.type, "__name__", kind.type))


def _entries(annotation: Any) -> str:
    kinds = allowed_types(annotation)
    if len(kinds) == 1 and kinds[0].type in ENTRIES:
        return ENTRIES[kinds[0].type]
    return "mappings" if all(kind.model for kind in kinds) else "values"


def _range(limits: Mapping[str, Any]) -> str:
    low, above, high, under = (_number(limits.get(key)) for key in ("ge", "gt", "le", "lt"))
    if low is not None and high is not None:
        return f" from {low} to {high}"
    lower = f" of at least {low}" if low is not None else f" above {above}" if above is not None else ""
    upper = f"up to {high}" if high is not None else f"below {under}" if under is not None else ""
    return lower + (" and" if lower and upper else "") + (f" {upper}" if upper else "")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _length(limits: Mapping[str, Any], form: str) -> str:
    least, most = limits.get("min_length"), limits.get("max_length")
    if least is not None and most is not None:
        return form.format(f"{least} to {most}")
    if least is None and most is None:
        return ""
    return form.format(f"at least {least}" if least is not None else f"at most {most}")


def _limits(metadata: Sequence[Any]) -> dict[str, Any]:
    """The limits among an annotation's metadata, whatever library's objects carry them."""
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            found |= _limits(item.metadata)
        else:
            found |= {key: value for key in LIMITS if (value := getattr(item, key, None)) is not None}
    return found


def _type_name(kind: AllowedType) -> str:
    return "literal" if kind.choices else str(getattr(get_origin(kind.type) or kind.type, "__name__", kind.type))
