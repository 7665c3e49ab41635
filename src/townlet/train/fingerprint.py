"""What a run writes down of itself when it begins, and what it must share with whoever goes on with it."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from townlet import __version__
from townlet.recipes.schema import Recipe
from townlet.runs import provenance
from townlet.tasks.experiment import LoadedExperiment

SECRET: Final = re.compile(r"(://[^\s:/@]*:)[^\s/]*(@)")
BESIDE: Final = ("torch", "numpy", "numba", "gymnasium")  # other packages whose versions matter


def facts(loaded: LoadedExperiment) -> dict[str, Any]:
    """What a checkpoint must share with the run that goes on from it."""
    return {
        "env": loaded.recipe.env,
        "agent": loaded.recipe.agent.name,
        "rows": loaded.recipe.row_count,
        **loaded.task.facts(),
    }


def describe(loaded: LoadedExperiment, begun_with: dict[str, Any] | None = None) -> dict[str, Any]:
    """What meta.json says of a new run; `begun_with` tells whose weights it began with."""
    recipe = loaded.recipe
    code = {"code": code_hashes(recipe)} if recipe.user_files else {}
    return {
        "recipe": recipe.title,
        "asked": loaded.name,
        "overrides": list(loaded.overrides),
        "command": _command(),
        "seed": recipe.seed,
        "metric": recipe.metric,
        "threads": recipe.thread_count,
        "init_from": begun_with,
        **facts(loaded),
        **loaded.task.describe(),
        "versions": {"townlet": __version__, **{name: _version(name) for name in BESIDE}},
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine()},
        "commit": _commit(),
        **code,
    }


def code_hashes(recipe: Recipe) -> list[str | None]:
    """The sha256 of each Python file of the user's own, in the order of `user_files`; None for one that is missing."""
    files = [Path(file) for file in recipe.user_files]
    return [provenance.sha256(file) if file.is_file() else None for file in files]


def _version(name: str) -> str | None:
    """None where a package is not installed, or lies there without saying what it is."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _command() -> str:
    """What was typed, where it was typed at all."""
    typed = "townlet" in Path(sys.argv[0]).parts[-2:]
    return without_secrets(" ".join(["townlet", *sys.argv[1:]])) if typed else ""


def without_secrets(text: str) -> str:
    """The same text without the passwords of addresses such as postgresql://name:password@host."""
    return SECRET.sub(r"\1***\2", text)


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
