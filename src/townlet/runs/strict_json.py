"""JSON without surprises: no NaN, no number beyond reach, no key twice, no endless nesting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

from townlet.errors import Mark, TownletError

MAX_DIGITS: Final = 40  # the state of a 128-bit generator has 39


def parse(text: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in `text`; anything else is refused with its reason."""
    try:
        found = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise _refusal("it is nested too deeply", path) from None
    except UnicodeDecodeError:
        raise _refusal("it is not UTF-8 text", path) from None
    except ValueError as error:  # a JSONDecodeError is one too
        raise _refusal(str(error), path) from None
    if not isinstance(found, dict):
        raise _refusal("it is not a JSON object", path)
    return found


def _refusal(why: str, path: Path) -> TownletError:
    return TownletError(f"{path.name} cannot be read: {why}", "it is damaged or foreign", Mark(str(path)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _constant(word: str) -> float:
    raise ValueError(f"{word} is not a number that JSON knows")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"the number {digits[:20]}… is too large")
    return int(digits)
