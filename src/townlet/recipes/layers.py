"""Normal form of a recipe layer, so that layers written in different ways and folders merge alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from townlet.config.merge import as_mapping
from townlet.config.yaml import Node
from townlet.town.world import load as worlds

# Parts that are chosen by name; a bare word stands for the name alone.
NAMED_PARTS: Final = (
    ("agent",),
    ("network",),
    ("curriculum",),
    ("explore", "action_selection"),
    ("explore", "bonus"),
    ("explore", "weight"),
)


def normalize(node: Node) -> Node:
    """The layer with integral numbers as integers and bare names of parts written out as mappings."""
    node = _with_integers(node)
    for path in NAMED_PARTS:
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


def with_absolute_paths(node: Node, folder: Path) -> Node:
    """The layer with absolute paths for the files of its world, wrappers and agent, which are relative to `folder`."""
    gym = node.child("gym")
    wrappers = gym.child("wrappers") if gym else None
    if gym and wrappers and isinstance(wrappers.value, list):
        absolute = [_with_absolute_file(wrapper, folder) for wrapper in wrappers.value]
        node = _replace(node, "gym", _replace(gym, "wrappers", wrappers.with_value(absolute)))
    if agent := node.child("agent"):
        node = _replace(node, "agent", _with_absolute_file(agent, folder))
    world = node.child("world")
    if world is None or not isinstance(world.value, str) or world.value in worlds.shipped():
        return node
    if not world.value.endswith(worlds.ENDINGS):
        return node
    return _replace(node, "world", world.with_value(os.path.abspath(folder / world.value)))


def _with_absolute_file(node: Node, folder: Path) -> Node:
    file = node.child("file")
    if file is None or not isinstance(file.value, str):
        return node
    return _replace(node, "file", file.with_value(os.path.abspath(folder / file.value)))


def _replace(node: Node, key: str, child: Node) -> Node:
    assert isinstance(node.value, dict)
    return node.with_value({**node.value, key: child})
