"""Hashed features: JSON of numbers, texts and booleans in namespaces → indices and values in fixed arrays.

A number keeps its value: namespace and key are hashed. A text, a boolean or an item of a list of texts is an indicator:
its value is hashed too. The sign of an index tells them apart: numbers are standardized later, indicators are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from townlet.decide.domain import ColumnSpec, InvalidMessage, ObservationRow

MAX_ACTIONS: Final = 50
MAX_FEATURES: Final = 1024  # of an event: context and all actions, including one feature for the id of each action
MAX_DEPTH: Final = 6  # of nested objects
MAX_VALUE: Final = 1e9  # largest absolute value of a number
HASH_BITS: Final = 31
NUMBER: Final = -(1 << HASH_BITS)  # added to the index of a number
COLUMNS: Final[Mapping[str, ColumnSpec]] = {
    "index": ColumnSpec((MAX_FEATURES,), "int32"),
    "value": ColumnSpec((MAX_FEATURES,), "float32"),
    "bounds": ColumnSpec((MAX_ACTIONS + 2,), "int32"),  # of the context and of each action
    "allowed": ColumnSpec((MAX_ACTIONS,), "bool"),  # actions that may be chosen
}

FeatureObjects = Sequence[Mapping[str, Any]]  # as in a request: objects of features or of namespaces


class HashedFeature(NamedTuple):
    """One feature of a context or an action."""

    hash: int  # below 0 if it is a number
    value: float
    namespace: str  # the first key of its path


def flatten(objects: FeatureObjects, where: str, prefix: str = "") -> Iterator[HashedFeature]:
    """The features of a list of objects; raises `InvalidMessage` with the path of the first invalid one.

    Their namespaces begin with `prefix`.
    """
    for item in objects:
        for key, value in item.items():
            yield from _flatten(value, key, f"{prefix}{key}", where, 1)


def _flatten(value: Any, path: str, namespace: str, where: str, depth: int) -> Iterator[HashedFeature]:
    if isinstance(value, bool):
        yield indicator(path, "true" if value else "false", namespace)
    elif isinstance(value, str):
        yield indicator(path, value, namespace)
    elif isinstance(value, int | float):
        if not abs(value) <= MAX_VALUE:  # also refuses NaN
            _refuse(where, path, f"a number must lie between −{MAX_VALUE:g} and {MAX_VALUE:g}")
        yield HashedFeature(NUMBER + _hash(path), float(value), namespace)
    elif value is not None:
        if depth >= MAX_DEPTH:
            _refuse(where, path, f"features may be nested at most {MAX_DEPTH} deep")
        if isinstance(value, Mapping):
            for key, below in value.items():
                yield from _flatten(below, f"{path}\x1f{key}", namespace, where, depth + 1)
        elif isinstance(value, list):
            for place, item in enumerate(value):  # an item's position matters only if it is a number
                numbered = isinstance(item, int | float) and not isinstance(item, bool)
                yield from _flatten(item, f"{path}\x1f{place}" if numbered else path, namespace, where, depth + 1)
        else:
            _refuse(where, path, "a feature is a number, a text, a boolean, an object or a list of them")


def indicator(path: str, value: str, namespace: str) -> HashedFeature:
    """The feature that is 1 if this path has this value."""
    return HashedFeature(_hash(f"{path}\x1e{value}"), 1.0, namespace)


def _hash(text: str) -> int:
    """31 bits; stable, unlike Python's own hash."""
    return crc32(text.encode("utf-8", "surrogatepass")) & ((1 << HASH_BITS) - 1)


def _refuse(where: str, path: str, why: str) -> None:
    raise InvalidMessage("INVALID_OBSERVATION", f"{where}: {path.replace(chr(31), '.')[:80]}: {why}")


class Encoded(NamedTuple):
    """The columns of an event, and the namespace of each of its features."""

    row: ObservationRow
    namespaces: list[str]


def encode(context: FeatureObjects, actions: Sequence[tuple[str, FeatureObjects]], excluded: Sequence[str]) -> Encoded:
    """The columns of an event, from the features of its context and its actions (id, features)."""
    found: list[HashedFeature] = []
    _extend(found, flatten(context, "contextFeatures"))
    bounds = [0, len(found)]
    for place, (id, objects) in enumerate(actions):
        _extend(found, iter([indicator("\x1fid", id, "action.id")]))
        _extend(found, flatten(objects, f"actions.{place}.features", "action."))
        bounds.append(len(found))
    row = {name: np.zeros(spec.shape, spec.dtype) for name, spec in COLUMNS.items()}
    row["index"][: len(found)] = [feature.hash for feature in found]
    row["value"][: len(found)] = [feature.value for feature in found]
    row["bounds"][: len(bounds)] = bounds
    row["bounds"][len(bounds) :] = bounds[-1]
    row["allowed"][: len(actions)] = [id not in excluded for id, _ in actions]
    return Encoded(row, [feature.namespace for feature in found])


def _extend(found: list[HashedFeature], features: Iterator[HashedFeature]) -> None:
    """Add features, up to the maximum."""
    for feature in features:
        if len(found) == MAX_FEATURES:
            what = f"an event may have at most {MAX_FEATURES} features, with one for the id of each action"
            raise InvalidMessage("INVALID_OBSERVATION", what)
        found.append(feature)
