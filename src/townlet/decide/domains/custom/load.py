"""Loading custom domains: from a Python file, or from the entry points of installed packages."""

from __future__ import annotations

import shlex
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from townlet.config import user_code
from townlet.decide.domain import Domain
from townlet.decide.domains.custom.definition import Definition
from townlet.decide.domains.custom.domain import CustomDomain
from townlet.decide.domains.custom.game import try_game
from townlet.decide.domains.custom.source import Source
from townlet.errors import TownletError

FULL_FORM: Final = ("parse_observation", "parse_report", "policies", "gate")  # some members of `Domain`


def load_file(file: str) -> Domain:
    """The domain that a Python file defines; raises TownletError if it is wrong, or if code is not permitted."""
    path = Path(file)
    if not path.is_file():
        raise TownletError("there is no such file", f"create it: townlet decide new {shlex.quote(file)}", path)
    source = Source(path, file)  # a syntax error is found without running anything
    user_code.require_permission(file, f"{file} contains code that would be run, and can do anything")
    return _define(user_code.load_source(file), source, f"{shlex.quote(file)} --allow-code")


def load_installed(point: EntryPoint) -> Domain:
    """The domain of an installed package."""
    package = point.dist.name if point.dist else point.value
    try:
        loaded: Any = point.load()
    except (Exception, SystemExit) as error:
        why = f"the installed package {package} cannot be loaded: {user_code.describe(error)}"
        raise TownletError(f"the domain '{point.name}' cannot be used", why) from error
    if isinstance(loaded, ModuleType) and loaded.__file__:
        file = loaded.__file__
        domain = _define(loaded, Source(Path(file), file), point.name)
    elif all(hasattr(loaded, member) for member in FULL_FORM):
        domain = loaded
    else:
        what = f"{point.value} of the installed package {package} is neither a module nor a Domain"
        raise TownletError(f"the domain '{point.name}' cannot be used", what)
    if domain.name != point.name:
        what = f"it is called '{domain.name}', but its entry point in the package {package} '{point.name}'"
        raise TownletError(f"the domain '{point.name}' cannot be used", what)
    return domain


def _define(module: ModuleType, source: Source, argument: str) -> Domain:
    definition = Definition(module, source)
    domain = CustomDomain(definition, argument)
    if definition.game is not None:
        try_game(definition)
    return domain
