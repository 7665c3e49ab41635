"""`key=value` from the command line, laid over a tree of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from townlet.config.merge import entry_places
from townlet.config.scalar import HIDDEN, shorten, show
from townlet.config.yaml import MAX_DEPTH, Node, parse_value
from townlet.errors import Mark, Mistake, Mistakes, TownletError, did_you_mean

LONGEST_SHOWN: Final = 60


def apply(node: Node, overrides: Sequence[str]) -> Node:
    """The tree with each `a.b.c=value` set, later ones last; raises Mistakes of all of them at once."""
    mistakes: list[Mistake] = []
    for override in overrides:
        try:
            node = _apply_one(node, override)
        except TownletError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise Mistakes(mistakes)
    return node


def _apply_one(node: Node, override: str) -> Node:
    if HIDDEN.search(override):
        raise TownletError(f"hidden characters in {shorten(ascii(override))}", "remove them", Mark("command line"))
    mark = Mark(f"command line: {shorten(override, LONGEST_SHOWN)}")
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise TownletError("this is not key=value", "write it like max_steps=200 or meters.energy.decay=0.01", mark)
    if len(keys) > MAX_DEPTH:
        raise TownletError(f"a path of more than {MAX_DEPTH} keys", "shorten it", mark)
    return _set(node, keys, 0, parse_value(text, mark.source))


def _set(node: Node, keys: list[str], depth: int, value: Node) -> Node:
    """A copy of the node with the value at keys[depth:]; only the nodes along the path are new."""
    if depth == len(keys):
        return Node(value.value, value.mark, value.mark)
    key = keys[depth]
    if isinstance(node.value, list):
        place = _entry(node.value, keys, depth, value.mark)
        changed = _set(_as_mapping(node.value[place]), keys, depth + 1, value)
        return Node([*node.value[:place], changed, *node.value[place + 1 :]], node.mark, node.key_mark)
    if node.value is not None and not isinstance(node.value, dict):
        path = ".".join(keys[:depth])
        raise TownletError(f"{path} is {show(node.value)} and has no keys", f"set {path} itself", value.mark)
    entries = node.value or {}
    below = entries.get(key, Node(None, value.mark, value.mark))
    return Node({**entries, key: _set(below, keys, depth + 1, value)}, node.mark, node.key_mark)


def _entry(entries: list[Node], keys: list[str], depth: int, mark: Mark) -> int:
    """The index of the entry that the path names."""
    path, places = ".".join(keys[:depth]), entry_places(entries)
    if not places:
        raise TownletError(f"the entries of {path} have no names", f"set the whole list: {path}=[…]", mark)
    if keys[depth] not in places:
        raise TownletError(f"{path} has no '{keys[depth]}'", did_you_mean(keys[depth], list(places)), mark)
    return places[keys[depth]]


def _as_mapping(entry: Node) -> Node:
    """A bare word in a list stands for an entry with nothing but that name."""
    if not isinstance(entry.value, str):
        return entry
    return Node({"name": Node(entry.value, entry.mark, entry.mark)}, entry.mark, entry.key_mark)
