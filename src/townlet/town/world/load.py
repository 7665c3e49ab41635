"""Loading of worlds: find the file, merge it with the worlds it extends, apply overrides, validate, compile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from townlet.config.merge import add_to_chain, apply_overrides, entry_name, merge
from townlet.config.scalar import shorten
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node, parse, read
from townlet.errors import ConfigError, Diagnostic, SourceLocation, did_you_mean
from townlet.town.world import validate
from townlet.town.world.compile import compile_world
from townlet.town.world.schema import WorldSpec
from townlet.town.world.sessions import warnings
from townlet.town.world.tables import World

FOLDER: Final = Path(__file__).resolve().parent.parent / "worlds"
SUFFIXES: Final = (".yaml", ".yml")
NAMED_LISTS: Final = ("meters", "modulations", "cascades", "affordances")  # their entries merge by name


def load(name_or_path: str | Path, overrides: Sequence[str] = ()) -> World:
    """Load a shipped world or a file, with `key=value` overrides; raises ConfigError with all problems."""
    path = find_world(name_or_path, Path())
    return _build(path.stem, read_world(path), path, overrides)


def from_text(text: str | bytes, source: str = "<text>", overrides: Sequence[str] = ()) -> World:
    """Load a world from YAML text; paths in `extends` are relative to the folder of `source`."""
    return from_node(parse(text, source), source, overrides)


def from_node(node: Node, source: str, overrides: Sequence[str] = ()) -> World:
    """Load a world from parsed YAML."""
    return _build(Path(source).stem.strip("<>"), node, Path(source), overrides)


def from_spec(spec: WorldSpec, name: str = "world", *, with_survival: bool = True) -> World:
    """Validate and compile a finished spec; `with_survival` requires that an agent can reach the step limit."""
    if problems := validate.check(spec, Node({}, SourceLocation(name)), with_survival=with_survival):
        raise ConfigError(problems)
    return compile_world(name, spec, tuple(warnings(spec)))


def _build(name: str, node: Node, path: Path, overrides: Sequence[str]) -> World:
    for override in overrides:
        if override.partition("=")[0].strip() in ("extends", "remove"):
            where = SourceLocation(f"command line: {override[:60]}")
            raise _error("`extends` and `remove` are allowed only in a file", "create one with `world new`", where)
    problems: list[Diagnostic] = []
    try:
        node = apply_overrides(inherit(node, path, problems), overrides)
    except ConfigError as error:
        raise ConfigError([*problems, *error.diagnostics]) from None
    try:
        spec = validate_model(WorldSpec, node, ("extends", "remove"))
    except ConfigError as error:
        problems += error.diagnostics
        rest = validate_partially(WorldSpec, node, ("rewards", "observation"))
        raise ConfigError([*problems, *(validate.check(*rest, with_survival=False) if rest else ())]) from None
    problems += validate.check(spec, node)
    if problems:
        raise ConfigError(problems)
    return compile_world(name, spec, tuple(warnings(spec)))


def _error(what: str, fix: str, where: SourceLocation | None) -> ConfigError:
    return ConfigError([Diagnostic(what, fix, where)])


@lru_cache(maxsize=1)
def shipped() -> tuple[str, ...]:
    """Names of the worlds in this package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find_world(world: str | Path, folder: Path, where: SourceLocation | None = None) -> Path:
    """The file of a shipped world, or at a path relative to `folder`; errors refer to the location `where`."""
    if isinstance(world, str) and world in shipped():
        return FOLDER / f"{world}.yaml"
    if os.path.isfile(folder / world):
        return folder / world
    name, shown = str(world), shorten(str(world), 60)
    if isinstance(world, Path) or name.endswith(SUFFIXES) or os.path.dirname(name):
        raise _error(f"there is no file '{shown}'", f"write its path relative to {folder.absolute()}", where)
    files = sorted(path.name for path in folder.glob("*.yaml"))
    known = f"{name}.yaml" in files
    fix = f"did you mean '{name}.yaml'?" if known else did_you_mean(name, [*shipped(), *files])
    raise _error(f"there is no world '{shown}'", f"{fix} (a shipped world, or the path of a .yaml file)", where)


def read_world(path: Path) -> Node:
    """The content of a world's file, before inheritance."""
    return _read_shipped(path) if path.parent == FOLDER else read(path)


