"""YAML 1.2 scalars: resolving unquoted text, writing values as flow-style YAML, and describing them in messages."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from townlet.errors import SourceLocation, TownletError

Scalar = str | int | float | bool | None

MAX_NUMBER_LENGTH: Final = 100  # characters
NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Control characters, lone surrogates, line breaks that editors do not count, and bidirectional controls: they can
# make a file look different from what the program reads.
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def resolve(text: str, where: SourceLocation) -> Scalar:
    """The value of an unquoted scalar in the core schema of YAML 1.2."""
    if text in NULL:
        return None
    if text in BOOL:
        return BOOL[text]
    if NOT_FINITE.fullmatch(text):
        raise TownletError(f"{text} is not a finite number", "write a finite number", where)
    too_long = len(text) > MAX_NUMBER_LENGTH  # checked first, because Python refuses to convert thousands of digits
    if INT.fullmatch(text):
        if too_long or abs(integer := int(text, 0 if text[:2] in ("0o", "0x") else 10)) >= 10**18:
            what = f"{shorten(text)} is too large for an integer"
            raise TownletError(what, "write at most 18 digits, or quote it as a string", where)
        return integer
    if FLOAT.fullmatch(text):
        if too_long or math.isinf(number := float(text)):
            what = f"{shorten(text)} is too large or too long for a number"
            raise TownletError(what, "write a smaller number", where)
        return number
    return text


def shorten(text: str, length: int = 40) -> str:
    """The text, truncated with an ellipsis if it is longer than `length`."""
    return text if len(text) <= length else text[: length - 1] + "…"


def describe_value(value: Any) -> str:
    """A short description of a value for a message."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}" if value else "an empty list"
    if value is None:
        return "empty (null)"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(shorten(value)) if isinstance(value, str) else shorten(str(value))


def to_flow_yaml(value: Any) -> str:
    """A value as one line of YAML 1.2."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(key)}: {to_flow_yaml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_flow_yaml, value)) + "]"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float) and value.is_integer() and 1 < abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value)


def quote(text: str) -> str:
    """A string as YAML: unquoted if it is a word that YAML reads as a string, otherwise in double quotes."""
    unquoted = WORD.fullmatch(text) and text.lower() not in ("true", "false", "null")
    return text if unquoted else json.dumps(text, ensure_ascii=False)
