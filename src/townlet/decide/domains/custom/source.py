"""The file of a custom domain: where its members are defined, and a hash of the code that decides and learns."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from townlet.config import user_code
from townlet.errors import SourceLocation, TownletError

SIMULATION: Final = "Game"  # the class that only `townlet decide simulate` uses
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """A Python file; `shown` is its name in messages."""

    def __init__(self, path: Path, shown: str) -> None:
        self.path, self.shown = path.resolve(), shown
        try:
            tree = ast.parse(path.read_bytes(), str(self.path))
            self.hash = _hash(tree)
        except (SyntaxError, ValueError, RecursionError) as error:  # ValueError: null bytes
            where = user_code.location(error, self.path, shown)
            what = f"the file cannot be loaded: {user_code.describe(error)}"
            raise TownletError(what, "correct the file", where) from error
        self._lines: dict[str, int] = {}  # of the members
        for statement in tree.body:
            targets = [statement, *getattr(statement, "targets", ()), getattr(statement, "target", None)]
            names = [getattr(target, "name", getattr(target, "id", "")) for target in targets]
            self._lines |= dict.fromkeys(filter(None, names), statement.lineno)

    def line(self, member: str = "") -> SourceLocation:
        """Where a member of the file is defined; without one, the file."""
        return SourceLocation(self.shown, self._lines.get(member, 0))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of the file; raises TownletError with the line that failed."""
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:
            where = user_code.location(error, self.path, self.shown)
            name = getattr(function, "__qualname__", "a function")
            where = where if where.line else self.line(name.partition(".")[0])  # the call itself failed
            raise TownletError(f"{name} failed: {user_code.describe(error)}", "", where) from error


def _hash(tree: ast.Module) -> str:
    """Hash of a file's code, 12 digits, the same in all releases of Python.

    Comments, layout, docstrings and the simulated game may change without changing it.
    """
    body = [part for part in tree.body if not (isinstance(part, ast.ClassDef) and part.name == SIMULATION)]
    return sha256(json.dumps(_canonical(ast.Module(body, []))).encode()).hexdigest()[:12]


def _canonical(node: Any) -> Any:
    """A syntax tree as JSON. Empty fields are left out, because releases of Python differ in them."""
    if isinstance(node, list):
        return [_canonical(part) for part in node]
    if isinstance(node, ast.Constant):
        return ["Constant", repr(node.value)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, {name: _canonical(part) for name, part in fields.items() if part not in (None, [])}]
