"""Building blocks of settings models: a strict base class, unions from a registry, search ranges, JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from townlet.config.scalar import shorten

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
LOG_RATIO: Final = 100  # a range is logarithmic by default if high is at least this many times low


class StrictModel(BaseModel):
    """Frozen model: no unknown keys, no type coercion, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def first_error(errors: Sequence[Mapping[str, Any]], whole: str) -> str:
    """The first of pydantic's errors: the place of the value, `whole` if it is not a part, and what is wrong."""
    place = shorten(".".join(map(str, errors[0]["loc"])), 80) or whole
    return f"{place}: {errors[0]['msg'].removeprefix('Value error, ')}"


class RegistryUnion:
    """A union of registered models, discriminated by `name`: Annotated[Base, RegistryUnion(models)].

    `models` is called at every validation, so that it includes models that were registered later.
    """

    def __init__(self, models: Callable[[], Sequence[type[BaseModel]]]) -> None:
        self.models = models

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: self._union().validate_python(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self._union().core_schema)

    def _union(self) -> TypeAdapter[Any]:
        return _discriminated_union(tuple(self.models()))


@lru_cache(maxsize=8)
def _discriminated_union(models: tuple[type[BaseModel], ...]) -> TypeAdapter[Any]:
    union: Any = reduce(or_, models)
    return TypeAdapter(Annotated[union, Field(discriminator="name")])


class SearchRange(StrictModel):
    """Values to search for one key: a range from `low` to `high`, or `choices`."""

    low: int | float | None = Field(
        None, description="Lower end. Between two integers, a key that accepts integers gets integers."
    )
    high: int | float | None = Field(None, description="Upper end.")
    log: bool | None = Field(
        None,
        description="Sample logarithmically; by default if high is at least 100 times low.",
    )
    choices: tuple[Any, ...] = Field((), description="The values to choose from, of any type: [16, 32, 64].")

    @model_validator(mode="after")
    def _check(self) -> SearchRange:
        if self.choices:
            if (self.low, self.high, self.log) != (None, None, None):
                raise ValueError("`choices` cannot be combined with low, high or log")
            return self
        if self.low is None or self.high is None:
            raise ValueError("give `low` and `high`, or `choices`")
        if self.low >= self.high:
            raise ValueError(f"`low` ({self.low:g}) must be below `high` ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError("a logarithmic range needs a `low` above 0")
        return self

    @property
    def is_log(self) -> bool:
        """Whether to sample logarithmically, with the default resolved."""
        if self.log is not None or self.low is None or self.high is None:
            return bool(self.log)
        return self.low > 0 and self.high >= LOG_RATIO * self.low

    @property
    def checked_values(self) -> tuple[Any, ...]:
        """The values to check against the recipe: all choices, or both ends."""
        return self.choices or (self.low, self.high)


def json_schema(model: type[BaseModel], extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """JSON Schema of a file with the keys of this model. No key is required, because a file may inherit keys.

    `extra` holds the schemas of further top-level keys.
    """
    schema: dict[str, Any] = _without_required(model.model_json_schema())
    schema["properties"] = {**(extra or {}), **schema.get("properties", {})}
    return {"$schema": DIALECT, **schema}


def _without_required(schema: Any) -> Any:
    """The schema without `required`; a property of that name stays."""
    if isinstance(schema, list):
        return [_without_required(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):  # their keys are names, not schema keywords
            result[key] = {name: _without_required(part) for name, part in value.items()}
        elif key != "required" or not isinstance(value, list):
            result[key] = _without_required(value)
    return result
