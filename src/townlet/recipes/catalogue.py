"""Where recipes lie and what each is built on: files, variants, `extends`.

Layers, the first at the bottom: what the file extends, what the variant extends in other files, the file's own
keys, the variants of the same file that the variant extends, the variant. See `overlay` for how they merge.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from townlet.config.yaml import Node, read
from townlet.errors import ConfigError, SourceLocation, TownletError, did_you_mean, nearest
from townlet.recipes.merge import normalize
from townlet.recipes.paths import seen_from
from townlet.town.world import load as worlds
from townlet.town.world.schema import WorldSpec

FOLDER: Final = Path(__file__).resolve().parent
STRUCTURE: Final = ("extends", "variants", "default")  # keys of a file that are not of a recipe
MEASURED: Final = ("description", "tuned", "result")  # true of one recipe, not of those that extend it
STANDARD: Final = "town"
ANY: Final = "gym"  # the recipe of environments that have none of their own
ID: Final = re.compile(r"([\w.-]+/)?[\w.-]+-v\d+")  # as Gymnasium writes them
MAX_CHAIN: Final = 16
BREAK: Final = "leave `extends` out of one of them"


@dataclass(frozen=True)
class File:
    """A recipe's file as it stands."""

    path: Path
    own: Node
    variants: dict[str, Node]
    extends: Node | None = None
    default: str | None = None

    @property
    def name(self) -> str:
        return self.path.stem if self.path.parent == FOLDER else str(self.path)

    def parent(self) -> File | None:
        """The file that this one extends."""
        if self.extends is None:
            return None
        name, where = self.extends.value, self.extends.key_location
        if not isinstance(name, str):
            raise TownletError("`extends` is not the name of a recipe", did_you_mean("", shipped()), where)
        path = _recipe_path(name, self.path.parent)
        if path is None:
            fix = f"{did_you_mean(name, shipped())} (a shipped recipe, or the path of a .yaml file)"
            raise TownletError(f"there is no recipe '{name[:60]}' to extend", fix, where)
        return read_file(path)

    def known(self, depth: int = 0) -> dict[str, Node]:
        """Variants by name, those of the file that it extends first."""
        if depth > MAX_CHAIN:
            where = self.extends.key_location if self.extends else None
            raise TownletError("recipes extend each other in a circle", BREAK, where)
        parent = self.parent()
        return {**(parent.known(depth + 1) if parent else {}), **self.variants}


@dataclass(frozen=True)
class Choice:
    """A recipe picked by ENV:VARIANT: its layers from the bottom up, normalised."""

    file: File
    variant: str | None
    layers: tuple[Node, ...]


@lru_cache(maxsize=1)
def shipped() -> tuple[str, ...]:
    """Names of the recipe files that come with the program, those of towns first."""
    return tuple(sorted((path.stem for path in FOLDER.glob("*.yaml")), key=lambda n: (not n.startswith(STANDARD), n)))


def titles() -> tuple[str, ...]:
    """ENV:VARIANT of everything shipped."""
    files = [read_file(FOLDER / f"{name}.yaml") for name in shipped()]
    return tuple(f"{_id(file) or file.name}:{variant}" for file in files for variant in file.known())


def read_file(path: Path) -> File:
    """The file split into its own keys and its variants; raises ConfigError."""
    return _read_shipped(path) if path.parent == FOLDER else _split(read(path), path)


@lru_cache(maxsize=64)
def _read_shipped(path: Path) -> File:
    return _split(read(path), path)


def _split(node: Node, path: Path) -> File:
    values = node.value if isinstance(node.value, dict) else {}
    variants, default = values.get("variants"), values.get("default")
    own = Node({key: below for key, below in values.items() if key not in STRUCTURE}, node.location)
    blocks = _mapping(
        variants, "`variants` is not a mapping", "write `variants:` and below it a name and a colon for each"
    )
    for name, block in blocks.items():
        _mapping(block, f"variant '{name}' is not a mapping", "write its keys below it, or {} for none")
    if default is not None and default.value not in blocks:
        fix = did_you_mean(str(default.to_python()), list(blocks))
        raise TownletError("`default` does not name a variant of this file", fix, default.location)
    named = {name: seen_from(block, path.parent) for name, block in blocks.items()}
    choice = str(default.value) if default else None
    return File(path, seen_from(own, path.parent), named, values.get("extends"), choice)


