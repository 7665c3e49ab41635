"""The protocol as a page for people, made from the models themselves."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

from pydantic import BaseModel

from townlet.live.protocol import LARGEST, VERSION, FromPage, FromServer, messages

HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Townlet: the protocol of the live page</title>
<link rel="icon" href="/static/icons/townlet.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css"><link rel="stylesheet" href="/static/manual.css"></head>
<body><main class="manual">"""


def manual() -> str:
    """Every message of both directions, with what its fields are."""
    parts = [
        HEAD,
        "<h1>The protocol of the live page</h1>",
        f"<p>Version {VERSION}. A WebSocket at <code>/ws</code>; every message is one JSON object with a "
        f"<code>type</code>, at most {LARGEST:,} bytes from a client. What is not understood is answered with "
        "<code>error</code>, and the conversation goes on. The same as JSON Schema: "
        '<a href="/docs/protocol.json">protocol.json</a>.</p>',
        "<h2>From a page</h2>",
        *map(_message, messages(FromPage)),
        "<h2>From the server</h2>",
        *map(_message, messages(FromServer)),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _message(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    fields = {name: about for name, about in schema["properties"].items() if name != "type"}
    required = set(schema.get("required", ()))
    rows = "".join(_field(name, about, name in required) for name, about in fields.items())
    table = f"<table><tr><th>field</th><th>type</th><th>what it is</th></tr>{rows}</table>" if rows else ""
    name = str(schema["properties"]["type"]["const"])
    return f'<section id="{name}"><h3><code>{name}</code></h3><p>{escape(schema["description"])}</p>{table}</section>'


def _field(name: str, about: dict[str, Any], required: bool) -> str:
    said = escape(about.get("description", ""))
    if not required:
        said = f"{said} Default: {escape(_value(about.get('default')))}.".strip()
    return f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(about))}</td><td>{said}</td></tr>"


def _kind(about: dict[str, Any]) -> str:
    """A JSON type in words, with its limits."""
    if "anyOf" in about:
        return " or ".join(_kind(part) for part in about["anyOf"])
    if "enum" in about:
        return ", ".join(_value(value) for value in about["enum"])
    kind = str(about.get("type", "anything"))
    if kind == "array":
        return f"list of {_kind(about['items'])}" if "items" in about else "list"
    limits = [f"{words} {about[key]}" for key, words in (("minimum", "from"), ("maximum", "to")) if key in about]
    return " ".join([kind, *limits])


def _value(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
