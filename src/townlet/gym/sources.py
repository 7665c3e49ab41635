"""Environments that Gymnasium has not registered: in a Python file, a module, or an object of the calling program.

`gym.source` in a recipe names the file or module, and `env` an id that it registers, or a class or function in it.
Code is run only if that is permitted, except for objects that the program itself has passed to `townlet.train`.
"""

from __future__ import annotations

import copy
import os
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from townlet.config import user_code
from townlet.errors import TownletError, did_you_mean
from townlet.gym import extras
from townlet.gym.settings import GYM_ID, LOCAL_SOURCE

EnvMaker = Callable[..., gym.Env[Any, Any]]  # a class, or a function that makes an environment
DEFINE_ELSEWHERE: Final = "define it in a .py file of its own, and import it from there"


class EnvName(NamedTuple):
    """How a recipe names an environment: `gym.source` and `env`."""

    source: str
    env: str


_registered_objects: dict[EnvName, EnvMaker] = {}  # objects passed by the calling program


def register_object(make: object) -> EnvName:
    """Register a class or function of the calling program for recipes; it needs no permission to run code."""
    if isinstance(make, gym.Env):
        what = f"{type(make).__name__} is given as an object, but every row needs a separate one"
        raise TownletError(what, "pass its class, or a function that makes it")
    if isinstance(make, type) and not issubclass(make, gym.Env):
        raise TownletError(f"{make.__name__} is not a gymnasium.Env", "derive it from gymnasium.Env")
    if not callable(make):
        fix = "give an id, a recipe, an environment class, or a function that makes an environment"
        raise TownletError(f"an object of type {type(make).__name__} is not an environment", fix)
    make = cast("EnvMaker", make)
    known = next((name for name, registered in _registered_objects.items() if registered is make), None)
    name = known or _importable_name(make) or _local_name(make)
    _registered_objects[name] = make
    return name


def is_registered_object(name: EnvName) -> bool:
    """Whether the calling program has passed this environment as an object."""
    return name in _registered_objects


def register_importable(name: EnvName) -> None:
    """Register an object that the parent process registered; imports its module."""
    _registered_objects[name] = cast("EnvMaker", find_spec(name.env, name.source).entry_point)


def not_importable(env: str, otherwise: str) -> TownletError:
    """The error where another process needs an environment that only this program knows."""
    what = f"the environment '{env}' cannot be sent to other processes, because it is not in a module"
    return TownletError(what, f"{DEFINE_ELSEWHERE}, or {otherwise}")


def transferable_spec(env: str) -> str | None:
    """A registered id as JSON, for processes without the registrations of this program; None if there is none.

    Raises TownletError if its entry point exists only in this program.
    """
    spec = copy.copy(gym.spec(env))
    for name in ("entry_point", "vector_entry_point"):
        entry = getattr(spec, name)
        if isinstance(entry, str) and entry.startswith("__main__:"):
            raise not_importable(env, "train one seed at a time")
        if callable(entry):
            found = _importable_name(entry)
            if found is None:
                raise not_importable(env, "train one seed at a time")
            setattr(spec, name, f"{entry.__module__}:{found.env}")
    try:
        return spec.to_json()
    except (TypeError, ValueError):  # arguments that JSON cannot express
        return None


def register_spec(spec: str) -> None:
    """Register an id from `transferable_spec`, unless this process knows it."""
    found = EnvSpec.from_json(spec)
    gym.registry.setdefault(found.id, found)


def _importable_name(make: EnvMaker) -> EnvName | None:
    """The name under which other processes find the object; None for local ones and those of `__main__`."""
    module = sys.modules.get(getattr(make, "__module__", None) or "")
    env = getattr(make, "__qualname__", "")
    if module is None or module.__name__ == "__main__" or _attribute(module, env) is not make:
        return None
    file = getattr(module, "__file__", None)
    standalone = file and "." not in module.__name__ and not {"site-packages", "dist-packages"} & {*Path(file).parts}
    if file and standalone and Path(file).suffix == ".py" and Path(file).name != "__init__.py":
        return EnvName(os.path.abspath(file), env)  # found even if its folder is not on sys.path
    return EnvName(module.__name__, env)


def _local_name(make: EnvMaker) -> EnvName:
    words = re.sub(r"\W+", "_", getattr(make, "__name__", "")).strip("_")
    return EnvName(f"{LOCAL_SOURCE}{secrets.token_hex(4)}>", words or "environment")


def _attribute(module: ModuleType, path: str) -> Any:
    """The object at a dotted path in a module; None if there is none."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def require(env: str, source: str | None) -> None:
    """Raise an error if the environment does not exist, or only code that is not permitted would define it."""
    if source is None:
        extras.require(env)
    elif EnvName(source, env) not in _registered_objects:
        if source.startswith(LOCAL_SOURCE):
            what = f"the environment '{env}' is known only to the program that passed it to townlet.train"
            raise TownletError(what, f"{DEFINE_ELSEWHERE}; then its runs can be resumed and evaluated anywhere")
        if not (GYM_ID.fullmatch(env) and source in sys.modules):  # such a module has already registered its ids
            user_code.require_permission(source)
        find_spec(env, source)


def find_spec(env: str, source: str | None) -> EnvSpec:
    """Gymnasium's description of an environment. Runs the code of its source: call `require` first."""
    if source is None:
        return gym.spec(env)
    if (registered := _registered_objects.get(EnvName(source, env))) is not None:
        return EnvSpec(env, entry_point=registered)
    module = user_code.load_source(source)
    if GYM_ID.fullmatch(env):
        if env not in gym.registry:
            raise TownletError(f"{_short(source)} registers no environment '{env}'", _suggestion(module, env))
        return gym.spec(env)
    make = _attribute(module, env)
    if not _makes_env(make, module):
        raise TownletError(f"{_short(source)} defines no environment '{env}'", _suggestion(module, env))
    return EnvSpec(env, entry_point=make)


def _makes_env(make: Any, module: ModuleType) -> bool:
    """Whether this is an environment class, or a function that the module itself defines."""
    if isinstance(make, type):
        return issubclass(make, gym.Env)
    return callable(make) and getattr(make, "__module__", None) == module.__name__


def _short(source: str) -> str:
    return Path(source).name if source.endswith(".py") else source


def _suggestion(module: ModuleType, env: str) -> str:
    """The environments that a module defines or registers."""
    objects = vars(module).values()
    classes = [o.__name__ for o in objects if isinstance(o, type) and issubclass(o, gym.Env)]
    own = [name for name in classes if getattr(module, name).__module__ == module.__name__]
    return did_you_mean(env, own) if own else "define there a class derived from gymnasium.Env"
