"""resolved.yaml: every value of a recipe, with where it came from. It is a recipe again, and the same one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

from townlet.config.scalar import quote, to_flow_yaml
from townlet.config.yaml import Node
from townlet.errors import SourceLocation
from townlet.recipes.catalogue import FOLDER, choose
from townlet.recipes.load import LoadedRecipe

COLUMN: Final = 48  # comments stand in line where values leave room


def resolved_text(loaded: LoadedRecipe) -> str:
    """The file's text."""
    title = loaded.recipe.title
    head = f"# {title}: every value and where it came from. Train it again with: townlet train resolved.yaml\n"
    return head + "\n".join(_mapping(loaded.recipe.model_dump(), loaded.node, 0)) + "\n"


def asked_text(loaded: LoadedRecipe) -> str:
    """What was asked for, as a comment, above the file that it was asked of."""
    words = " ".join((loaded.asked, *(json.dumps(o, ensure_ascii=False) if " " in o else o for o in loaded.overrides)))
    return f"# townlet train {words}\n" + choose(loaded.asked).file.path.read_text(encoding="utf-8")


def _mapping(values: dict[str, Any], node: Node | None, depth: int) -> Iterator[str]:
    for key, value in values.items():
        yield from _entry(f"{'  ' * depth}{quote(key)}:", value, _below(node, key), depth)


def _entry(label: str, value: Any, node: Node | None, depth: int) -> Iterator[str]:
    """One value below its label; mappings and lists of mappings go on in further lines."""
    if isinstance(value, dict) and value:
        yield label
        yield from _mapping(value, node, depth + 1)
    elif isinstance(value, (list, tuple)) and any(isinstance(part, dict) for part in value):
        yield label
        for index, part in enumerate(value):
            yield _line(f"{'  ' * (depth + 1)}-", part, _below(node, index))
    else:
        yield _line(label, value, node)


def _below(node: Node | None, item: str | int) -> Node | None:
    """The part of a node; a short form stands for all its parts: lin_0.001, or a mapping for a list of only that."""
    return node.child(item) if node and isinstance(node.value, dict if isinstance(item, str) else list) else node


def _line(label: str, value: Any, node: Node | None) -> str:
    return f"{label + ' ' + to_flow_yaml(value):<{COLUMN}} # {_origin(node)}"


def _origin(node: Node | None) -> str:
    """Where a value came from: file and line, the command line, or nowhere."""
    if node is None:
        return "default"
    mark = node.key_location or node.location
    shipped = os.path.dirname(mark.source) == str(FOLDER)
    source = os.path.basename(mark.source) if shipped else mark.source
    return str(SourceLocation(" ".join(source.split()), mark.line))
