"""Messages in an envelope, `{"type": …, "data": {…}}`: the fields of a message are in `data` instead of beside `type`.

The form belongs to the connection, not to the message: what is decided, stored and repeated has no envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KEYS: Final = {"type", "data"}


def is_enveloped(message: Mapping[str, Any]) -> bool:
    """Whether a message is in an envelope; no message of a domain has these two fields only."""
    return message.keys() == KEYS


def unwrap(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message in an envelope; raises ValueError if `data` does not hold its fields."""
    data = message["data"]
    if not isinstance(data, dict):
        raise ValueError("`data` must be a JSON object with the fields of the message")
    if "type" in data:
        raise ValueError("`type` must be beside `data`, not in it")
    return {"type": message["type"], **data}


def wrap(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message in an envelope."""
    return {"type": message["type"], "data": {name: value for name, value in message.items() if name != "type"}}


def add_schema(messages: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """JSON Schemas of messages by `type`, and as `envelope` the schema of the same messages in an envelope."""
    definitions: dict[str, Any] = {}
    forms = []
    for name, schema in messages.items():
        definitions |= schema.get("$defs", {})
        data = {key: value for key, value in schema.items() if key != "$defs"}
        data["properties"] = {field: value for field, value in schema["properties"].items() if field != "type"}
        data["required"] = [field for field in schema.get("required", ()) if field != "type"]
        properties = {"type": {"const": name}, "data": data}
        forms.append(
            {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        )
    envelope: dict[str, Any] = {
        "title": "Envelope",
        "description": "Any message in an envelope. A message in an envelope is answered in an envelope.",
        "oneOf": forms,
    }
    if definitions:
        envelope["$defs"] = definitions
    return {**messages, "envelope": envelope}
