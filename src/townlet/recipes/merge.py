"""Normal form of a recipe layer, so that layers written in different ways merge alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from townlet.config.merge import as_mapping
from townlet.config.yaml import Node

# Parts that are chosen by name; a bare word stands for the name alone.
PARTS: Final = (
    ("agent",),
    ("network",),
    ("curriculum",),
    ("explore", "choose"),
    ("explore", "bonus"),
    ("explore", "weight"),
)


def normalize(node: Node) -> Node:
    """The layer with integral numbers as integers and bare names of parts written out as mappings."""
    node = _with_integers(node)
    for path in PARTS:
        node = _with_mapping(node, path)
    return node


def _with_integers(node: Node) -> Node:
    """1e5 means 100000. Up to 1 a number stays as written: there 1.0 is a fraction and 1 is a count."""
    if isinstance(node.value, dict):
        return node.with_value({key: _with_integers(child) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return node.with_value([_with_integers(child) for child in node.value])
    if isinstance(node.value, float) and node.value.is_integer() and 1 < abs(node.value) < 1e15:
        return node.with_value(int(node.value))
    return node


def _with_mapping(node: Node, path: Sequence[str]) -> Node:
    if not path:
        return as_mapping(node)
    if not isinstance(node.value, dict) or path[0] not in node.value:
        return node
    return node.with_value({**node.value, path[0]: _with_mapping(node.value[path[0]], path[1:])})
