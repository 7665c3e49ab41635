"""Recipe files, their variants, and `extends`.

A recipe is merged from layers (`townlet.config.merge`). From the bottom up: the file that its file extends; the recipe
in another file that its variant extends; the shared keys of its file; the variants of its file that its variant
extends; the variant itself.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from townlet.config.merge import MAX_CHAIN, add_to_chain
from townlet.config.yaml import Node, read
from townlet.errors import ConfigError, SourceLocation, TownletError, did_you_mean, nearest
from townlet.gym.settings import GYM_ID
from townlet.recipes.layers import normalize, with_absolute_paths
from townlet.town.ids import IDS
from townlet.town.world import load as worlds
from townlet.town.world.schema import WorldSpec

FOLDER: Final = Path(__file__).resolve().parent
FILE_KEYS: Final = ("extends", "variants", "default")  # keys of a file that are not keys of a recipe
NOT_INHERITED: Final = ("description", "tuned", "result")  # they describe one recipe only
STANDARD_TOWN: Final = "town"
GENERIC_GYM: Final = "gym"  # the recipe of Gymnasium environments without a recipe file
DEFAULT_VARIANT: Final = "ppo"  # of `townlet.train`, for environments whose recipe has no default
# FILE.py:ENV, MODULE:ENV or <local-…>:ENV, each with or without :VARIANT.
SOURCE_AND_ENV: Final = re.compile(r"(.+\.py|<[\w-]+>|[A-Za-z_]\w*(?:\.\w+)*):([^:]+)(?::([^:]+))?")


@dataclass(frozen=True)
class RecipeFile:
    """The parts of a recipe file, before inheritance."""

    path: Path
    shared: Node  # keys common to all variants
    variants: dict[str, Node]
    extends: Node | None = None
    default: str | None = None

    @property
    def name(self) -> str:
        return self.path.stem if self.path.parent == FOLDER else str(self.path)

    def parent(self) -> RecipeFile | None:
        """The file that this one extends."""
        if self.extends is None:
            return None
        name, where = self.extends.value, self.extends.key_location
        if not isinstance(name, str):
            raise TownletError("`extends` is not the name of a recipe", did_you_mean("", shipped_recipes()), where)
        path = _recipe_path(name, self.path.parent)
        if path is None:
            fix = f"{did_you_mean(name, shipped_recipes())} (a shipped recipe, or the path of a .yaml file)"
            raise TownletError(f"there is no recipe '{name[:60]}' to extend", fix, where)
        return read_file(path)

    def all_variants(self, chain: tuple[str, ...] = ()) -> dict[str, Node]:
        """Variants by name, including those of the files it extends."""
        where = self.extends.key_location if self.extends else None
        chain, parent = add_to_chain(chain, str(self.path), "recipes", where), self.parent()
        return {**(parent.all_variants(chain) if parent else {}), **self.variants}


class RecipeName(NamedTuple):
    """A recipe as named by the user; `source` is a Python file or a module that defines the environment."""

    source: str | None
    env: str
    variant: str | None


@dataclass(frozen=True)
class RecipeLayers:
    """The layers of ENV:VARIANT from the bottom up, normalized."""

    file: RecipeFile
    variant: str | None
    layers: tuple[Node, ...]


@lru_cache(maxsize=1)
def shipped_recipes() -> tuple[str, ...]:
    """Names of the shipped recipe files, towns first."""
    names = (path.stem for path in FOLDER.glob("*.yaml"))
    return tuple(sorted(names, key=lambda name: (not name.startswith(STANDARD_TOWN), name)))


def recipe_names() -> tuple[str, ...]:
    """ENV:VARIANT of every shipped recipe."""
    files = map(_shipped_file, shipped_recipes())
    return tuple(f"{_namespaced_id(file) or file.name}:{variant}" for file in files for variant in file.all_variants())


def read_file(path: Path) -> RecipeFile:
    """Read a file and split it into shared keys and variants; raises ConfigError."""
    return _read_shipped(path) if path.parent == FOLDER else _read(path)


def _shipped_file(name: str) -> RecipeFile:
    return _read_shipped(FOLDER / f"{name}.yaml")


def _read(path: Path) -> RecipeFile:
    node = read(path)
    values = node.value if isinstance(node.value, dict) else {}
    variants, default = values.get("variants", Node({}, node.location)), values.get("default")
    shared = Node({key: child for key, child in values.items() if key not in FILE_KEYS}, node.location)
    if not isinstance(variants.value, dict):
        fix = "write `variants:`, and below it the name of each variant and a colon"
        raise TownletError("`variants` is not a mapping", fix, variants.location_of())
    blocks = variants.value
    for name, block in blocks.items():
        if not isinstance(block.value, dict):
            fix = "write its keys below it, or {} for none"
            raise TownletError(f"variant '{name}' is not a mapping", fix, block.location_of())
    if default is not None and default.value not in blocks:
        fix = did_you_mean(str(default.to_python()), list(blocks))
        raise TownletError("`default` does not name a variant of this file", fix, default.location)
    absolute = {name: with_absolute_paths(block, path.parent) for name, block in blocks.items()}
    default_name = str(default.value) if default else None
    return RecipeFile(path, with_absolute_paths(shared, path.parent), absolute, values.get("extends"), default_name)


_read_shipped = lru_cache(maxsize=64)(_read)


def find_layers(name: str) -> RecipeLayers:
    """The layers of a recipe, given as ENV, FILE, WORLD or SOURCE:ENV, each with :VARIANT; raises TownletError."""
    source, env, variant = parse_recipe_name(name)
    if source is not None:
        return _source_layers(source, env, variant)
    path = _recipe_path(env, Path())
    if path is None and "/" in env:  # a file name cannot contain the slash of a namespaced Gymnasium id
        path = next((file.path for file in map(_shipped_file, shipped_recipes()) if _namespaced_id(file) == env), None)
    top: dict[str, str] = {}
    if path is None and GYM_ID.fullmatch(env):
        file = _shipped_file(GENERIC_GYM)
        _refuse_other_version(file, env, variant)
        top = {"env": env, "description": f"{env} with the general settings."}
    elif path is None or (path.parent != FOLDER and _is_world(path)):
        world = _world_path(env) if path is None else path
        file = _shipped_file(_nearest_recipe(world))
        world_name = world.stem if world.parent == worlds.FOLDER else os.path.abspath(world)
        top = {"env": world.stem, "world": world_name}
    else:
        file = read_file(path)
    variant = _select_variant(file, variant, env)
    layers = _layers(file, variant)
    origin = SourceLocation(name)
    if top:
        top.setdefault("description", f"{file.name}:{variant} in the world {top['env']}.")
        layers = [_inheritable(layer) for layer in layers]
        layers.append(Node({key: Node(value, origin) for key, value in top.items()}, origin))
    if variant is not None:
        layers.append(Node({"variant": Node(variant, origin)}, origin))
    return RecipeLayers(file, variant, tuple(normalize(layer) for layer in layers))


def parse_recipe_name(name: str) -> RecipeName:
    """The parts of ENV:VARIANT or SOURCE:ENV:VARIANT; the Gymnasium id of a town stands for its world."""
    found = SOURCE_AND_ENV.fullmatch(name)
    if found is not None and not os.path.isfile(name):
        source, env, variant = found.groups()
        # One colon also separates the variant, so `town:ppo` is not a class `ppo` of a module `town`.
        if source.endswith((".py", ">")) or variant is not None or GYM_ID.fullmatch(env):
            return RecipeName(source, env, variant)
    if name.endswith(".py"):
        raise TownletError(f"'{name}' is a Python file", f"name the environment in it: {name}:CLASS:ppo")
    env, variant = _split_variant(name, Path())
    return RecipeName(None, IDS.get(env, env), variant)


def _source_layers(source: str, env: str, variant: str | None) -> RecipeLayers:
    """The layers of an environment that a Python file, a module or the calling program defines."""
    file = _shipped_file(GENERIC_GYM)
    # Objects passed to townlet.train are shown without their generated source.
    shown = env if source.startswith("<") else f"{source}:{env}"
    variant = _select_variant(file, variant, shown)
    origin = SourceLocation(f"{shown}:{variant}")
    path = os.path.abspath(source) if source.endswith(".py") else source
    top = {"env": env, "description": f"{env} with the general settings.", "variant": variant}
    own = {key: Node(value, origin) for key, value in top.items()}
    own["gym"] = Node({"source": Node(path, origin)}, origin)
    layers = [*map(_inheritable, _layers(file, variant)), Node(own, origin)]
    return RecipeLayers(file, variant, tuple(normalize(layer) for layer in layers))


def _refuse_other_version(file: RecipeFile, env: str, variant: str | None) -> None:
    """Refuse a variant that exists only for another version of the environment."""
    if variant is None or variant in file.all_variants():
        return
    for other in shipped_recipes():
        same_env = other.rpartition("-v")[0] == env.rpartition("-v")[0]
        if same_env and variant in _shipped_file(other).all_variants():
            raise TownletError(f"there is no recipe {env}:{variant}", f"did you mean '{other}:{variant}'?")


def _split_variant(name: str, folder: Path) -> tuple[str, str | None]:
    env, colon, variant = name.rpartition(":")
    return (name, None) if not colon or os.path.isfile(folder / name) else (env, variant)


def with_variant(name: str, variant: str | None) -> str:
    """The name of a recipe with this variant; without one, with DEFAULT_VARIANT if the recipe has no default."""
    if (named := parse_recipe_name(name).variant) is not None:
        if variant not in (None, named):
            raise TownletError(
                f"'{name}' already names a variant, so '{variant}' cannot be one too", "drop one of them"
            )
        return name
    if variant is not None:
        return f"{name}:{variant}"
    for complete in (name, f"{name}:{DEFAULT_VARIANT}"):
        with suppress(TownletError):
            find_layers(complete)
            return complete
    return name  # loading it reports what is wrong


def read_variants(env: str) -> list[tuple[str, str]]:
    """The variants for an environment or a shipped world, each with its description."""
    path = _recipe_path(env, Path()) or FOLDER / f"{_nearest_recipe(_world_path(env))}.yaml"
    variants = read_file(path).all_variants().items()
    return [(name, str(block.to_python().get("description", ""))) for name, block in variants]


def _recipe_path(name: str, folder: Path) -> Path | None:
    if name in shipped_recipes():
        return FOLDER / f"{name}.yaml"
    path = folder / name
    return path if name.endswith(worlds.SUFFIXES) and os.path.isfile(path) else None


def _namespaced_id(file: RecipeFile) -> str | None:
    """The Gymnasium id of a recipe file if it has a namespace, as in ALE/Pong-v5."""
    env = file.shared.child("env")
    return env.value if env is not None and isinstance(env.value, str) and "/" in env.value else None


def _is_world(path: Path) -> bool:
    """Whether a file holds a world: it has no key that only recipes have."""
    from townlet.recipes.schema import Recipe  # imports torch, which is not needed to find and list recipes

    recipe_keys = {*Recipe.model_fields, "variants", "default"} - {*WorldSpec.model_fields}
    values = read(path).value
    return isinstance(values, dict) and not recipe_keys & set(values)


def _world_path(name: str) -> Path:
    """The file of a world without a recipe; raises TownletError with suggestions."""
    if name in worlds.shipped() or name.endswith(worlds.SUFFIXES):
        return worlds.find_world(name, Path())
    files = sorted(path.name for path in Path().glob("*.yaml"))
    known = f"{name}.yaml" in files
    fix = f"did you mean '{name}.yaml'?" if known else did_you_mean(name, [*shipped_recipes(), *files])
    if same_variant := [recipe for recipe in recipe_names() if recipe.partition(":")[2] == name]:
        standard = f"{STANDARD_TOWN}:{name}"
        fix = f"did you mean '{standard if standard in same_variant else same_variant[0]}'?"
    raise TownletError(f"there is no recipe '{name[:60]}'", f"{fix} (`townlet recipes` lists all)")


def _nearest_recipe(world: Path) -> str:
    """The recipe of the nearest world that this one extends. Errors are ignored: loading the world reports them."""
    path = world
    try:
        for _ in range(MAX_CHAIN):
            extends = worlds.read_world(path).child("extends")
            if extends is None or not isinstance(extends.value, str):
                break
            if extends.value in shipped_recipes():
                return extends.value
            path = worlds.find_world(extends.value, path.parent)
    except ConfigError:
        pass
    return STANDARD_TOWN


def _select_variant(
    file: RecipeFile, variant: str | None, name: str, where: SourceLocation | None = None
) -> str | None:
    """The given variant, or the only one, or the file's default."""
    known = file.all_variants()
    if variant is None and len(known) < 2:
        return next(iter(known), None)
    if variant is None and file.default is not None:
        return file.default
    if variant is None:
        lines = (f"{name}:{v}  {_variant_summary(block)}".rstrip() for v, block in known.items())
        raise TownletError(f"{name} has {len(known)} variants", "choose one\n      " + "\n      ".join(lines), where)
    if variant not in known:
        what, near = f"{name} has no variant '{variant[:60]}'", nearest(variant, list(known))
        other = did_you_mean(variant, list(known)) if known else "write its name alone"
        raise TownletError(what, f"did you mean '{name}:{near}'?" if near else other, where)
    return variant