_read_shipped = lru_cache(maxsize=64)(read)  # shipped files do not change, and many worlds extend them


def inherit(node: Node, path: Path, problems: list[Diagnostic], chain: tuple[str, ...] = ()) -> Node:
    """Merge a world with those it extends; problems that do not prevent loading are added to `problems`."""
    if not isinstance(node.value, dict):
        raise _error("a world is a mapping of keys", "write `meters:` and so on", node.location)
    own = Node({key: below for key, below in node.value.items() if key not in ("extends", "remove")}, node.location)
    extends, remove = node.value.get("extends"), node.value.get("remove")
    if extends is None:
        if remove is not None:
            where = node.location_of("remove")
            problems.append(Diagnostic("`remove` without `extends`", "there is nothing to remove", where))
        return own
    where = extends.key_location or extends.location
    parent_path = _parent_path(extends.value, path.parent, where)
    chain = add_to_chain(chain or (os.path.abspath(path),), os.path.abspath(parent_path), "worlds", where)
    parent = inherit(read_world(parent_path), parent_path, problems, chain).without("description")
    if remove is not None:
        parent = _without(parent, _names_to_remove(remove, parent, problems))
    return merge(parent, own, NAMED_LISTS)


def _parent_path(name: Any, folder: Path, where: SourceLocation) -> Path:
    if not isinstance(name, str):
        raise _error("`extends` is not the name of a world", did_you_mean("", shipped()), where)
    if name not in shipped() and (os.path.isabs(name) or not name.endswith(SUFFIXES)):
        fix = f"{did_you_mean(name, shipped())} Or give the path of a .yaml file, relative to this file."
        raise _error(f"there is no world '{name[:60]}' to extend", fix, where)
    return find_world(name, folder, where)


def _text(node: Node | None) -> str | None:
    return node.value if node is not None and isinstance(node.value, str) else None


def _entries(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _names_to_remove(remove: Node, parent: Node, problems: list[Diagnostic]) -> set[str]:
    known = [name for key in NAMED_LISTS for entry in _entries(parent.child(key)) if (name := entry_name(entry))]
    names = set()
    if not isinstance(remove.value, list):
        problems.append(Diagnostic("`remove` is not a list of names", "write `remove: [Gym, Bar]`", remove.location))
    for entry in _entries(remove):
        if isinstance(entry.value, str) and entry.value in known:
            names.add(entry.value)
        else:
            word = str(entry.to_python())[:60]
            problems.append(Diagnostic(f"there is no '{word}' to remove", did_you_mean(word, known), entry.location))
    return names


def _without(node: Node, names: set[str]) -> Node:
    """A world without the named meters, affordances and links, and without references to removed meters."""
    assert isinstance(node.value, dict)
    value = dict(node.value)
    meters = {name for entry in _entries(value.get("meters")) if (name := entry_name(entry)) in names and name}
    for key in (*NAMED_LISTS, "rewards", "lethal"):
        if key in value:
            kept = [e for e in _entries(value[key]) if not _is_removed(key, e, names, meters)]
            value[key] = value[key].with_value([_without_meters(e, meters) for e in kept])
    if _text(value.get("currency")) in meters:
        del value["currency"]
    return node.with_value(value)


def _is_removed(key: str, entry: Node, names: set[str], meters: set[str]) -> bool:
    if key == "lethal":
        return entry.value in meters
    is_link_of_removed = any(_text(entry.child(end)) in meters for end in ("source", "target"))
    return key != "rewards" and (entry_name(entry) in names or is_link_of_removed)


def _without_meters(entry: Node, meters: set[str]) -> Node:
    """An affordance or a reward without references to removed meters."""
    if not isinstance(entry.value, dict):
        return entry
    value = dict(entry.value)
    for key in ("each_tick", "at_end"):
        effects = value.get(key)
        if effects is not None and isinstance(effects.value, dict):
            value[key] = effects.with_value({name: v for name, v in effects.value.items() if name not in meters})
    listed = value.get("meters")
    if listed is not None and isinstance(listed.value, list):
        value["meters"] = listed.with_value([e for e in listed.value if e.value not in meters])
        if not value["meters"].value:
            del value["meters"]  # an empty product is not allowed: use the default
    if _text(value.get("meter")) in meters:
        del value["meter"]
    return entry.with_value(value)
