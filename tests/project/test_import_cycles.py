"""No import cycles inside packages; imports for type checkers and inside functions count as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "townlet"
ACYCLIC = ("agents", "buffers", "explore", "nets")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> Iterator[str]:
    """Every module, and every name in a module, that a source file imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not followed"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module or ""


def cycle(sources: Mapping[str, str]) -> list[str]:
    """The modules of one import cycle; [] if there is none."""
    graph = {name: {found for found in imported(text) if found in sources} - {name} for name, text in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", ACYCLIC)
def test_package_has_no_import_cycle(package: str) -> None:
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in (PACKAGE / package).rglob("*.py")}
    assert len(sources) > 4
    assert cycle(sources) == []


def test_cycles_are_found() -> None:
    later = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A\n"
    assert set(cycle({"p.a": "import p.b", "p.b": "import p.c", "p.c": later})) == {"p.a", "p.b", "p.c"}
    assert cycle({"p.a": "import p.b, p.c", "p.b": "def f():\n    from p import c", "p.c": "import os"}) == []