def _mapping(node: Node | None, what: str, fix: str) -> dict[str, Node]:
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        raise TownletError(what, fix, node.key_location or node.location)
    return node.value


def from_command_line(node: Node) -> Node:
    """The layer of `key=value`, which may name a world's file as seen from here."""
    return normalize(seen_from(node, Path()))


def choose(asked: str, folder: Path = Path(), where: SourceLocation | None = None) -> Choice:
    """The recipe behind ENV:VARIANT, FILE:VARIANT or WORLD:VARIANT; raises TownletError with what there is."""
    name, variant = _split_name(asked, folder)
    path = _recipe_path(name, folder) or _recipe_of(name)
    top: dict[str, str] = {}
    if path is None and ID.fullmatch(name):
        file = read_file(FOLDER / f"{ANY}.yaml")
        _refuse_other_version(file, name, variant, where)
        top = {"env": name, "description": f"{name} with the settings for any environment."}
    elif path is None or (path.parent != FOLDER and _is_world(path)):
        world = _world_path(name, folder, where) if path is None else path
        file = read_file(FOLDER / f"{_relative(world)}.yaml")
        top = {"env": world.stem, "world": _world_name(world)}
    else:
        file = read_file(path)
    variant = _variant(file, variant, name, where)
    layers = _layers(file, variant)
    if top:
        top.setdefault("description", f"{file.name}:{variant} in the world {top['env']}.")
        layers = [_unmeasured(layer) for layer in layers]
        layers.append(
            Node({key: Node(value, SourceLocation(asked)) for key, value in top.items()}, SourceLocation(asked))
        )
    if variant is not None:
        layers.append(Node({"variant": Node(variant, SourceLocation(asked))}, SourceLocation(asked)))
    return Choice(file, variant, tuple(normalize(layer) for layer in layers))


def _refuse_other_version(file: File, name: str, variant: str | None, where: SourceLocation | None) -> None:
    """Refuse a variant that only the recipe of another version of the environment has."""
    if variant is None or variant in file.known():
        return
    for other in shipped():
        if (
            other.rpartition("-v")[0] == name.rpartition("-v")[0]
            and variant in read_file(FOLDER / f"{other}.yaml").known()
        ):
            raise TownletError(f"there is no recipe {name}:{variant}", f"did you mean '{other}:{variant}'?", where)


def _split_name(asked: str, folder: Path) -> tuple[str, str | None]:
    head, colon, tail = asked.rpartition(":")
    return (asked, None) if not colon or os.path.isfile(folder / asked) else (head, tail)


def _recipe_path(name: str, folder: Path) -> Path | None:
    if name in shipped():
        return FOLDER / f"{name}.yaml"
    path = folder / name
    return path if name.endswith(worlds.ENDINGS) and os.path.isfile(path) else None


def _recipe_of(env: str) -> Path | None:
    """The shipped file whose environment has this id: ids may have letters that files cannot."""
    if "/" not in env or not ID.fullmatch(env):
        return None
    files = (read_file(FOLDER / f"{name}.yaml") for name in shipped())
    return next((file.path for file in files if _id(file) == env), None)


def _id(file: File) -> str | None:
    """The id of a file's environment, where it has letters that the file's name cannot have."""
    env = file.own.child("env")
    return env.value if env is not None and isinstance(env.value, str) and "/" in env.value else None


def _is_world(path: Path) -> bool:
    """Whether a file holds a world: it has no key that only a recipe has."""
    from townlet.recipes.schema import Recipe  # loads torch, which finding and listing can do without

    only = {*Recipe.model_fields, "variants", "default"} - {*WorldSpec.model_fields}
    found = read(path).value
    return isinstance(found, dict) and not only & set(found)


def _world_path(name: str, folder: Path, where: SourceLocation | None) -> Path:
    """A shipped world that has no recipe of its own."""
    if name in worlds.shipped():
        return worlds.FOLDER / f"{name}.yaml"
    if name.endswith(worlds.ENDINGS):
        raise TownletError(f"there is no file '{name[:60]}'", f"write its path as seen from {folder.absolute()}", where)
    beside = sorted(path.name for path in folder.glob("*.yaml"))
    fix = f"did you mean '{name}.yaml'?" if f"{name}.yaml" in beside else did_you_mean(name, [*shipped(), *beside])
    if variants := [title for title in titles() if title.partition(":")[2] == name]:
        usual = f"{STANDARD}:{name}"
        fix = f"did you mean '{usual if usual in variants else variants[0]}'?"
    raise TownletError(f"there is no recipe '{name[:60]}'", f"{fix} (`townlet recipes` lists all)", where)


