"""Serialization of state: nested mappings as flat leaves, named by their keys joined by "/"; and strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.interfaces.state import State

MAX_DIGITS: Final = 40  # the state of a 128-bit generator has 39
MAX_DEPTH: Final = 32
_TOO_LARGE: Final = 10 ** (MAX_DIGITS - 1)  # one digit less than MAX_DIGITS, which counts the sign


def parse_json(text: bytes, path: Path) -> dict[str, Any]:
    """The JSON object in `text`; raises for NaN, duplicate keys, huge numbers and deep nesting."""
    try:
        content = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except RecursionError:
        raise _unreadable("it is nested too deeply", path) from None
    except UnicodeDecodeError:
        raise _unreadable("it is not UTF-8 text", path) from None
    except ValueError as error:  # a JSONDecodeError is one too
        raise _unreadable(str(error), path) from None
    if not isinstance(content, dict):
        raise _unreadable("it is not a JSON object", path)
    return content


def _unreadable(why: str, path: Path) -> TownletError:
    fix = "restore it from a backup; it is damaged or was not written by Townlet"
    return TownletError(f"{path.name} cannot be read: {why}", fix, path)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not valid JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"the number {digits[:20]}… is too large")
    return int(digits)


def flatten(state: State) -> dict[str, Any]:
    """Every leaf by its path: contiguous CPU tensors and JSON values. An empty mapping is a leaf too."""
    return dict(_leaves(state, (), 0))


def unflatten(leaves: Mapping[str, Any]) -> State:
    """The nested state of these leaves; raises TownletError if a name is both a leaf and a branch."""
    state: State = {}
    branches: dict[tuple[str, ...], State] = {(): state}
    for name, leaf in leaves.items():
        parts = tuple(part.replace("%2F", "/").replace("%25", "%") for part in name.split("/"))
        if len(parts) > MAX_DEPTH:
            raise _invalid_part(name, f"lies deeper than {MAX_DEPTH} levels")
        for depth in range(1, len(parts)):
            stem = parts[:depth]
            if stem not in branches:
                if stem[-1] in branches[stem[:-1]]:
                    raise _invalid_part(name, "lies below a value")
                branches[stem] = branches[stem[:-1]][stem[-1]] = {}
        parent = branches[parts[:-1]]
        if parts[-1] in parent:
            raise _invalid_part(name, "occurs twice")
        parent[parts[-1]] = leaf
    return state


def _leaves(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[str, Any]]:
    name = "/".join(path)
    if isinstance(value, Mapping) and (value or not path):
        if depth == MAX_DEPTH:
            raise _invalid_part(name, f"is nested deeper than {MAX_DEPTH} levels")
        for key, inner in value.items():
            yield from _leaves(inner, (*path, _key(key, name)), depth + 1)
    elif isinstance(value, Tensor | np.ndarray | np.generic):
        yield name, _tensor(value, name)
    else:
        yield name, json_value(value, name, depth)


def _key(key: Any, name: str) -> str:
    """A key as one part of a path, with "/" escaped."""
    if not isinstance(key, str):
        raise _invalid_part(f"{name}/{key!r}", "has a name that is not a string")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise _invalid_part(f"{name}/{key!r}", "has a name that cannot be encoded as UTF-8") from None
    return key.replace("%", "%25").replace("/", "%2F")


def _tensor(value: Tensor | np.ndarray[Any, Any] | np.generic, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        native = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])  # torch warns of read-only memory
        try:
            value = torch.from_numpy(native.reshape(array.shape))
        except TypeError:
            raise _invalid_part(name, f"is an array of {array.dtype}") from None
    if value.is_sparse or value.is_quantized:
        raise _invalid_part(name, "is not a dense tensor")
    return value.detach().to("cpu").contiguous()


def json_value(value: Any, name: str, depth: int = 0) -> Any:
    """A JSON value that reads back as it was written (tuples become lists)."""
    if depth > MAX_DEPTH:
        raise _invalid_part(name, f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            raise _invalid_part(name, "is an integer that is too large")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _invalid_part(name, f"is {value}")
        return float(value)
    if isinstance(value, list | tuple):
        return [json_value(item, name, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: json_value(item, name, depth + 1) for key, item in value.items()}
    raise _invalid_part(name, f"is a {type(value).__name__}")


def _invalid_part(name: str, why: str) -> TownletError:
    fix = "use mappings with string keys that hold tensors, arrays, finite numbers, booleans, strings, None or lists"
    return TownletError(f"the part '{name}' of the state {why}", fix)
