"""A field that holds one of several models, chosen by its `name` from a registry that can grow at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class ByName:
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
