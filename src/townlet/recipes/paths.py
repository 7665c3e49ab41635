"""Files that a recipe names: written as seen from it, meant from anywhere."""

from __future__ import annotations

import os
from pathlib import Path

from townlet.config.yaml import Node
from townlet.town.world import load as worlds


def seen_from(node: Node, folder: Path) -> Node:
    """The same layer with absolute paths of files: of a world, of wrappers and of an agent."""
    node = _with_files(node, folder)
    agent = node.child("agent")
    if agent is not None:
        node = _put(node, "agent", _with_file(agent, folder))
    world = node.child("world")
    if world is None or not isinstance(world.value, str) or not isinstance(node.value, dict):
        return node
    if world.value in worlds.shipped() or not world.value.endswith(worlds.ENDINGS):
        return node
    return _put(node, "world", Node(os.path.abspath(folder / world.value), world.location, world.key_location))


def _with_files(node: Node, folder: Path) -> Node:
    """The same layer with the files of wrappers of one's own seen from anywhere."""
    gym = node.child("gym")
    wrappers = gym.child("wrappers") if gym is not None else None
    if gym is None or wrappers is None or not isinstance(wrappers.value, list):
        return node
    seen = [_with_file(wrapper, folder) for wrapper in wrappers.value]
    return _put(node, "gym", _put(gym, "wrappers", Node(seen, wrappers.location, wrappers.key_location)))


def _with_file(wrapper: Node, folder: Path) -> Node:
    file = wrapper.child("file")
    if file is None or not isinstance(file.value, str):
        return wrapper
    return _put(wrapper, "file", Node(os.path.abspath(folder / file.value), file.location, file.key_location))


def _put(node: Node, key: str, below: Node) -> Node:
    """A mapping with another node at one key."""
    assert isinstance(node.value, dict)
    return Node({**node.value, key: below}, node.location, node.key_location)
