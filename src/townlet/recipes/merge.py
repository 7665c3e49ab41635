"""One layer of a recipe laid over another.

Mappings merge by key at every depth; lists and single values are replaced. A mapping whose `name` differs replaces
the one below it whole, so that an agent never inherits the settings of another. A mapping over a list speaks of its
entries by name, and one over a number goes on with the number as the start of a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from townlet.config.merge import entry_places
from townlet.config.schedule import Schedule, long_form
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
WAY: Final = {info.alias or name for name, info in Schedule.model_fields.items()}


def overlay(below: Node, above: Node) -> Node:
    """The merged tree; each value keeps the place it came from."""
    if not isinstance(above.value, dict):
        return above
    if isinstance(below.value, list):
        return _into_entries(below.value, above.value, below) or above
    if not isinstance(below.value, dict):
        start = _start(below) if set(above.value) <= WAY and "start" not in above.value else None
        return overlay(start, above) if start else above
    if _other_name(below.value, above.value):
        return above
    merged = dict(below.value)
    for key, node in above.value.items():
        merged[key] = overlay(merged[key], node) if key in merged else node
    return Node(merged, above.mark, above.key_mark)


def _other_name(below: dict[str, Node], above: dict[str, Node]) -> bool:
    return "name" in below and "name" in above and below["name"].value != above["name"].value


def _into_entries(entries: list[Node], above: dict[str, Node], below: Node) -> Node | None:
    """The list with the named entries changed; None unless all are there."""
    places = entry_places(entries)
    if not above or not set(above) <= set(places):
        return None
    changed = list(entries)
    for name, node in above.items():
        changed[places[name]] = overlay(_named(changed[places[name]], ()), node)
    return Node(changed, below.mark, below.key_mark)


def _start(node: Node) -> Node | None:
    """A number, or a short form such as lin_0.001, as the schedule that a mapping above it goes on with."""
    value = node.value
    if isinstance(value, str):
        try:
            way = long_form(value)
        except ValueError:
            return None
        if not isinstance(way, dict):
            return None
        return Node({key: Node(part, node.mark, node.key_mark) for key, part in way.items()}, node.mark, node.key_mark)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Node({"start": Node(value, node.mark, node.key_mark)}, node.mark, node.key_mark)
    return None


def normal(node: Node) -> Node:
    """A layer as all layers are compared: whole numbers are integers, bare words of parts are names."""
    node = _whole(node)
    for path in PARTS:
        node = _named(node, path)
    return node


def _whole(node: Node) -> Node:
    """1e5 is meant as 100000. Up to 1 a number stays as written: there 1.0 is a share and 1 is a count."""
    if isinstance(node.value, dict):
        return Node({key: _whole(below) for key, below in node.value.items()}, node.mark, node.key_mark)
    if isinstance(node.value, list):
        return Node([_whole(below) for below in node.value], node.mark, node.key_mark)
    if isinstance(node.value, float) and node.value.is_integer() and 1 < abs(node.value) < 1e15:
        return Node(int(node.value), node.mark, node.key_mark)
    return node


def _named(node: Node, path: Sequence[str]) -> Node:
    if not path:
        if not isinstance(node.value, str):
            return node
        return Node({"name": Node(node.value, node.mark, node.key_mark)}, node.mark, node.key_mark)
    if not isinstance(node.value, dict) or path[0] not in node.value:
        return node
    changed = {**node.value, path[0]: _named(node.value[path[0]], path[1:])}
    return Node(changed, node.mark, node.key_mark)
