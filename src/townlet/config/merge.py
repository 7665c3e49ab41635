"""Inheritance and overrides: merge one YAML tree into another, or set single values from `key=value`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from townlet.config.scalar import HIDDEN, describe_value, shorten
from townlet.config.schedule import Schedule, expand_shorthand
from townlet.config.yaml import MAX_DEPTH, Node, parse_value
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean

MAX_CHAIN: Final = 16  # files or variants in a chain of `extends`
MAX_SHOWN: Final = 60  # characters of an override that a message quotes
SCHEDULE_KEYS: Final = {info.alias or name for name, info in Schedule.model_fields.items()}


def merge(parent: Node, child: Node, named_lists: Collection[str] = ()) -> Node:
    """The child merged into the parent, in the parent's order; every value keeps its source location.

    - Mappings merge key by key at every depth. A mapping with a different `name` replaces the parent's, so that
      an agent never inherits the settings of another.
    - Lists under the top-level keys `named_lists` merge by entry name; other lists and scalars are replaced.
    - A mapping merged into a list changes the entries it names; merged into a number, it completes a schedule that
      starts with that number.
    """
    if not isinstance(child.value, dict):
        return child
    if isinstance(parent.value, list):
        return _merge_into_entries(parent, parent.value, child.value) or child
    if not isinstance(parent.value, dict):
        completes_schedule = set(child.value) <= SCHEDULE_KEYS and "start" not in child.value
        schedule = _as_schedule(parent) if completes_schedule else None
        return merge(schedule, child) if schedule else child
    if "name" in parent.value and "name" in child.value and parent.value["name"].value != child.value["name"].value:
        return child
    merged = dict(parent.value)
    for key, node in child.value.items():
        before = merged.get(key)
        if before is None:
            merged[key] = node
        elif key in named_lists and isinstance(before.value, list) and isinstance(node.value, list):
            merged[key] = node.with_value(_merge_entries(before.value, node.value))
        else:
            merged[key] = merge(before, node)
    return child.with_value(merged)


def add_to_chain(chain: tuple[str, ...], link: str, kind: str, where: SourceLocation | None) -> tuple[str, ...]:
    """The chain of `extends` with one more file or variant; raises ConfigError if it is a cycle or too long."""
    if link in chain:
        cycle = " → ".join(os.path.basename(part) for part in (*chain, link))
        what = f"{kind} extend each other in a circle: {cycle}"
        raise ConfigError([Diagnostic(what, "remove one `extends`", where)])
    if len(chain) >= MAX_CHAIN:
        what = f"more than {MAX_CHAIN} {kind} extend each other"
        raise ConfigError([Diagnostic(what, "extend an earlier one", where)])
    return (*chain, link)


def entry_name(entry: Node) -> str | None:
    """The name of a list entry: its `name`, or source->target, or the entry itself if it is a string."""
    if isinstance(entry.value, str):
        return entry.value
    if not isinstance(entry.value, dict):
        return None
    name, source, target = (
        node.value if (node := entry.value.get(key)) is not None and isinstance(node.value, str) else None
        for key in ("name", "source", "target")
    )
    return name or (f"{source}->{target}" if source and target else None)


def entry_indices(entries: Sequence[Node]) -> dict[str, int]:
    """The index of each named entry; the first one of a repeated name."""
    indices: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if (name := entry_name(entry)) is not None:
            indices.setdefault(name, index)
    return indices


def as_mapping(node: Node) -> Node:
    """A string as a mapping with that `name`; other nodes are returned unchanged."""
    if not isinstance(node.value, str):
        return node
    return node.with_value({"name": Node(node.value, node.location, node.key_location or node.location)})


def _merge_entries(parent: list[Node], child: list[Node]) -> list[Node]:
    merged = list(parent)
    unmatched = entry_indices(parent)
    for entry in child:
        name = entry_name(entry)
        # Each parent entry is matched once, so that later checks find a name that the child repeats.
        index = None if name is None else unmatched.pop(name, None)
        if index is None:
            merged.append(entry)
        elif not isinstance(entry.value, str):  # a string adds nothing to the parent's entry
            merged[index] = merge(merged[index], entry)
    return merged


def _merge_into_entries(parent: Node, entries: list[Node], changes: dict[str, Node]) -> Node | None:
    """The parent's list with the named entries changed; None unless all of them exist."""
    indices = entry_indices(entries)
    if not changes or not set(changes) <= set(indices):
        return None
    changed = list(entries)
    for name, node in changes.items():
        changed[indices[name]] = merge(as_mapping(changed[indices[name]]), node)
    return parent.with_value(changed)


