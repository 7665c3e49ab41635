"""Where worlds lie: those shipped with the program by name, all others by path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from townlet.config.merge import apply_overrides, entry_name, merge
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node, parse, read
from townlet.errors import ConfigError, Diagnostic, SourceLocation, did_you_mean
from townlet.town.world import validate
from townlet.town.world.compile import compile_world
from townlet.town.world.schema import WorldSpec
from townlet.town.world.sessions import warnings
from townlet.town.world.tables import World

FOLDER: Final = Path(__file__).resolve().parent.parent / "worlds"
ENDINGS: Final = (".yaml", ".yml")


@lru_cache(maxsize=1)
def shipped() -> tuple[str, ...]:
    """Names of the worlds that come with the program."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find_world(world: str | Path, folder: Path, where: SourceLocation | None = None) -> Path:
    """The file of a world: a shipped name, or a path as seen from `folder`; `where` is who asked for it."""
    if isinstance(world, str) and world in shipped():
        return FOLDER / f"{world}.yaml"
    place = folder / world
    if os.path.isfile(place):
        return place
    name = str(world)
    if isinstance(world, Path) or name.endswith(ENDINGS) or os.path.dirname(name):
        fix = f"write its path as seen from {folder.absolute()}"
        raise ConfigError([Diagnostic(f"there is no file '{_short(name)}'", fix, where)])
    beside = sorted(path.name for path in folder.glob("*.yaml"))
    own = f"{name}.yaml"
    fix = f"did you mean '{own}'?" if own in beside else f"{did_you_mean(name, [*shipped(), *beside])}"
    fix += " (a shipped world, or the path of a .yaml file)"
    raise ConfigError([Diagnostic(f"there is no world '{_short(name)}'", fix, where)])


def read_world(path: Path) -> Node:
    """The content of a world's file as it stands, before inheritance."""
    return _read_shipped(path) if path.parent == FOLDER else read(path)


@lru_cache(maxsize=64)
def _read_shipped(path: Path) -> Node:
    """Shipped files do not change while the program runs, and many worlds extend them."""
    return read(path)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


NAMED: Final = ("meters", "modulations", "cascades", "affordances")
MAX_CHAIN: Final = 16


def inherit(node: Node, path: Path, found: list[Diagnostic], chain: tuple[str, ...] = ()) -> Node:
    """The world with all it extends merged in; mistakes that allow reading on are added to `found`."""
    if not isinstance(node.value, dict):
        raise ConfigError([Diagnostic("a world is a mapping of keys", "write `meters:` and so on", node.location)])
    own = Node({key: below for key, below in node.value.items() if key not in ("extends", "remove")}, node.location)
    extends, remove = node.value.get("extends"), node.value.get("remove")
    if extends is None:
        if remove is not None:
            found.append(
                Diagnostic("`remove` without `extends`", "there is nothing to remove", node.location_of("remove"))
            )
        return own
    chain = (*chain, os.path.abspath(path))
    parent_path = _parent(extends, path, chain)
    parent = inherit(read_world(parent_path), parent_path, found, chain).without("description")
    if remove is not None:
        parent = without(parent, _names_to_remove(remove, parent, found))
    return merge(parent, own, NAMED)


def _parent(extends: Node, path: Path, chain: tuple[str, ...]) -> Path:
    where, name = extends.key_location or extends.location, extends.value
    if not isinstance(name, str):
        raise ConfigError([Diagnostic("`extends` is not the name of a world", did_you_mean("", shipped()), where)])
    if name not in shipped() and (os.path.isabs(name) or not name.endswith(ENDINGS)):
        what, fix = f"there is no world '{name[:60]}' to extend", did_you_mean(name, shipped())
        raise ConfigError([Diagnostic(what, f"{fix} Or give a path to a .yaml file, seen from this file.", where)])
    parent = find_world(name, path.parent, where)
    if os.path.abspath(parent) in chain:
        circle = " → ".join(os.path.basename(p) for p in (*chain, str(parent)))
        raise ConfigError([Diagnostic(f"worlds extend each other in a circle: {circle}", "break the circle", where)])
    if len(chain) >= MAX_CHAIN:
        raise ConfigError(
            [Diagnostic(f"more than {MAX_CHAIN} worlds extend each other", "extend an earlier one", where)]
        )
    return parent


def _text(node: Node | None) -> str | None:
    return node.value if node is not None and isinstance(node.value, str) else None


def _entries(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _names_to_remove(remove: Node, parent: Node, found: list[Diagnostic]) -> set[str]:
    known = [name for key in NAMED for entry in _entries(parent.child(key)) if (name := entry_name(entry))]
    names = set()
    if not isinstance(remove.value, list):
        found.append(Diagnostic("`remove` is not a list of names", "write `remove: [Gym, Bar]`", remove.location))
    for entry in _entries(remove):
        if isinstance(entry.value, str) and entry.value in known:
            names.add(entry.value)
        else:
            word = str(entry.to_python())[:60]
            found.append(Diagnostic(f"there is no '{word}' to remove", did_you_mean(word, known), entry.location))
    return names


def without(node: Node, names: set[str]) -> Node:
    """The world less the named meters, affordances and links, and less all that speaks of removed meters."""
    value = dict(node.value) if isinstance(node.value, dict) else {}
    meters = {name for entry in _entries(value.get("meters")) if (name := entry_name(entry)) in names and name}
    for key in NAMED:
        if key in value:
            kept = [e for e in _entries(value[key]) if entry_name(e) not in names and not _links(e, meters)]
            value[key] = _with(value[key], [_forget(e, meters) for e in kept])
    if "lethal" in value:
        value["lethal"] = _with(value["lethal"], [e for e in _entries(value["lethal"]) if e.value not in meters])
    if "rewards" in value:
        value["rewards"] = _with(value["rewards"], [_forget(e, meters) for e in _entries(value["rewards"])])
    if _text(value.get("currency")) in meters:
        del value["currency"]
    return _with(node, value)


def _with(node: Node, value: dict[str, Node] | list[Node]) -> Node:
    return Node(value, node.location, node.key_location)


def _links(entry: Node, meters: set[str]) -> bool:
    return any(_text(entry.child(key)) in meters for key in ("source", "target"))


def _forget(entry: Node, meters: set[str]) -> Node:
    """An affordance or a reward without the meters that are gone."""
    if not isinstance(entry.value, dict):
        return entry
    value = dict(entry.value)
    for key in ("each_tick", "at_end"):
        effects = value.get(key)
        if effects is not None and isinstance(effects.value, dict):
            value[key] = _with(effects, {name: v for name, v in effects.value.items() if name not in meters})
    listed = value.get("meters")
    if listed is not None and isinstance(listed.value, list):
        kept = [e for e in listed.value if e.value not in meters]
        value["meters"] = _with(listed, kept)
        if not kept:
            del value["meters"]  # back to the default rather than an empty product
    if _text(value.get("meter")) in meters:
        del value["meter"]
    return _with(entry, value)


__all__ = ["from_node", "from_spec", "from_text", "load", "shipped"]


def load(name_or_path: str | Path, overrides: Sequence[str] = ()) -> World:
    """The world of a shipped name or of a file, with `key=value` overrides; raises ConfigError, all at once."""
    path = find_world(name_or_path, Path())
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
