"""Python files of users with wrappers and agents, named by recipes; they are executed only if permitted.

Wrappers are registered with the decorator `wrapper`, agents with `townlet.agents.registry.register`.
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
_factories: dict[str, Callable[..., Any]] = {}  # wrapper name → factory
_executed: list[str] = []  # resolved paths, in order
_permitted = False  # whether recipes may execute further files


def wrapper(name: str) -> Callable[[Factory], Factory]:
    """Register a factory `make(env, **settings)` for {name: custom, wrapper: NAME, file: FILE.py} in recipes."""

    def register(factory: Factory) -> Factory:
        _factories[name] = factory
        return factory

    return register


def find_wrapper(name: str) -> Callable[..., Any]:
    """The wrapper factory of that name; raises TownletError if there is none."""
    if name not in _factories:
        fix = did_you_mean(name, sorted(_factories)) if _factories else "name the file that registers it as `file`"
        raise TownletError(f"no wrapper '{name}' is registered", fix)
    return _factories[name]


def permit() -> None:
    """Allow recipes to execute the files they name, in this process."""
    global _permitted
    _permitted = True


def execute_if_permitted(path: str) -> None:
    """Execute a file named by a recipe; raises TownletError if it is new and code is not permitted."""
    if str(Path(path).resolve()) not in _executed and not _permitted:
        what = f"the recipe runs the Python file {path}, which can do anything"
        raise TownletError(what, "read it, and add --allow-code if you trust it")
    execute_file(path)


def execute_file(path: str | Path) -> None:
    """Execute a Python file once, so that it registers its wrappers and agents; needs no permission."""
    file = Path(path).resolve()
    if str(file) in _executed:
        return
    if not file.is_file() or file.suffix != ".py":
        fix = "give the path of a .py file with your wrappers or agents"
        raise TownletError(f"there is no Python file '{path}'", fix)
    # The name depends only on the path, so that classes can be unpickled in other processes that execute the file.
    name = f"townlet_user_{blake2b(str(file).encode(), digest_size=8).hexdigest()}"
    loader = SourceFileLoader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TownletError(f"'{path}' cannot be loaded: {type(error).__name__}: {error}", "correct the file") from error
    _executed.append(str(file))


def executed_files() -> tuple[str, ...]:
    """The files executed so far, in order."""
    return tuple(_executed)
