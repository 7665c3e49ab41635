"""Inheritance: a child's file laid over its parent's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from townlet.config.yaml import Node


def merge(parent: Node, child: Node, named: Collection[str] = ()) -> Node:
    """Mappings merge by key at every depth; lists under the top-level keys `named` merge by the names of
    their entries; everything else the child replaces. The parent's order is kept, new things come last."""
    if not isinstance(parent.value, dict) or not isinstance(child.value, dict):
        return child
    merged = dict(parent.value)
    for key, node in child.value.items():
        before = merged.get(key)
        if before is None:
            merged[key] = node
        elif key in named and isinstance(before.value, list) and isinstance(node.value, list):
            merged[key] = Node(_merge_entries(before.value, node.value), node.mark, node.key_mark)
        else:
            merged[key] = merge(before, node)
    return Node(merged, child.mark, child.key_mark)


def entry_name(entry: Node) -> str | None:
    """What a list entry is called: its `name`, or source->target, or itself when it is a bare word."""
    if isinstance(entry.value, str):
        return entry.value
    if not isinstance(entry.value, dict):
        return None
    name, source, target = (
        node.value if (node := entry.value.get(key)) is not None and isinstance(node.value, str) else None
        for key in ("name", "source", "target")
    )
    return name or (f"{source}->{target}" if source and target else None)


def entry_places(entries: Sequence[Node]) -> dict[str, int]:
    """The index of each named entry; of the first one where a name stands twice."""
    places: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if (name := entry_name(entry)) is not None:
            places.setdefault(name, index)
    return places


def _merge_entries(parent: list[Node], child: list[Node]) -> list[Node]:
    merged = list(parent)
    free = entry_places(parent)
    for entry in child:
        name = entry_name(entry)
        # Each place is taken once: a name that the child writes twice stays twice, for later checks to see.
        index = None if name is None else free.pop(name, None)
        if index is None:
            merged.append(entry)
            continue
        # A bare word says no more than the name, so the parent's entry stays as it is.
        if not isinstance(entry.value, str):
            merged[index] = merge(merged[index], entry)
    return merged