def _as_schedule(node: Node) -> Node | None:
    """A number or a shorthand such as lin_0.001, written out as a schedule; None for any other value."""
    value: Any = node.value
    if isinstance(value, str):
        try:
            value = expand_shorthand(value)
        except ValueError:
            return None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = {"start": value}
    if not isinstance(value, dict):
        return None
    return node.with_value({key: node.with_value(part) for key, part in value.items()})


def apply_overrides(node: Node, overrides: Sequence[str]) -> Node:
    """The tree with every `a.b.c=value` set in order; raises ConfigError with the problems of all of them."""
    diagnostics: list[Diagnostic] = []
    for override in overrides:
        try:
            node = _apply_override(node, override)
        except TownletError as error:
            diagnostics.extend(error.diagnostics)
    if diagnostics:
        raise ConfigError(diagnostics)
    return node


def _apply_override(node: Node, override: str) -> Node:
    if HIDDEN.search(override):
        where = SourceLocation("command line")
        raise TownletError(f"hidden characters in {shorten(ascii(override))}", "remove them", where)
    where = SourceLocation(f"command line: {shorten(override, MAX_SHOWN)}")
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise TownletError(
            "this is not key=value", f"write it like {path or 'key'}=VALUE, as in max_steps=200 or agent.lr=1e-3", where
        )
    if len(keys) > MAX_DEPTH:
        raise TownletError(f"the path has more than {MAX_DEPTH} keys", "shorten it", where)
    return _set(node, keys, 0, parse_value(text, where.source))


def _set(node: Node, keys: list[str], depth: int, value: Node) -> Node:
    """A copy of the node with the value at keys[depth:]; only the nodes along the path are new."""
    if depth == len(keys):
        return Node(value.value, value.location, value.location)
    key = keys[depth]
    if isinstance(node.value, list):
        index = _entry_index(node.value, keys, depth, value.location)
        changed = _set(as_mapping(node.value[index]), keys, depth + 1, value)
        return node.with_value([*node.value[:index], changed, *node.value[index + 1 :]])
    if node.value is not None and not isinstance(node.value, dict):
        path = ".".join(keys[:depth])
        what = f"{path} is {describe_value(node.value)} and has no keys"
        raise TownletError(what, f"set {path} itself", value.location)
    entries = node.value or {}
    child = entries.get(key, Node(None, value.location, value.location))
    return node.with_value({**entries, key: _set(child, keys, depth + 1, value)})


def _entry_index(entries: list[Node], keys: list[str], depth: int, where: SourceLocation) -> int:
    path, indices = ".".join(keys[:depth]), entry_indices(entries)
    if not indices:
        raise TownletError(f"the entries of {path} have no names", f"set the entire list: {path}=[…]", where)
    if keys[depth] not in indices:
        raise TownletError(f"{path} has no '{keys[depth]}'", did_you_mean(keys[depth], list(indices)), where)
    return indices[keys[depth]]


def format_overrides(overrides: Mapping[str, Any] | Sequence[str] | str) -> list[str]:
    """Overrides as `key=value`; the values of a mapping are written as JSON."""
    if isinstance(overrides, str):
        return [overrides]
    if isinstance(overrides, Mapping):
        return [f"{key}={_ENCODER.encode(value)}" for key, value in overrides.items()]
    return list(overrides)


# NumPy and torch scalars are written as plain numbers, paths as text.
_ENCODER: Final = json.JSONEncoder(
    default=lambda value: value.item() if hasattr(value, "item") else str(value), ensure_ascii=False
)
