"""Encoding of plain Python values as JSON and arrays, and decoding with their exact types.

Unlike `runs.serialization`, this keeps tuples, NumPy scalars and random generators distinct, and runs without torch in
the worker processes of environments.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from townlet.errors import TownletError
from townlet.interfaces.state import State

SAME_RECIPE: Final = "resume with the recipe and number of rows of the saved run"
TAG: Final = "~"  # marks a mapping that encodes a value unknown to JSON
NUMBERS: Final = "biuf"  # dtype kinds that a checkpoint stores as arrays
GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
MAX_DEPTH: Final = 12
MAX_INT: Final = 2**63  # larger integers are written as text, since JSON readers differ on them


class UnsupportedValue(ValueError):
    """A value that cannot be encoded."""


def _tagged(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {TAG: kind, "is": value, **more}


def encode(value: Any, depth: int = 0) -> Any:
    """Encode a value as JSON; a top-level numeric array (`depth` 0) is only copied. Raises `UnsupportedValue`."""
    if depth > MAX_DEPTH:
        raise UnsupportedValue("nested too deeply")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -MAX_INT < value < MAX_INT else _tagged("int", hex(value))
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is np.ndarray and value.dtype.kind in NUMBERS:
        return value.copy() if not depth else _array_to_json(value)
    if kind is np.ndarray and value.dtype.kind in "SU":
        return _array_to_json(value)
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS + "SU":
        return _tagged("scalar", _array_to_json(np.asarray(value)))
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
    """The value that `encode` was given."""
    if isinstance(tree, np.ndarray):
        return tree.copy()
    return _DECODERS[tree[TAG]](tree) if isinstance(tree, Mapping) else tree


def _array_to_json(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    flat: list[Any] = array.reshape(-1).tolist()
    if array.dtype.kind == "S":
        flat = [text.decode("latin-1") for text in flat]
    else:
        flat = [v if not isinstance(v, float) or math.isfinite(v) else repr(v) for v in flat]
    return _tagged("array", flat, dtype=array.dtype.str, shape=list(array.shape))


def _array_from_json(tree: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    flat = [v.encode("latin-1") for v in tree["is"]] if "S" in tree["dtype"] else tree["is"]
    return np.array(flat, np.dtype(tree["dtype"])).reshape(tree["shape"])


def _generator(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in GENERATORS:
        raise TownletError(f"unknown random generator '{name}' in the saved state", SAME_RECIPE)
    bits = getattr(np.random, name)(0)
    bits.state = state
    return np.random.Generator(bits)


_DECODERS: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "int": lambda tree: int(tree["is"], 16),
    "float": lambda tree: float(tree["is"]),
    "array": _array_from_json,
    "scalar": lambda tree: _array_from_json(tree["is"])[()],
    "bytes": lambda tree: bytes.fromhex(tree["is"]),
    "dict": lambda tree: {decode(k): decode(v) for k, v in tree["is"]},
    "generator": lambda tree: _generator(decode(tree["is"])),
    "deque": lambda tree: deque(map(decode, tree["is"]), tree["maxlen"]),
    "tuple": lambda tree: tuple(map(decode, tree["is"])),
    "list": lambda tree: list(map(decode, tree["is"])),
}


def digest(value: Any) -> str:
    """Hash of an encodable value, the same in every process."""
    text = json.dumps(_jsonable(encode(value, 1)), allow_nan=False)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def pack(rows: list[State]) -> State:
    """Merge the trees of all rows: arrays of equal shape are stacked, values equal in all rows are stored once."""
    packed: State = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if all(isinstance(v, dict) and TAG not in v for v in values):
            packed[name] = pack(values)
        elif all(isinstance(v, np.ndarray) and (v.shape, v.dtype) == (first.shape, first.dtype) for v in values):
            packed[name] = np.stack(values)
        else:
            plain = [_jsonable(v) for v in values]
            packed[name] = _tagged("all", plain[0]) if all(v == plain[0] for v in plain) else _tagged("each", plain)
    return packed


def unpack(state: Mapping[str, Any], rows: int) -> list[State]:
    """Split a packed tree into the trees of its rows."""
    trees: list[State] = [{} for _ in range(rows)]
    for name, value in state.items():
        values: Sequence[Any]
        if not isinstance(value, Mapping):
            stacked = np.asarray(value)  # a checkpoint holds tensors
            values = [stacked[n, ...] for n in range(len(stacked))]
        elif TAG not in value:
            values = unpack(value, rows)
        else:
            values = [value["is"]] * rows if value[TAG] == "all" else value["is"]
        if len(values) != rows:
            raise TownletError(f"'{name}' was saved for {len(values)} rows, expected {rows}", SAME_RECIPE)
        for tree, row_value in zip(trees, values, strict=True):
            tree[name] = row_value
    return trees


def _jsonable(tree: Any) -> Any:
    return _array_to_json(tree) if isinstance(tree, np.ndarray) else tree
