"""Python code of users: wrappers, agents, environments and domains; it runs only if that is permitted.

Wrappers are registered with the decorator `wrapper`, agents with `townlet.agents.registry.register`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn, TypeVar

from townlet.errors import SourceLocation, TownletError, did_you_mean

Factory = TypeVar("Factory", bound=Callable[..., Any])
ALLOW: Final = "read it, and add --allow-code if you trust it (in Python: townlet.allow_code())"
_factories: dict[str, Callable[..., Any]] = {}  # wrapper name → factory
_executed: list[str] = []  # resolved paths, in order
_permitted = False  # whether recipes may execute further files


def wrapper(name: str) -> Callable[[Factory], Factory]:
    """Decorator: register a wrapper class or a function `make(env, **settings)` for recipes.

    A recipe names it as `{name: custom, wrapper: NAME, file: FILE.py}` under `gym.wrappers`.

    Args:
        name: the name of the wrapper in recipes.
    """

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


def permitted() -> bool:
    """Whether recipes may execute the files they name."""
    return _permitted


def execute_if_permitted(path: str) -> None:
    """Execute a file named by a recipe; raises TownletError if it is new and code is not permitted."""
    require_permission(path)
    execute_file(path)


def require_permission(source: str, what: str = "") -> None:
    """Raise TownletError unless this Python file may run or this module be imported; `what`: the message."""
    is_file = source.endswith(".py")
    if is_file and not Path(source).is_file():
        raise _missing_file(source)
    if _permitted or (is_file and str(Path(source).resolve()) in _executed):
        return
    does = f"runs the Python file {source}" if is_file else f"imports the Python module {source}"
    raise TownletError(what or f"the recipe {does}, which can do anything", ALLOW)


def load_source(source: str) -> ModuleType:
    """The module of a Python file, or the module of this name; needs no permission."""
    if source.endswith(".py"):
        execute_file(source)
        return sys.modules[_module_name(Path(source).resolve())]
    try:
        return import_module(source)
    except (Exception, SystemExit) as error:
        file = f"{source.replace('.', '/')}.py"
        missing = isinstance(error, ImportError) and error.name == source.partition(".")[0]
        other = f"name the file instead: {file}" if Path(file).is_file() else "install its package"
        fix = other if missing else "correct the module"
        raise TownletError(f"the module '{source}' cannot be imported: {type(error).__name__}: {error}", fix) from error


def execute_file(path: str | Path) -> None:
    """Execute a Python file once, so that it registers its wrappers and agents; needs no permission."""
    file = Path(path).resolve()
    if str(file) in _executed:
        return
    if not file.is_file() or file.suffix != ".py":
        raise _missing_file(path)
    name = _module_name(file)
    loader = _Loader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    sys.modules[name] = module
    if str(file.parent) not in sys.path:  # the file may import others beside it, as if it were run as a script
        sys.path.append(str(file.parent))
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        what = f"the file cannot be loaded: {describe(error)}"
        raise TownletError(what, "correct the file", location(error, file, path)) from error
    _executed.append(str(file))


def describe(error: BaseException) -> str:
    """An exception of a user's code in one line."""
    try:
        text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    except Exception:  # its own __str__ failed
        text = ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def location(error: BaseException, file: Path, shown: str | Path) -> SourceLocation:
    """Where in this file an exception was raised: the innermost of its lines; `shown` is the name for messages."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return SourceLocation(str(shown), error.lineno or 0, error.offset or 0)
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(file)]
    return SourceLocation(str(shown), lines[-1] if lines else 0)


class _Loader(SourceFileLoader):
    """Compiles a file at every start: cached bytecode misses edits within a second that keep the size."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError


def _missing_file(path: str | Path) -> TownletError:
    fix = "give the path of a .py file with your wrappers, agents or environments"
    return TownletError(f"there is no Python file '{path}'", fix)


def _module_name(file: Path) -> str:
    """The name depends only on the path, so that classes can be unpickled in other processes that execute the file."""
    return f"townlet_user_{blake2b(str(file).encode(), digest_size=8).hexdigest()}"


def executed_files() -> tuple[str, ...]:
    """The files executed so far, in order."""
    return tuple(_executed)