def _variant_summary(variant: Node) -> str:
    """Description and results of a variant in one line."""
    values = variant.to_python()
    result = values.get("result", ())
    results = (result,) if isinstance(result, str) else (r.get("what", "") for r in result if isinstance(r, dict))
    return " ".join(map(str, (values.get("description", ""), *results)))


def _layers(file: RecipeFile, variant: str | None, chain: tuple[str, ...] = ()) -> list[Node]:
    """The layers of a variant from the bottom up."""
    chain = add_to_chain(chain, f"{file.path}:{variant}", "recipes", file.shared.location)
    own, root, foreign = _variant_chain(file, variant)
    inherited: list[Node] = []
    if parent := file.parent():
        inherited += _layers(parent, root if root in parent.all_variants() else None, chain)
    if foreign is not None:
        name, other = _split_variant(str(foreign.value), file.path.parent)
        path = _recipe_path(name, file.path.parent)
        if path is None:
            fix = did_you_mean(str(foreign.value), recipe_names())
            raise TownletError(f"there is no recipe '{foreign.value}' to extend", fix, foreign.key_location)
        extended = read_file(path)
        inherited += _layers(extended, _select_variant(extended, other, name, foreign.key_location), chain)
    return [*map(_inheritable, inherited), file.shared, *map(_inheritable, own[:-1]), *own[-1:]]


