"""What the documents say is true: their examples run, their links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from townlet.train.load import load
from townlet.world.load import from_text

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


WORLDS = [text for d in DOCUMENTS for text in blocks(d, "yaml")]
RECIPES = [text for d in DOCUMENTS for text in blocks(d, "yaml recipe")]
SCRIPTS = [(d.name, text) for d in DOCUMENTS for text in blocks(d, "python")]


@pytest.mark.parametrize("text", WORLDS, ids=lambda text: text.splitlines()[0])
def test_worlds_in_the_documents_are_valid(text: str) -> None:
    assert from_text(text if "extends:" in text else f"extends: town\n{text}").warnings == ()


def test_recipes_in_the_documents_are_valid(tmp_path: Path) -> None:
    assert RECIPES
    for text in RECIPES:
        file = tmp_path / "my-recipe.yaml"
        file.write_text(text, encoding="utf-8")
        (variant,) = re.findall(r"^  (\w[\w-]*):$", text, re.MULTILINE)
        assert load(f"{file}:{variant}").recipe.variant == variant


def test_python_in_the_documents_runs(tmp_path: Path) -> None:
    assert SCRIPTS
    (tmp_path / "my-town.yaml").write_text("extends: town\n")
    for name, script in SCRIPTS:
        command = [sys.executable, "-W", "error", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_links_and_pictures_lead_to_files() -> None:
    broken = []
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text(encoding="utf-8")):
            if not (document.parent / target).exists():
                broken.append(f"{document.name}: {target}")
    assert broken == []


def test_the_benchmark_measures_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    asked = ["--worlds", "town-l0", "--rows", "1", "--engines", "numba", "--seconds", ".05", "--rounds", "2"]
    script, output = str(ROOT / "benchmarks" / "sim.py"), ["--no-first-call", "--json", str(report)]
    command = [sys.executable, script, *asked, *output]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    results = json.loads(report.read_text())["results"]
    assert [r["subject"] for r in results][:2] == ["engine", "VecEnv"]
    assert all(r["best_per_wall_s"] > 0 for r in results)
    assert done.stdout.count("| town-l0 |") == 2
