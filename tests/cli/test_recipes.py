"""`townlet recipes`: listing, searching, showing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.program import Program
from townlet.train.recipes import titles


def test_all_are_listed_with_agent_and_budget(townlet: Program) -> None:
    done = townlet("recipes")
    assert done.code == 0
    for title in titles():
        assert f"{title} " in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("town:ppo "))
    assert "ppo" in line.split()[1]
    assert "steps" in line


def test_every_word_of_a_search_must_occur(townlet: Program) -> None:
    found = townlet("recipes", "drqn memory").out.splitlines()[1:]
    names = [line.split()[0] for line in found if line[:1].strip()]
    assert "town-foggy:drqn" in names
    assert all("drqn" in name for name in names)


def test_a_search_without_result_says_so(townlet: Program) -> None:
    done = townlet("recipes", "town-l0-dal")
    assert done.code == 2
    assert "no recipe speaks of 'town-l0-dal'" in done.err


def test_one_recipe_is_shown_with_origins(townlet: Program) -> None:
    done = townlet("recipes", "town:ppo", "agent.lr=1e-3")
    assert done.code == 0
    assert "# command line: agent.lr=1e-3" in done.out
    assert "# town.yaml:" in done.out
    assert "# default" in done.out


def test_a_file_of_ones_own_is_shown(townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("env: town-l0\nagent: dqn\nbudget: {env_steps: 1e4}\n")
    done = townlet("recipes", "my.yaml")
    assert done.code == 0
    assert "# my.yaml:2" in done.out


def test_changes_need_one_recipe(townlet: Program) -> None:
    done = townlet("recipes", "town", "agent.lr=1e-3")
    assert done.code == 2
    assert "town:ppo" in done.err


def test_the_schema_knows_files_variants_and_bare_words(townlet: Program) -> None:
    schema = json.loads(townlet("recipes", "--schema").out)
    assert {"extends", "variants", "default", "agent", "budget"} <= set(schema["properties"])
    assert {"enum": ["dqn", "drqn", "ppo"]} in schema["properties"]["agent"]["anyOf"]
    assert "from" in schema["$defs"]["Schedule"]["properties"]


def test_a_list_does_not_wait_for_torch() -> None:
    script = "import sys; from townlet.train.listing import lines; lines(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not set(done.stdout.split()) & {"torch", "numba"}
