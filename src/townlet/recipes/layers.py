"""Normalization of a recipe layer before merging: short forms are written out and relative paths made absolute."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from townlet.config.merge import as_mapping
from townlet.config.yaml import Node
from townlet.town.world.load import SUFFIXES, shipped

# Parts that are chosen by name: `agent: ppo` is short for `agent: {name: ppo}`.
NAMED_PARTS: Final = (
    ("agent",),
    ("network",),
    ("curriculum",),
    ("explore", "action_selection"),
    ("explore", "bonus"),
    ("explore", "weight"),
)


def normalize(node: Node) -> Node:
    """The layer with integral floats as integers, and with bare names of parts written out as mappings."""
    node = _with_integers(node)
    for path in NAMED_PARTS:
        node = _change_at(node, path, as_mapping)
    return node


def _with_integers(node: Node) -> Node:
    """Convert integral floats such as 1e5 to int.

    Values from −1 to 1 are kept, since 1.0 may be a fraction and 1 a count; so are values too large to be exact.
    """
    if isinstance(node.value, dict):
        return node.with_value({key: _with_integers(child) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return node.with_value([_with_integers(child) for child in node.value])
    if isinstance(node.value, float) and node.value.is_integer() and 1 < abs(node.value) < 1e15:
        return node.with_value(int(node.value))
    return node


def _change_at(node: Node, path: Sequence[str], change: Callable[[Node], Node]) -> Node:
    """A copy of the tree with `change` applied to the value at `path`, if the path exists."""
    if not path:
        return change(node)
    if not isinstance(node.value, dict) or path[0] not in node.value:
        return node
    return node.with_value({**node.value, path[0]: _change_at(node.value[path[0]], path[1:], change)})


def with_absolute_paths(node: Node, folder: Path) -> Node:
    """Make the paths of world, environment, wrapper and agent files absolute; they are relative to `folder`."""

    def absolute(file: Node) -> Node:
        return file.with_value(os.path.abspath(folder / file.value)) if isinstance(file.value, str) else file

    def absolute_wrappers(wrappers: Node) -> Node:
        if not isinstance(wrappers.value, list):
            return wrappers
        return wrappers.with_value([_change_at(wrapper, ("file",), absolute) for wrapper in wrappers.value])

    def absolute_source(source: Node) -> Node:
        is_file = isinstance(source.value, str) and source.value.endswith(".py")
        return absolute(source) if is_file else source

    def absolute_world(world: Node) -> Node:
        is_file = isinstance(world.value, str) and world.value.endswith(SUFFIXES)
        return absolute(world) if is_file and world.value not in shipped() else world

    node = _change_at(node, ("gym", "wrappers"), absolute_wrappers)
    node = _change_at(node, ("gym", "source"), absolute_source)
    node = _change_at(node, ("agent", "file"), absolute)
    return _change_at(node, ("world",), absolute_world)