def _variant_chain(file: RecipeFile, variant: str | None) -> tuple[list[Node], str | None, Node | None]:
    """The blocks of a variant and of those it extends in its file, from the bottom up.

    Also the name at which the chain ends (perhaps a variant of the parent file), and an `extends` of another recipe.
    """
    own: list[Node] = []
    chain: tuple[str, ...] = ()
    name = variant
    while name is not None and name in file.variants:
        block = file.variants[name]
        chain = add_to_chain(chain, name, "variants", block.location)
        own.insert(0, block.without("extends"))
        extends = block.child("extends")
        if extends is None:
            break
        if not isinstance(extends.value, str):
            fix = "write VARIANT, or ENV:VARIANT"
            raise TownletError("`extends` is not the name of a variant", fix, extends.key_location)
        if ":" in extends.value:
            return own, None, extends
        if extends.value not in file.all_variants():
            fix = did_you_mean(extends.value, [v for v in file.all_variants() if v != name])
            raise TownletError(f"there is no variant '{extends.value[:60]}' to extend", fix, extends.key_location)
        name = extends.value
    return own, name, None


def _inheritable(layer: Node) -> Node:
    """A layer without the keys that describe only its own recipe."""
    for key in NOT_INHERITED:
        layer = layer.without(key)
    return layer
