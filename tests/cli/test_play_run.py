"""`townlet play RUN`: a trained agent in the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.program import Program
from small import SMALL
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start


@pytest.mark.parametrize("what", ["town-ppo", "latest", "town-l2:drqn"])
def test_trained_agent_plays_next_to_a_random_one(townlet: Program, runs: Path, what: str) -> None:
    done = townlet("play", what, "--table-episodes", "5", "--root", str(runs))
    assert done.code == 0
    for name in ("trained", "random"):
        frames = re.findall(rf"^{name}, step (\d+)$", done.out, re.MULTILINE)
        assert len(frames) == 3
        assert frames[0] == "0"
        row = re.search(rf"{name} +│ +5 │ +(\d+) │", done.out)
        assert row is not None
    trained = re.search(r"trained +│ +5 │ +(\d+) │", done.out)
    assert trained is not None
    assert f"this agent survives {trained[1]}" in done.out


def test_changes_and_modes_are_applied(townlet: Program, runs: Path) -> None:
    words = ["max_steps=30", "--mode", "trained", "--mode", "planner", "--table-episodes", "4"]
    done = townlet("play", "town:ppo", *words, "--root", str(runs))
    assert "age 30 of 30" in done.out
    assert "the planner 30; this agent survives 30 (the limit is 30)" in done.out


def test_world_names_take_precedence_over_runs(townlet: Program, runs: Path) -> None:
    done = townlet("play", "town-l0", "--table-episodes", "4", "--root", str(runs))
    assert done.code == 0
    assert "trained" not in done.out


def test_newest_run_of_a_recipe_is_used(townlet: Program, tmp_path: Path) -> None:
    for limit in (60, 70):
        start(load_experiment("town:ppo", [*SMALL["town:ppo"], f"change.max_steps={limit}"]), tmp_path, pause_at=1)
    done = townlet("play", "town:ppo", "--table-episodes", "4", "--root", str(tmp_path))
    assert "of 70" in done.out
    assert "of 60" not in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["town:dqn"], "townlet train town:dqn"),
        (["town", "--mode", "trained"], "--mode trained needs a run"),
        (["town-pp0"], "there is no world and no run 'town-pp0'"),
        (["town-"], "runs start with 'town-'"),
        (["town-ppo", "observation=partial"], "cannot act in"),
    ],
)
def test_invalid_options_are_explained(townlet: Program, runs: Path, words: list[str], message: str) -> None:
    done = townlet("play", *words, "--root", str(runs))
    assert done.code == 2
    assert message in done.err
