"""JSON Schema of a model, for editors that complete and check YAML while one types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

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
