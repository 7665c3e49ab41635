"""`townlet eval`: reproducible results, sentences and error messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.program import Program
from townlet.runs import checkpoint
from townlet.runs.folder import Run

SHORT = ("town-ppo", "max_steps=150")  # a run whose episodes end early, because the planner would live for 500 steps
MEASURED: dict[tuple[str, ...], str] = {}  # output by command


@pytest.fixture
def measured(townlet: Program, runs: Path) -> Any:
    """`measured("town-ppo", …)` is the output of `townlet eval … --json`; each command runs once."""

    def run(*words: str, again: bool = False) -> dict[str, Any]:
        if again or words not in MEASURED:
            done = townlet("eval", *words, "--episodes", "8", "--json", "--root", str(runs))
            assert done.code == 0, done.err
            MEASURED[words] = done.out
        found: dict[str, Any] = json.loads(MEASURED[words])
        return found

    return run


@pytest.mark.parametrize("name", ["town-l0-dqn", "town-ppo", "town-l2-drqn"])
def test_evaluation_seed_reproduces_the_training_score(measured: Any, runs: Path, name: str) -> None:
    """Weights, hidden states, world and seed are those of the run."""
    best = checkpoint.best(Run.open(name, runs).checkpoints)
    assert best is not None
    found = measured(name, "--seed", "10001")
    assert found["env_steps"] == best.env_steps
    assert found["trained"]["mean"] == best.info["score"]


def test_default_seed_is_new_and_reproducible(measured: Any) -> None:
    once, other = measured(*SHORT), measured(*SHORT, "--seed", "10001")
    again = measured(*SHORT, again=True)
    assert once == again
    assert once["seed"] == 10002
    assert once["random"] != other["random"]


def test_baselines_use_the_same_world(measured: Any) -> None:
    found = measured("town:ppo")
    assert 60 < found["random"]["mean"] < 200
    assert found["planner"]["survived"] == 1
    assert found["planner"]["earns_money"] == 1
    assert found["planner"]["work_per_episode"] > 1
    uses = found["planner"]["uses_per_episode"]
    assert uses["Job"] + uses["Labor"] == pytest.approx(found["planner"]["work_per_episode"])
    assert found["random"]["causes"] == {"energy": 8}


def test_changes_reach_the_world(measured: Any) -> None:
    found = measured("town-ppo", "max_steps=20")
    assert [found[who]["limit"] for who in ("trained", "random", "planner")] == [20] * 3
    assert found["trained"]["survived"] == found["trained"]["min"] / 20 == 1
    assert found["trained"]["causes"] == {"time": 8}


def test_world_matches_the_evaluations_of_the_run(measured: Any) -> None:
    assert measured("town-l2-drqn", "--seed", "10001")["trained"]["limit"] == 400
    assert measured("town-l2:drqn", "max_steps=150")["trained"]["limit"] == 150


def test_shuffled_layout_is_compared_with_the_trained_map(measured: Any) -> None:
    moved = measured(*SHORT, "--layout", "shuffled")
    assert moved["layout"] == "shuffled"
    assert moved["trained, original map"] == measured(*SHORT)["trained"]


def test_tables_and_sentences_fit_80_columns(
    townlet: Program, runs: Path, monkeypatch: pytest.MonkeyPatch, measured: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = townlet("eval", *SHORT, "--episodes", "8", "--layout", "shuffled", "--root", str(runs))
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    figures = measured(*SHORT, "--layout", "shuffled")
    assert f"This agent survives {figures['trained']['mean']:.0f} of 150 steps" in done.out
    assert re.search(r"^ppo, (last and )?best checkpoint, after [\d,]+ env_steps$", done.out, re.MULTILINE)
    assert f"A random agent survives {figures['random']['mean']:.0f}" in done.out
    assert "CoffeeShop" in done.out
    assert "On its training map it survives" in " ".join(done.out.split())


def test_world_without_work_omits_the_work_column(townlet: Program, runs: Path) -> None:
    done = townlet("eval", "town-l0-dqn", "max_steps=60", "--episodes", "4", "--root", str(runs))
    assert "money" not in done.out


def test_sampling_actions_needs_probabilities(townlet: Program, measured: Any, runs: Path) -> None:
    drawn, likeliest = measured(*SHORT, "--sample"), measured(*SHORT)
    assert drawn["trained"] != likeliest["trained"]
    assert drawn["random"] == likeliest["random"]
    refused = townlet("eval", "town-l0-dqn", "--sample", "--root", str(runs))
    assert refused.code == 2
    assert "dqn learns values" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["town-ppo", "--world", "town-l2"], "'position_onehot' is not observed"),
        (["town-ppo", "--world", "town-aspatial"], "the map has no cells, in training it had 8×8"),
        (["town-ppo", "observation=partial"], "the agent of town-ppo"),
        (["town-ppo", "max_stps=9"], "command line: max_stps=9: unknown key 'max_stps'"),
        (["town-missing"], "there is no run 'town-missing'"),
        (["town:missing"], "townlet train town:missing"),
    ],
)
def test_incompatible_world_is_rejected(townlet: Program, runs: Path, words: list[str], message: str) -> None:
    done = townlet("eval", *words, "--root", str(runs))
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_world_with_the_same_interface_is_accepted(measured: Any) -> None:
    found = measured(*SHORT, "--world", "cascades-strong")
    assert found["world"] == "cascades-strong"
    assert found["planner"]["mean"] > 0