def _world_name(path: Path) -> str:
    return path.stem if path.parent == worlds.FOLDER else os.path.abspath(path)


def _relative(world: Path) -> str:
    """The nearest world that this one extends and that has recipes; what is wrong with it is told when it is loaded."""
    path = world
    try:
        for _ in range(MAX_CHAIN):
            extends = worlds.read_world(path).child("extends")
            if extends is None or not isinstance(extends.value, str):
                break
            if extends.value in shipped():
                return extends.value
            path = worlds.find_world(extends.value, path.parent)
    except ConfigError:
        pass
    return STANDARD


def _variant(file: File, variant: str | None, name: str, where: SourceLocation | None) -> str | None:
    """The variant asked for, or the only one, or the file's default."""
    known = file.known()
    if variant is None and len(known) < 2:
        return next(iter(known), None)
    if variant is None and file.default is not None:
        return file.default
    if variant is None:
        lines = (f"{name}:{v}  {_said(block)}".rstrip() for v, block in known.items())
        raise TownletError(f"{name} has {len(known)} variants", "choose one\n      " + "\n      ".join(lines), where)
    if variant not in known:
        what, near = f"{name} has no variant '{variant[:60]}'", nearest(variant, list(known))
        other = did_you_mean(variant, list(known)) if known else "write its name alone"
        raise TownletError(what, f"did you mean '{name}:{near}'?" if near else other, where)
    return variant


def _said(variant: Node) -> str:
    """What is known of a variant, in a line."""
    told = variant.to_python()
    result = told.get("result", ())
    results = (result,) if isinstance(result, str) else (r.get("what", "") for r in result if isinstance(r, dict))
    return " ".join(map(str, (told.get("description", ""), *results)))


def _layers(file: File, variant: str | None, chain: tuple[str, ...] = ()) -> list[Node]:
    link = f"{file.path}:{variant}"
    if link in chain or len(chain) >= MAX_CHAIN:
        circle = " → ".join(os.path.basename(part) for part in (*chain, link))
        raise TownletError(f"recipes extend each other in a circle: {circle}", BREAK, file.own.location)
    chain = (*chain, link)
    own, root, foreign = _same_file(file, variant)
    below: list[Node] = []
    if parent := file.parent():
        below += _layers(parent, root if root in parent.known() else None, chain)
    if foreign is not None:
        name, other = _split_name(str(foreign.value), file.path.parent)
        path = _recipe_path(name, file.path.parent)
        if path is None:
            fix = did_you_mean(str(foreign.value), titles())
            raise TownletError(f"there is no recipe '{foreign.value}' to extend", fix, foreign.key_location)
        far = read_file(path)
        below += _layers(far, _variant(far, other, name, foreign.key_location), chain)
    return [*map(_unmeasured, below), file.own, *map(_unmeasured, own[:-1]), *own[-1:]]


def _same_file(file: File, variant: str | None) -> tuple[list[Node], str | None, Node | None]:
    """The variant's chain within its file from the bottom up, the name it ends at, and what it extends elsewhere."""
    own: list[Node] = []
    seen: list[str] = []
    name = variant
    while name is not None and name in file.variants:
        if name in seen:
            circle = " → ".join((*seen, name))
            raise TownletError(f"variants extend each other in a circle: {circle}", BREAK, file.variants[name].location)
        seen.append(name)
        block = file.variants[name]
        own.insert(0, block.without("extends"))
        extends = block.child("extends")
        if extends is None:
            break
        if not isinstance(extends.value, str):
            raise TownletError(
                "`extends` is not the name of a variant", "write VARIANT, or ENV:VARIANT", extends.key_location
            )
        if ":" in extends.value:
            return own, None, extends
        if extends.value not in file.known():
            fix = did_you_mean(extends.value, [v for v in file.known() if v != name])
            raise TownletError(f"there is no variant '{extends.value[:60]}' to extend", fix, extends.key_location)
        name = extends.value
    return own, name, None


def _unmeasured(layer: Node) -> Node:
    """A layer without what was said and measured of another recipe."""
    for key in MEASURED:
        layer = layer.without(key)
    return layer
