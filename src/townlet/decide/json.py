"""JSON as it comes, goes and is kept, by the parser of the models: several times as quick as the one of Python."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json, to_json


def parsed(text: str | bytes) -> Any:
    """What a text says; raises ValueError where it is not JSON, and NaN is not."""
    return from_json(text, allow_inf_nan=False)


def written(value: Any) -> bytes:
    """A value as compact JSON; raises ValueError where it holds what JSON cannot say."""
    text = to_json(value)
    if b"NaN" in text or b"Infinity" in text:  # perhaps only in somebody's name
        json.dumps(value, allow_nan=False)
    return text
