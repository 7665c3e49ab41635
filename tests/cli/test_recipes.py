"""`townlet recipes`: listing, searching, showing."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
from rich.console import Console

from cli.program import Program
from townlet.agents.registry import BUILT_IN
from townlet.gym import extras
from townlet.recipes.catalog import FOLDER, recipe_names
from townlet.recipes.render import RecipeSummary, key_sections, recipe_table


def test_list_shows_agent_and_budget_of_every_recipe(townlet: Program) -> None:
    done = townlet("recipes")
    assert done.code == 0
    for title in recipe_names():
        assert f"{title} " in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("town:ppo "))
    assert "ppo" in line.split()[1]
    assert "steps" in line


def test_list_fits_100_columns_and_names_the_folder(townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = townlet("recipes").out.splitlines()
    assert max(map(len, [line for line in shown if str(FOLDER) not in line])) <= 100
    assert any(str(FOLDER) in line for line in shown)
    assert f"townlet recipes {recipe_names()[0]}" in shown[-2]  # how to show one recipe
    assert "…" not in "".join(shown)


def test_search_matches_all_words(townlet: Program) -> None:
    shown = townlet("recipes", "ppo town-l3").out
    assert [title for title in recipe_names() if f"{title} " in shown] == ["town-l3:ppo"]


def test_known_results_are_listed() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(recipe_table([RecipeSummary("town:x", "dqn", "1M steps", "What it is.", "lives 490 of 500")]))
    assert "lives 490 of 500" in console.export_text()


@pytest.mark.parametrize(
    ("words", "origins"),
    [
        (["town:ppo", "agent.lr=1e-3"], ["command line: agent.lr=1e-3", "town.yaml:", "default"]),
        (["my.yaml"], ["my.yaml:2", "default"]),
    ],
)
def test_recipe_is_shown_with_value_origins(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], origins: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("env: town-l0\nagent: dqn\nbudget: {env_steps: 1e4}\n")
    done = townlet("recipes", *words)
    assert done.code == 0
    assert all(f"# {origin}" in done.out for origin in origins)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["town-l0-dal"], "no recipe matches 'town-l0-dal'"),
        (["town", "agent.lr=1e-3"], "name one as ENV:VARIANT"),
        (["none.yaml:dqn"], "there is no file 'none.yaml'"),
        (["--keys", "flux"], "no key of a recipe matches 'flux'"),
    ],
)
def test_errors_are_explained(townlet: Program, words: list[str], message: str) -> None:
    done = townlet("recipes", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_keys_are_listed_with_default_and_meaning(townlet: Program) -> None:
    keys = {key.path: key for section in key_sections() for key in section.keys}
    resolved = [line.split(":")[0] for line in townlet("recipes", "town:ppo").out.splitlines()[1:] if line[0] != " "]
    assert set(resolved) <= set(keys)  # every key of a resolved recipe
    assert keys["evaluation.episodes"].default == "100"
    assert keys["agent.prioritized.beta"].default == "{start: 0.4, end: 1.0}"
    assert all(key.description for key in keys.values())
    recipe_names = [section.title for section in key_sections()]
    assert [f"agent: {name}" for name in BUILT_IN] == [t for t in recipe_names if t.startswith("agent: ")]
    assert {"network: map_memory", "network: keypoints", "explore.bonus: rnd", "curriculum: adaptive"} <= set(
        recipe_names
    )
    shown = townlet("recipes", "--keys", "sequence").out
    assert "agent.sequence_length" in shown
    assert "agent.lr" not in shown


def test_schema_accepts_files_variants_and_plain_words(townlet: Program) -> None:
    schema = json.loads(townlet("recipes", "--schema").out)
    assert {"extends", "variants", "default", "agent", "budget"} <= set(schema["properties"])
    assert {"enum": sorted(BUILT_IN)} in schema["properties"]["agent"]["anyOf"]
    assert "from" in schema["$defs"]["Schedule"]["properties"]


def test_list_shows_required_extra_and_threshold(townlet: Program) -> None:
    assert "Needs townlet[retro]" in " ".join(townlet("recipes", "Airstriker").out.split())
    assert "solved (-110)" in townlet("recipes", "MountainCar").out


def test_smoke_trains_recipes_briefly(townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = townlet("recipes", "--smoke", "Bandit-v0")
    assert done.code == 0, done.out
    assert "2 of 2 work here" in done.out
    assert list(tmp_path.iterdir()) == []


def test_smoke_reports_a_failing_recipe_and_continues(townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "CartPole-v1", replace(gymnasium.spec("CartPole-v1"), entry_point=broken))
    done = townlet("recipes", "--smoke", "CartPole")
    assert done.code == 1
    assert re.search(r"CartPole-v1:ppo +fails", done.out)
    assert "CartPole-v1 cannot be made: RuntimeError: no cart today" in done.out
    monkeypatch.setattr(extras, "find_spec", lambda _: None)  # as if no extra were installed
    done = townlet("recipes", "--smoke", "Airstriker")
    assert done.code == 0
    assert "0 of 1 work here, 1 need packages that are not installed" in done.out


def broken(**_: object) -> gymnasium.Env[object, object]:
    raise RuntimeError("no cart today")


def test_listing_recipes_does_not_import_torch() -> None:
    script = "import sys; from townlet.recipes.render import list_recipes; list_recipes(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not set(done.stdout.split()) & {"torch", "numba"}
