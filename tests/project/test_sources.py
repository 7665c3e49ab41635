"""Promises about the code base itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from townlet.agents.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_LINES = 400

# Modules that turn bytes into running code, and functions that do.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "numpy.load", "np.load"}


def unsafe(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything in a module that could run code from data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.partition(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            bad = (node.module or "").partition(".")[0] in UNSAFE_MODULES
            found = [name for name in names if bad or name in UNSAFE_CALLS]
        elif isinstance(node, ast.Call):
            found = [ast.unparse(node.func)] if ast.unparse(node.func) in UNSAFE_CALLS else []
        else:
            continue
        yield from ((node.lineno, name) for name in found)


def test_opening_a_file_never_runs_code() -> None:
    assert SOURCES
    found = [
        f"{p.relative_to(ROOT)}:{line}: {name}" for p in SOURCES for line, name in unsafe(ast.parse(p.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from pickle import loads", "eval(x)", "torch.load(f)", "from torch import load", "np.load(f)"],
)
def test_the_search_for_unsafe_code_finds_it(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def test_safe_code_that_looks_alike_is_allowed() -> None:
    assert not list(unsafe(ast.parse("torch.compile(f); re.compile(x); model.eval(); load(world)")))


def test_only_the_package_of_agents_names_an_agent() -> None:
    modules = {f"townlet.agents.{name}" for name in BUILT_IN}
    found = []
    for path in SOURCES:
        if path.relative_to(ROOT / "src").parts[1] == "agents":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Constant) and node.value in BUILT_IN
            if named or (isinstance(node, ast.ImportFrom) and node.module in modules):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    assert found == []


def test_every_file_can_be_read_in_one_sitting() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in SOURCES}
    assert {name: n for name, n in lengths.items() if n >= MAX_LINES} == {}


def test_nothing_is_left_for_later() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    found = [f"{p.relative_to(ROOT)}: {word}" for p in SOURCES for word in words if word in p.read_text()]
    assert found == []
