"""The reference of the page's protocol as an HTML page, generated from its messages."""

from __future__ import annotations

import json
from html import escape
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.fields import FieldInfo

from townlet.live.messages import MAX_MESSAGE_BYTES
from townlet.live.protocol import CLIENT_MESSAGE, VERSION, ClientMessage, ServerMessage


def json_schema() -> dict[str, Any]:
    """JSON Schema of the messages in both directions."""
    server: TypeAdapter[Any] = TypeAdapter(Annotated[ServerMessage, Field(discriminator="type")])
    return {
        "version": VERSION,
        "transport": "a WebSocket at /ws; every message is one JSON object with a `type`",
        "max_message_bytes": MAX_MESSAGE_BYTES,
        "client": CLIENT_MESSAGE.json_schema(),
        "server": server.json_schema(mode="serialization"),
    }


LIMITS: Final = {"ge": "at least", "le": "at most", "lt": "below"}
PAGE_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Townlet: live protocol</title>
<link rel="icon" href="/static/icons/townlet.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css"></head>
<body><main class="reference">"""


def protocol_page() -> str:
    """Reference of all messages as an HTML page, generated from the models."""
    client_union, *_ = get_args(ClientMessage)
    client, server = (map(_message_section, get_args(union)) for union in (client_union, ServerMessage))
    parts = [
        PAGE_HEAD,
        "<h1>Live protocol</h1>",
        f"<p>Version {VERSION}. Connect a WebSocket to <code>/ws</code>. Every message is one JSON object with a "
        f"<code>type</code>, at most {MAX_MESSAGE_BYTES:,} bytes from a client. An invalid message is answered with "
        '<code>error</code>, and the connection stays open. As JSON Schema: <a href="/docs/protocol.json">'
        "protocol.json</a>.</p>",
        "<h2>Client to server</h2>" + "\n".join(client),
        "<h2>Server to client</h2>" + "\n".join(server),
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _message_section(model: type[BaseModel]) -> str:
    name = model.model_fields["type"].default
    rows = "".join(_field_row(name, field) for name, field in model.model_fields.items() if name != "type")
    table = f"<table><tr><th>field</th><th>type</th><th>description</th></tr>{rows}</table>" if rows else ""
    return f'<section id="{name}"><h3><code>{name}</code></h3><p>{escape(model.__doc__ or "")}</p>{table}</section>'


def _field_row(name: str, field: FieldInfo) -> str:
    kind = str(getattr(field.annotation, "__name__", field.annotation)).replace("typing.", "")
    limits = [f"{word} {limit}" for part in field.metadata for key, word in LIMITS.items()
              if (limit := getattr(part, key, None)) is not None]  # fmt: skip
    default = [] if field.is_required() else [f"Default: {json.dumps(field.default)}."]
    text = " ".join([field.description or "", *default])
    cells = (f"<code>{escape(name)}</code>", escape(", ".join([kind, *limits])), escape(text))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
