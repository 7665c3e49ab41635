"""The notebooks in the documentation: they run from top to bottom, and are stored without outputs."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import warm

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Shows the value of a cell as a notebook would.
SHOW = """
def _show(value):
    if value is not None:
        forms = [getattr(value, name)() for name in ("_repr_html_", "_repr_png_") if hasattr(value, name)]
        print("shown:", type(value).__name__, len(forms))
"""


def code_cells(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def as_script(path: Path) -> str:
    """The cells as one program in which the last expression of each is shown."""
    lines = [SHOW]
    for cell in code_cells(path):
        tree = ast.parse("".join(cell["source"]))
        if isinstance(last := tree.body[-1], ast.Expr):
            tree.body[-1] = ast.Expr(ast.Call(ast.Name("_show"), [last.value], []))
        lines.append(ast.unparse(tree))
    return "\n".join(lines)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own-environment", "town"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    script = as_script(path)
    for given, shorter in (("300000", "2000"), ("20000", "2000"), ("seeds=3", "seeds=2")):
        script = script.replace(given, shorter)
    done = warm.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "shown: TrainedRun 1" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_no_outputs(path: Path) -> None:
    assert [cell for cell in code_cells(path) if cell["outputs"] or cell["execution_count"] is not None] == []
