"""Documentation: its examples run, its tables match the code and its links lead to files."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import townlet
import warm
from agents.test_conformance import BRIEF, Case, update
from cli.program import COMMANDS, LEAF_COMMANDS
from shared_runs import export_once, train_towns
from townlet.agents import registry
from townlet.config import user_code
from townlet.config.schedule import Schedule
from townlet.config.type_info import allowed_types_of_field
from townlet.interfaces.vec_env import Continuous
from townlet.recipes.render import key_sections
from townlet.sharing.export import export
from townlet.tasks.experiment import load_experiment
from townlet.town.world.load import from_text
from townlet.town.world.load import load as load_world
from townlet.train.training import build_training

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def blocks(document: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```([^\n]*)\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


WORLDS = [text for d in DOCUMENTS for text in blocks(d, "yaml")]
RECIPES = [text for d in DOCUMENTS for text in blocks(d, "yaml recipe")]
SCRIPTS = [text for d in DOCUMENTS for text in blocks(d, "python")]
EXPORTED = [text for d in DOCUMENTS for text in blocks(d, "python export")]
(OWN_ENV,) = blocks(ROOT / "docs" / "gym.md", "python my_env")
(OWN_RECIPE,) = blocks(ROOT / "docs" / "gym.md", "yaml corridor")
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
        assert load_experiment(f"{file}:{variant}").recipe.variant == variant


def run(script: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", script]
    done = warm.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda text: text.splitlines()[0])
def test_python_in_the_documents_runs(script: str, tmp_path: Path) -> None:
    (tmp_path / "my-town.yaml").write_text("extends: town\n")
    run(script.replace("1e5", "2e3").replace("seeds=3", "seeds=2"), tmp_path)  # a shorter training


def test_exported_agents_act_in_other_programs_as_documented(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trained = townlet.load("town-ppo", root=train_towns(tmp_path_factory))
    shutil.copy(export_once(tmp_path_factory, trained.run), tmp_path / "agent.onnx")
    export(trained, "safetensors", tmp_path / "agent.safetensors")
    obs, info = gymnasium.make("Townlet/Town-v0").reset(seed=1)
    wanted = trained.actions.names[trained.act(obs, info["action_mask"])]
    assert len(EXPORTED) == 2
    assert [run(script, tmp_path).strip() for script in EXPORTED] == [wanted, wanted]


def commands(document: Path) -> Iterator[list[str]]:
    """Commands of a document, without those that have a placeholder such as RUN."""
    text = document.read_text(encoding="utf-8")
    lines = [line for block in blocks(document, "") for line in block.splitlines()]
    lines += re.findall(r"`(townlet [^`]+)`", text)
    typed = [line.removeprefix(".venv/bin/") for line in lines]
    for words in (shlex.split(line, comments=True) for line in typed if line.startswith("townlet ")):
        if not any(BLANK.fullmatch(word) for word in words):
            yield words[1 : words.index(">") if ">" in words else None]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_commands_in_the_documents_are_valid(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-town.yaml").write_text("extends: town\n")
    Path("my-recipe.yaml").write_text(RECIPES[0])
    Path("my_env.py").write_text(OWN_ENV)
    Path("corridor.yaml").write_text(OWN_RECIPE)
    monkeypatch.setattr(user_code, "_permitted", False)  # --allow-code changes it
    for words in commands(document):
        verb = next(v for v in LEAF_COMMANDS if tuple(words[: len(v)]) == v)
        given = COMMANDS[verb].make_context("townlet", words[len(verb) :]).params
        changes = given.get("overrides") or []
        if verb == ("train",) and not given["resume"]:
            load_experiment(given["recipe"] or "town", changes)
        elif verb == ("recipes",) and ":" in given["search"]:
            load_experiment(given["search"], changes)
        elif verb[0] == "world" and "world" in given:
            load_world(given["world"], changes)


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [verb for verb in LEAF_COMMANDS if " ".join(verb) not in text] == []


def test_package_table_of_the_architecture_matches_the_import_layers() -> None:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    checked = [set(layer.split(" | ")) for layer in rules[0]["layers"]]
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == checked


def test_every_agent_and_network_is_documented() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    names = [
        section.title.partition(": ")[2]
        for section in key_sections()
        if section.title.startswith(("agent:", "network:"))
    ]
    assert [name for name in names if not all(f"`{part}`" in text for part in name.split(" or "))] == []


AGENTS = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
OFTEN = {
    "gradient_steps": 100,
    "sequence_length": 4,
    "burn_in": 1,
    "prioritized": {},
    "shared": True,
}  # so that rare metrics are reported too


def section(name: str) -> str:
    """A section of docs/agents.md."""
    (found,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", AGENTS, re.MULTILINE | re.DOTALL)
    return str(found)


def reported_metrics(case: Case) -> set[str]:
    """Every metric that an agent reports, over settings that make it report all of them."""
    fields = case.entry.settings.model_fields
    curious = {"bonus": case.entry.bonuses[0], "weight": {"name": "scheduled", "value": 0.1}}
    brief = {key: BRIEF.get(key, value) for key, value in case.entry.smoke.items()}
    agent: dict[str, Any] = {"name": case.entry.name, **brief}
    agent |= {key: value for key, value in OFTEN.items() if key in fields}
    found = set(update(build_training(case.load(agent=agent, explore={"action_selection": "boltzmann"}))))
    agent |= {"gradient_steps": 1} if "gradient_steps" in fields else {}  # the rare metrics were reported
    for key, info in fields.items():
        if any(kind.model is Schedule for kind in allowed_types_of_field(info)):
            agent[key] = {"start": info.default or 0.2, "end": 0.1}
    found |= set(update(build_training(case.load(agent=agent, explore=curious))))
    if Continuous in case.entry.actions:
        place = {"env": "Pendulum-v1", "gym": {"max_episode_steps": 14}, "change": {}}
        found |= set(update(build_training(case.load(**place))))
    return found


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_documented_metrics_of_an_agent_are_those_it_reports(name: str, tmp_path: Path) -> None:
    rows = re.findall(r"^\| (`.*?`) \|", section(name).partition("<!-- settings")[0], re.MULTILINE)
    described = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert described == reported_metrics(Case(registry.entry(name), tmp_path))


def test_agent_tables_match_the_registry() -> None:
    spec = spec_from_file_location("agent_tables", ROOT / "tools" / "agent_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.update_tables(AGENTS) == AGENTS, "run `python tools/agent_tables.py`"
    assert [name for name in registry.BUILT_IN if f"<!-- settings: {name} -->" not in section(name)] == []


def test_all_fields_of_an_agent_entry_are_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Custom agents"), re.MULTILINE)
    assert rows == list(registry.AgentEntry.__dataclass_fields__)


def test_custom_agent_in_the_documents_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {agent.name: agent for agent in registry.entries() if agent.name != "soft_q"}  # CONTRIBUTING adds it
    monkeypatch.setattr(registry, "_entries", others)
    monkeypatch.setattr(registry, "BUILT_IN", tuple(name for name in registry.BUILT_IN if name in others))
    monkeypatch.setattr(user_code, "_executed", [])
    (code,), (recipe,) = (blocks(ROOT / "docs" / "agents.md", f"{kind} agent") for kind in ("python", "yaml"))
    (tmp_path / "soft_q.py").write_text(code, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(recipe, encoding="utf-8")
    user_code.execute_file(tmp_path / "soft_q.py")
    training = build_training(load_experiment(f"{tmp_path / 'mine.yaml'}:soft", ["agent.warmup=64"]))
    assert training.agent.name == "soft_q"
    assert update(training)["loss"] > 0


def listed_files(document: str, heading: str) -> list[str]:
    """Files of the numbered list below a heading; each must be linked to the file that it names."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    items = re.findall(r"^(\d+)\. \[(.*?)\]\(\.\./src/townlet/(.*?)\): \S", found, re.MULTILINE)
    assert [int(number) for number, _, _ in items] == list(range(1, len(items) + 1))
    assert [name for _, name, _ in items] == [target for _, _, target in items]
    return [target for _, _, target in items]


