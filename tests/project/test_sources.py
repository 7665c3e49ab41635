"""Rules for the source code: no unsafe calls, no agent names outside `agents`, short files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from townlet.agents.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAX_LINES = 500

# Modules and functions that can execute code from data.
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
def test_unsafe_code_is_found(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def test_safe_code_that_looks_alike_is_allowed() -> None:
    assert not list(unsafe(ast.parse("torch.compile(f); re.compile(x); model.eval(); load(world)")))


AGENT_FILES = ("agents", "recipes", "trained")  # below src/townlet: agents, recipes, and a run that is shipped
# ppo, PPO, town:ppo, ppo_gpu and PpoSettings name an agent, "opponent" and "reinforcement" do not.
AGENT_NAME = re.compile(
    rf"(?<![A-Za-z])(?i:{'|'.join(BUILT_IN)})(?!ment)|"
    rf"(?:{'|'.join(name.capitalize() for name in BUILT_IN)}|QLearning)(?![a-z])"
)


def agent_names(text: str, python: bool = True) -> Iterator[tuple[int, str]]:
    """Line and name of every agent that a source file names, except in examples of help texts."""
    examples = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)] if python else []
    shown = {
        line
        for call in examples
        if ast.unparse(call.func).endswith("examples")
        for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)
    }
    for number, line in enumerate(text.splitlines(), 1):
        if number not in shown:
            yield from ((number, found[0]) for found in AGENT_NAME.finditer(line))


def test_only_agents_and_recipes_name_an_agent() -> None:
    package = ROOT / "src" / "townlet"
    paths = [path for path in package.rglob("*") if path.suffix in (".py", ".js", ".html", ".css", ".sql")]
    paths = [path for path in paths if path.relative_to(package).parts[0] not in AGENT_FILES]
    paths.remove(package / "__init__.py")  # its docstrings show how to train an agent
    assert {path.suffix for path in paths} >= {".py", ".js", ".html"}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in paths
        for line, name in agent_names(path.read_text(encoding="utf-8"), path.suffix == ".py")
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "if settings.name == 'ppo': pass", "from townlet.agents.dqn import Dqn", "isinstance(agent, Ppo)",
        "x: PpoSettings", "DEFAULT = 'town:dqn'", "GPU_PPO = 1", "is_drqn = True", "CapturedPpo()",
        "# as qlearning does", "'reinforce'", "f'townlet train {file}:pqn'", "QLearningSettings()",
    ],
)  # fmt: skip
def test_agent_names_are_found(line: str) -> None:
    assert list(agent_names(line))


def test_words_that_resemble_agent_names_are_allowed() -> None:
    text = "opponent = support + 'deep-reinforcement-learning'; examples('townlet train town:ppo')"
    assert not list(agent_names(text))


def test_files_have_fewer_than_500_lines() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in SOURCES}
    assert {name: n for name, n in lengths.items() if n >= MAX_LINES} == {}


def test_sources_contain_no_placeholders() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    found = [f"{p.relative_to(ROOT)}: {word}" for p in SOURCES for word in words if word in p.read_text()]
    assert found == []
