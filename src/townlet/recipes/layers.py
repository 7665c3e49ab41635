"""Normal form of a recipe layer, so that layers written in different ways and folders merge alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
        node = _change_at(node, path, as_mapping)
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


def _change_at(node: Node, path: Sequence[str], change: Callable[[Node], Node]) -> Node:
    """The tree with the value at a path changed, if there is one."""
    if not path:
        return change(node)
    if not isinstance(node.value, dict) or path[0] not in node.value:
        return node
    return node.with_value({**node.value, path[0]: _change_at(node.value[path[0]], path[1:], change)})


def with_absolute_paths(node: Node, folder: Path) -> Node:
    """The layer with absolute paths for the files of its world, wrappers and agent, which are relative to `folder`."""

    def absolute(file: Node) -> Node:
        return file.with_value(os.path.abspath(folder / file.value)) if isinstance(file.value, str) else file

    def absolute_wrappers(wrappers: Node) -> Node:
        if not isinstance(wrappers.value, list):
            return wrappers
        return wrappers.with_value([_change_at(wrapper, ("file",), absolute) for wrapper in wrappers.value])

    def absolute_world(world: Node) -> Node:
        is_file = isinstance(world.value, str) and world.value.endswith(worlds.ENDINGS)
        return absolute(world) if is_file and world.value not in worlds.shipped() else world

    node = _change_at(node, ("gym", "wrappers"), absolute_wrappers)
    node = _change_at(node, ("agent", "file"), absolute)
    return _change_at(node, ("world",), absolute_world)
