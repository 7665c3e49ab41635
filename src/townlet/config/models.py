"""The parent of everything that is read from YAML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class StrictModel(BaseModel):
    """Frozen data: no unknown keys, no silent conversion of types, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class RegistryUnion:
    """Marks such a field: Annotated[Base, ByName(models)]. Validates as a union discriminated by `name` would.

    `models` is called whenever a value is validated, so that models registered after the class was built count too.
    """

    def __init__(self, models: Callable[[], Sequence[type[BaseModel]]]) -> None:
        self.models = models

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(_union(tuple(self.models())).core_schema)

    def _validate(self, value: Any) -> Any:
        return _union(tuple(self.models())).validate_python(value)


@lru_cache(maxsize=8)
def _union(models: tuple[type[BaseModel], ...]) -> TypeAdapter[Any]:
    """The union of these models as it is now."""
    arms: Any = reduce(or_, models)
    return TypeAdapter(Annotated[arms, Field(discriminator="name")])


WIDE: Final = 100  # from this ratio of the ends on, a factor counts as a step


class SearchRange(StrictModel):
    """The values that one key may take: a stretch from `low` to `high`, or some `choices`."""

    low: int | float | None = Field(
        None, description="The least value. Between whole numbers a key that is one stays one."
    )
    high: int | float | None = Field(None, description="The largest value.")
    log: bool | None = Field(
        None,
        description="Whether equal factors are equally likely; left out, where high is 100 times low or more.",
    )
    choices: tuple[Any, ...] = Field((), description="The values to choose from, of any kind: [16, 32, 64].")

    @model_validator(mode="after")
    def _makes_sense(self) -> SearchRange:
        if self.choices:
            if (self.low, self.high, self.log) != (None, None, None):
                raise ValueError("`choices` stand alone; leave out low, high and log")
            return self
        if self.low is None or self.high is None:
            raise ValueError("give `low` and `high`, or `choices`")
        if self.low >= self.high:
            raise ValueError(f"`low` ({self.low:g}) must be below `high` ({self.high:g})")
        if self.log and self.low <= 0:
            raise ValueError("by factors one cannot leave 0; give a `low` above 0")
        return self

    @property
    def is_log(self) -> bool:
        """Whether equal factors are equally likely, also where nothing is said."""
        if self.log is not None or self.low is None or self.high is None:
            return bool(self.log)
        return self.low > 0 and self.high >= WIDE * self.low

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must go with the recipe, or none between them does."""
        return self.choices or (self.low, self.high)


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(model: type[BaseModel], extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema of files of this model: no key is required, since a file may inherit it; `extra` are
    the schemas of further top-level keys."""
    schema: dict[str, Any] = _without_required(model.model_json_schema())
    schema["properties"] = {**(extra or {}), **schema.get("properties", {})}
    return {"$schema": DIALECT, **schema}


def _without_required(schema: Any) -> Any:
    """The same schema without `required`; a property of that name is kept."""
    if isinstance(schema, list):
        return [_without_required(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    names = ("properties", "$defs")  # below these the keys are names, not words of the schema language
    return {
        key: {name: _without_required(part) for name, part in value.items()}
        if key in names
        else _without_required(value)
        for key, value in schema.items()
        if not (key == "required" and isinstance(value, list))
    }
