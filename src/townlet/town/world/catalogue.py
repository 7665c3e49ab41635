"""Where worlds lie: those shipped with the program by name, all others by path."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from townlet.config.yaml import Node, read
from townlet.errors import ConfigError, Diagnostic, SourceLocation, did_you_mean

FOLDER: Final = Path(__file__).resolve().parent.parent / "worlds"
ENDINGS: Final = (".yaml", ".yml")


@lru_cache(maxsize=1)
def shipped() -> tuple[str, ...]:
    """Names of the worlds that come with the program."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find(world: str | Path, folder: Path, where: SourceLocation | None = None) -> Path:
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
