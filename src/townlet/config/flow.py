"""Values written back as YAML 1.2, in one line."""

from __future__ import annotations

import json
import re
from typing import Any, Final

WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def flow(value: Any) -> str:
    """A value in one line, as YAML 1.2 reads it back."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{word(key)}: {flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return word(value)
    if isinstance(value, float) and value.is_integer() and 1 < abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value)


def word(text: str) -> str:
    """A text, bare where YAML reads it back as the same text."""
    plain = WORD.fullmatch(text) and text.lower() not in ("true", "false", "null")
    return text if plain else json.dumps(text, ensure_ascii=False)