@pytest.mark.parametrize(
    ("heading", "most"),
    [
        ("A step of the town", 6),
        ("From a recipe to a gradient", 6),
        ("A decision", 12),
        ("A frame of the live page", 12),
    ],
)
def test_paths_through_the_code_are_short_and_their_files_exist(heading: str, most: int) -> None:
    files = listed_files("architecture.md", heading)
    assert 3 < len(set(files)) == len(files) <= most
    assert [file for file in files if not (ROOT / "src" / "townlet" / file).is_file()] == []


def test_both_documents_list_the_same_files_from_a_recipe_to_a_gradient() -> None:
    assert listed_files("agents.md", "Reading order") == listed_files("architecture.md", "From a recipe to a gradient")


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings: lower case, without punctuation, hyphens for spaces."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings() -> None:
    broken = []
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text(encoding="utf-8")):
            file, _, anchor = target.partition("#")
            path = document.parent / file if file else document
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{document.name}: {target}")
    assert broken == []


def test_benchmark_measures_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--worlds", "town-l0", "--rows", "1", "--engines", "numba", "--seconds", ".05", "--rounds", "2"]
    script, output = str(ROOT / "benchmarks" / "sim.py"), ["--no-first-call", "--json", str(report)]
    command = [sys.executable, script, *options, *output]
    done = warm.run(command, capture_output=True, text=True, check=True, timeout=300)
    results = json.loads(report.read_text())["results"]
    assert [r["subject"] for r in results][:2] == ["engine", "VecEnv"]
    assert all(r["best_per_wall_s"] > 0 for r in results)
    assert done.stdout.count("| town-l0 |") == 2
