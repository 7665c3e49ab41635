"""resolved.yaml: every value with its origin; it loads as the same recipe."""

from __future__ import annotations

import json
import re

import pytest
from _pytest.mark import ParameterSet

from conftest import Write
from townlet.config.yaml import Node, parse
from townlet.recipes.catalog import recipe_names
from townlet.recipes.render import original_text, resolved_text
from townlet.tasks.experiment import load_experiment
from train.conftest import is_installed


def origins(text: str) -> dict[str, str]:
    """Comments by the path of their line's key."""
    found: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines()[1:]:
        key = re.match(r"( *)([\w-]+):", line)
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            if " # " in line:
                found[".".join(path)] = line.rpartition(" # ")[2]
    return found


def leaves(node: Node, path: str = "") -> list[str]:
    if isinstance(node.value, dict) and node.value:
        return [leaf for key, below in node.value.items() for leaf in leaves(below, f"{path}.{key}")]
    return [path.removeprefix(".")]


def resolved_cases() -> list[ParameterSet]:
    """Every recipe that can be loaded here; games start slowly, and Breakout's other recipes are like these."""
    titles = filter(is_installed, recipe_names())
    alike = ("ALE/Pong", "ALE/Breakout-v5:ram")
    return [pytest.param(title, marks=[pytest.mark.long] if title.startswith(alike) else []) for title in titles]


@pytest.mark.parametrize("title", resolved_cases())
def test_resolved_file_loads_as_same_recipe_and_worlds(write: Write, title: str) -> None:
    own = "change.meters.energy.decay=.004" if title.startswith("town") else "gym.max_episode_steps=77"
    # The generic recipe `gym` has no environment of its own.
    loaded = load_experiment(title.replace("gym:", "CliffWalking-v1:"), ["seed=7", "agent.lr=lin_1e-3", own])
    write("resolved.yaml", resolved_text(loaded))
    again = load_experiment("resolved.yaml")
    assert again.recipe == loaded.recipe
    assert again.task.fingerprint() == loaded.task.fingerprint()


def test_every_value_has_its_origin(write: Write) -> None:
    write("my.yaml", "extends: town\nrows: 2048\nvariants:\n  ppo:\n    agent: {entropy_coef: exp_.1}\n")
    text = resolved_text(load_experiment("my.yaml:ppo", ["agent.clip=.3", "agent.lr.end=1e-4"]))
    found = origins(text)
    assert found["rows"] == "my.yaml:2"
    assert found["agent.entropy_coef.end"] == "my.yaml:5"
    assert found["agent.clip"] == "command line: agent.clip=.3"
    assert found["agent.lr.end"] == "command line: agent.lr.end=1e-4"
    assert re.fullmatch(r"town\.yaml:\d+", found["agent.lr.start"])
    assert (
        found["agent.gae_lambda"] == found["network.layer_norm"] == found["explore.action_selection.name"] == "default"
    )
    assert found["variant"] == "my.yaml:ppo"
    assert set(leaves(parse(text, "resolved.yaml"))) == set(found)


def test_user_worlds_are_found_from_any_folder(write: Write) -> None:
    write("a/my-town.yaml", "extends: town\nmax_steps: 66\n")
    write("b/resolved.yaml", resolved_text(load_experiment("a/my-town.yaml:ppo")))
    again = load_experiment("b/resolved.yaml")
    assert again.recipe.title == "my-town:ppo"
    assert again.worlds.training.spec.max_steps == 66


def test_special_characters_survive(write: Write) -> None:
    text = "a: #b 'c' \"d\" \\ é 🛏 null"
    write("my.yaml", "extends: town\nresult: [{what: yes}, {what: '1e5', command: 'townlet train x: y'}]\n")
    loaded = load_experiment("my.yaml:ppo", [f"description={json.dumps(text, ensure_ascii=False)}", "init_from='true'"])
    assert loaded.recipe.description == text
    write("resolved.yaml", resolved_text(loaded))
    assert load_experiment("resolved.yaml").recipe == loaded.recipe


def test_original_text_has_command_and_file(write: Write) -> None:
    write("my.yaml", "extends: town # mine\nrows: 512\n")
    text = original_text(load_experiment("my.yaml:ppo", ["seed=3", "change.rewards=[milestone, vitality]"]))
    assert text.startswith('# townlet train my.yaml:ppo seed=3 "change.rewards=[milestone, vitality]"\n')
    assert "extends: town # mine" in text
