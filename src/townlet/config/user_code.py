"""Python files of users with wrappers and agents, named by recipes; they run only if permitted.

Wrappers register with the decorator below, agents with `townlet.agents.registry.register`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import blake2b
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any, TypeVar

from townlet.errors import TownletError, did_you_mean

Factory = TypeVar("Factory", bound=Callable[..., Any])
_factories: dict[str, Callable[..., Any]] = {}  # of wrappers, by name
_allowed: list[str] = []  # paths of the files that were run
_permitted = False  # whether recipes may run further files


def wrapper(name: str) -> Callable[[Factory], Factory]:
    """Register a factory `make(env, **settings)` for {name: custom, wrapper: NAME, file: FILE.py} in recipes."""

    def register(factory: Factory) -> Factory:
        _factories[name] = factory
        return factory

    return register


def registered(name: str) -> Callable[..., Any]:
    """The wrapper factory of that name; raises TownletError if there is none."""
    if name not in _factories:
        fix = (
            did_you_mean(name, sorted(_factories)) if _factories else "name the file that registers it: `file: FILE.py`"
        )
        raise TownletError(f"no wrapper '{name}' is registered", fix)
    return _factories[name]


def permit() -> None:
    """Allow recipes to run the files they name, in this process."""
    global _permitted
    _permitted = True


def run(path: str) -> None:
    """Run a file named by a recipe if that is permitted and it has not run yet."""
    if str(Path(path).resolve()) not in _allowed and not _permitted:
        what = f"the recipe runs the Python file {path}, which can do anything"
        raise TownletError(what, "read it, and add --allow-code if you trust it")
    allow_code(path)


def allow_code(path: str | Path) -> None:
    """Run a Python file unless it has run already, so that it registers wrappers and agents."""
    file = Path(path).resolve()
    if str(file) in _allowed:
        return
    if not file.is_file() or file.suffix != ".py":
        fix = "give the path of a .py file with your wrappers or agents"
        raise TownletError(f"there is no Python file '{path}'", fix)
    # A unique module name per file, so that other processes can find its classes.
    name = f"townlet_own_{blake2b(str(file).encode(), digest_size=8).hexdigest()}"
    loader = SourceFileLoader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TownletError(f"'{path}' cannot be loaded: {type(error).__name__}: {error}", "correct the file") from error
    _allowed.append(str(file))


def allowed() -> tuple[str, ...]:
    """The files that were run, in order."""
    return tuple(_allowed)
