"""What the documents say is true: their examples run, their links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import townlet
from cli.program import EVERY, VERBS
from small import SMALL
from townlet.train.export import export
from townlet.train.keys import sections
from townlet.train.load import load
from townlet.world.load import from_text
from townlet.world.load import load as load_world

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def blocks(document: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


WORLDS = [text for d in DOCUMENTS for text in blocks(d, "yaml")]
RECIPES = [text for d in DOCUMENTS for text in blocks(d, "yaml recipe")]
SCRIPTS = [text for d in DOCUMENTS for text in blocks(d, "python")]
EXPORTED = [text for d in DOCUMENTS for text in blocks(d, "python export")]
BLANK = re.compile(r"[\[A-Z|:\]]*[A-Z]{2,}[\[A-Z|:\]]*|…|\.\.\.")  # RUN, ENV:VARIANT, [SEARCH]


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


def run(script: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda text: text.splitlines()[0])
def test_python_in_the_documents_runs(script: str, tmp_path: Path) -> None:
    (tmp_path / "my-town.yaml").write_text("extends: town\n")
    learned = "\nassert run.score > 1.3 * run.outcome.summary.random.mean, run.summary"
    run(script + (learned if "townlet.train(" in script else ""), tmp_path)


def test_exported_agents_act_in_other_programs_as_the_documents_say(tmp_path: Path) -> None:
    trained = townlet.train("town:ppo", overrides=SMALL["town:ppo"], root=tmp_path / "runs").load()
    export(trained, "onnx", tmp_path / "agent.onnx")
    export(trained, "safetensors", tmp_path / "agent.safetensors")
    obs, info = gymnasium.make("Townlet/Town-v0").reset(seed=1)
    wanted = trained.actions.names[trained.act(obs, info["action_mask"])]
    assert len(EXPORTED) == 2
    assert [run(script, tmp_path).strip() for script in EXPORTED] == [wanted, wanted]


def commands(document: Path) -> Iterator[list[str]]:
    """What a document tells one to type; not what has a blank to be filled in, as RUN."""
    text = document.read_text(encoding="utf-8")
    told = [line for block in blocks(document, "") for line in block.splitlines()]
    told += re.findall(r"`(townlet [^`]+)`", text)
    typed = [line.removeprefix(".venv/bin/") for line in told]
    for words in (shlex.split(line, comments=True) for line in typed if line.startswith("townlet ")):
        if not any(BLANK.fullmatch(word) for word in words):
            yield words[1 : words.index(">") if ">" in words else None]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_commands_in_the_documents_can_be_typed(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-town.yaml").write_text("extends: town\n")
    Path("my-recipe.yaml").write_text(RECIPES[0])
    for words in commands(document):
        verb = next(v for v in VERBS if tuple(words[: len(v)]) == v)
        given = EVERY[verb].make_context("townlet", words[len(verb) :]).params
        changes = given.get("overrides") or []
        if verb == ("train",) and not given["resume"]:
            load(given["recipe"] or "town:dqn", changes)
        elif verb == ("recipes",) and ":" in given["search"]:
            load(given["search"], changes)
        elif verb[0] == "world" and "world" in given:
            load_world(given["world"], changes)


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if " ".join(verb) not in text] == []


def test_floors_of_the_architecture_are_those_that_are_checked() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    checked = [set(layer.split(" | ")) for layer in rules[0]["layers"]]
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == checked


def test_every_agent_and_network_is_told_of() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    names = [
        section.title.partition(": ")[2] for section in sections() if section.title.startswith(("agent:", "network:"))
    ]
    assert [name for name in names if not all(f"`{part}`" in text for part in name.split(" or "))] == []


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
