"""From a name, a path or a text to a compiled world: read, inherit, override, check shape, check sense, compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from townlet.config.merge import apply_overrides
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node, parse
from townlet.errors import ConfigError, Diagnostic, SourceLocation
from townlet.town.world import validate
from townlet.town.world.catalogue import find, read_world, shipped
from townlet.town.world.compile import compile_world
from townlet.town.world.inherit import inherit
from townlet.town.world.limits import warnings
from townlet.town.world.schema import WorldSpec
from townlet.town.world.tables import World

__all__ = ["from_node", "from_spec", "from_text", "load", "shipped"]


def load(name_or_path: str | Path, overrides: Sequence[str] = ()) -> World:
    """The world of a shipped name or of a file, with `key=value` overrides; raises ConfigError, all at once."""
    path = find(name_or_path, Path())
    return _finish(path.stem, read_world(path), path, overrides)


def from_text(text: str | bytes, source: str = "<text>", overrides: Sequence[str] = ()) -> World:
    """The world written in a text; what it extends is looked for beside `source`."""
    return from_node(parse(text, source), source, overrides)


def from_node(node: Node, source: str, overrides: Sequence[str] = ()) -> World:
    """The same for a text that was parsed already."""
    return _finish(Path(source).stem.strip("<>"), node, Path(source), overrides)


def from_spec(spec: WorldSpec, name: str = "world") -> World:
    """The world of a finished spec, with the same checks of sense."""
    found = validate.check(spec, Node({}, SourceLocation(name)))
    if found:
        raise ConfigError(found)
    return compile_world(name, spec, tuple(warnings(spec)))


def _finish(name: str, node: Node, path: Path, overrides: Sequence[str]) -> World:
    found: list[Diagnostic] = []
    for override in overrides:
        if override.partition("=")[0].strip() in ("extends", "remove"):
            where = SourceLocation(f"command line: {override[:60]}")
            raise ConfigError(
                [Diagnostic("`extends` and `remove` stand only in a file", "begin one: world new", where)]
            )
    try:
        node = apply_overrides(inherit(node, path, found), overrides)
    except ConfigError as error:
        raise ConfigError([*found, *error.diagnostics]) from None
    try:
        spec = validate_model(WorldSpec, node, ("extends", "remove"))
    except ConfigError as error:
        found += error.diagnostics
        rest = validate_partially(WorldSpec, node, ("rewards", "observation"))
        raise ConfigError([*found, *(validate.check(*rest, feasible=False) if rest else ())]) from None
    found += validate.check(spec, node)
    if found:
        raise ConfigError(found)
    return compile_world(name, spec, tuple(warnings(spec)))
