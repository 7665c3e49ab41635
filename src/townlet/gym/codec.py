"""Plain Python values as trees of arrays and JSON, and back: tuples stay tuples, NumPy's numbers stay NumPy's."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from townlet.errors import TownletError
from townlet.interfaces.state import State

SAME: Final = "resume with the recipe and number of rows that it was saved with"  # `contract.restore` wants torch
TAG: Final = "~"  # marks a mapping that stands for a value which JSON does not know
NUMBERS: Final = "biuf"  # kinds of arrays that a checkpoint holds as they are
GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
DEPTH: Final = 12
LARGE: Final = 2**63  # from here on JSON's readers differ


class UnsupportedValue(ValueError):
    """A value that is not plain."""


def _tagged(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {TAG: kind, "is": value, **more}


def encode(value: Any, depth: int = 0) -> Any:
    """A value as JSON, or as an array when it is one; `Unfit` when it is not plain."""
    if depth > DEPTH:
        raise UnsupportedValue("nested too deeply")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -LARGE < value < LARGE else _tagged("int", hex(value))
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is np.ndarray and value.dtype.kind in NUMBERS:
        return value.copy() if not depth else _as_json(value)
    if kind is np.ndarray and value.dtype.kind in "SU":
        return _as_json(value)
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS + "SU":
        return _tagged("scalar", _as_json(np.asarray(value)))
    if kind in (tuple, list):
        return _tagged(kind.__name__, [encode(v, depth + 1) for v in value])
    if kind is deque:
        return _tagged("deque", [encode(v, depth + 1) for v in value], maxlen=value.maxlen)
    if kind is dict:
        return _tagged("dict", [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()])
    if kind is bytes:
        return _tagged("bytes", value.hex())
    if kind is np.random.Generator and type(value.bit_generator).__name__ in GENERATORS:
        return _tagged("generator", encode(value.bit_generator.state, depth + 1))
    raise UnsupportedValue(f"a {kind.__name__}")


def decode(tree: Any) -> Any:
    """The value that was encoded."""
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if not isinstance(tree, Mapping):
        return tree
    kind, inner = tree[TAG], tree["is"]
    if kind == "int":
        return int(inner, 16)
    if kind == "float":
        return float(inner)
    if kind == "array":
        return _from_json(tree)
    if kind == "scalar":
        return _from_json(inner)[()]
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "dict":
        return {decode(k): decode(v) for k, v in inner}
    if kind == "generator":
        return _generator(decode(inner))
    values = [decode(v) for v in inner]
    if kind == "deque":
        return deque(values, tree["maxlen"])
    return tuple(values) if kind == "tuple" else values


def _as_json(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An array where only JSON may stand."""
    if array.dtype.kind == "S":
        flat: list[Any] = [text.decode("latin-1") for text in array.reshape(-1).tolist()]
    else:
        flat = [v if not isinstance(v, float) or math.isfinite(v) else repr(v) for v in array.reshape(-1).tolist()]
    return _tagged("array", flat, dtype=array.dtype.str, shape=list(array.shape))


def _from_json(tree: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    flat = [v.encode("latin-1") for v in tree["is"]] if "S" in tree["dtype"] else tree["is"]
    return np.array(flat, np.dtype(tree["dtype"])).reshape(tree["shape"])


def _generator(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in GENERATORS:
        raise TownletError(f"a random generator '{name}' is not known", SAME)
    bits = getattr(np.random, name)(0)
    bits.state = state
    return np.random.Generator(bits)


def digest(value: Any) -> str:
    """A fingerprint of a plain value, the same in every process."""
    text = json.dumps(_jsonable(encode(value, 1)), allow_nan=False)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def pack(rows: list[State]) -> State:
    """Trees of many rows as one: arrays of one shape are stacked, what is the same in all rows stands once."""
    first = rows[0]
    packed: State = {}
    for name, value in first.items():
        found = [row[name] for row in rows]
        if isinstance(value, dict) and TAG not in value and all(isinstance(f, dict) and TAG not in f for f in found):
            packed[name] = pack(found)
        elif all(isinstance(f, np.ndarray) and (f.shape, f.dtype) == (value.shape, value.dtype) for f in found):
            packed[name] = np.stack(found)
        else:
            each = [_jsonable(f) for f in found]
            packed[name] = _tagged("all", each[0]) if all(e == each[0] for e in each) else _tagged("each", each)
    return packed


def unpack(state: Mapping[str, Any], rows: int) -> list[State]:
    """The trees of `rows` rows that were packed."""
    trees: list[State] = [{} for _ in range(rows)]
    for name, value in state.items():
        for tree, part in zip(trees, _parts(value, rows, name), strict=True):
            tree[name] = part
    return trees


def _parts(value: Any, rows: int, name: str) -> list[Any]:
    parts: list[Any]
    if not isinstance(value, Mapping):
        whole = np.asarray(value)  # a tensor, when it comes from a checkpoint
        parts = [whole[n, ...] for n in range(len(whole))]
    elif TAG not in value:
        parts = list(unpack(value, rows))
    else:
        parts = [value["is"]] * rows if value[TAG] == "all" else list(value["is"])
    if len(parts) != rows:
        raise TownletError(f"'{name}' was saved for {len(parts)} rows, here are {rows}", SAME)
    return parts


def _jsonable(tree: Any) -> Any:
    return _as_json(tree) if isinstance(tree, np.ndarray) else tree
