"""`townlet eval` of Gymnasium runs: reproducible results and error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.program import Program
from small import SMALL_GYM, train_gym
from townlet.runs import checkpoint
from townlet.runs.folder import Run


def measured(townlet: Program, run: Run, *words: str) -> dict[str, Any]:
    """Output of `townlet eval … --json`."""
    done = townlet("eval", run.name, *words, "--json", "--root", str(run.path.parent))
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.parametrize("kind", SMALL_GYM)
def test_evaluation_seed_reproduces_the_training_score(townlet: Program, gym_runs: dict[str, Run], kind: str) -> None:
    """Weights, normalization, environment and seeds are those of the run."""
    run = gym_runs[kind]
    for which, found in (("best", checkpoint.best(run.checkpoints)), ("last", checkpoint.latest(run.checkpoints))):
        assert found is not None
        result = measured(townlet, run, "--seed", "10001", "--episodes", "5", "--which", which)
        assert result["env_steps"] == found.env_steps
        assert result["trained"]["mean"] == found.info["score"]


def test_sampled_actions_reproduce_the_score_of_a_sampling_recipe(townlet: Program, tmp_path: Path) -> None:
    run = train_gym("ppo", tmp_path, "evaluation.deterministic=false", "seed=5")
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    words = ["--seed", "10001", "--episodes", "5", "--which", "last"]
    result, asked = measured(townlet, run, *words), measured(townlet, run, *words, "--sample")
    assert result == asked
    assert result["trained"]["mean"] == last.info["score"]
    assert measured(townlet, run, *words, "--greedy")["trained"] != result["trained"]
    to = tmp_path / "agent"
    done = townlet("publish", str(run.path), "--to", str(to), "--seed", "10001", "--episodes", "5", "--which", "last")
    assert done.code == 0, done.err
    results = json.loads((to / "results.json").read_text())
    assert (results["trained"], results["greedy"]) == (result["trained"], False)
    assert "with sampled actions." in (to / "README.md").read_text()


def test_default_seed_is_new_and_reproducible(townlet: Program, gym_runs: dict[str, Run]) -> None:
    run = gym_runs["ppo"]
    once, again = (measured(townlet, run, "--episodes", "6") for _ in range(2))
    other = measured(townlet, run, "--episodes", "6", "--seed", "10001")
    assert once == again
    assert once["seed"] == 10002
    assert once["random"] != other["random"]
    assert once["threshold"] == once["goal"] == 475
    assert once["solved"] is once["reached_goal"] is False
    result = once["trained"]
    assert result["min"] <= result["q25"] <= result["median"] <= result["q75"] <= result["max"]
    assert result["length"] == result["mean"]  # the reward of every step is 1


def test_table_and_sentences_agree(townlet: Program, gym_runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = gym_runs["numbers"]
    done = townlet("eval", run.name, "--episodes", "4", "--root", str(run.path.parent))
    assert done.code == 0
    result = measured(townlet, run, "--episodes", "4")
    assert max(map(len, done.out.splitlines())) <= 80
    assert f"This agent gets a mean return of {result['trained']['mean']:.0f} (" in done.out
    assert ") in 60 steps" in done.out
    assert f"A random agent gets a mean return of {result['random']['mean']:.0f}" in done.out
    assert "That does not reach the goal of this recipe: -200." in done.out
    (line,) = [line.split() for line in done.out.splitlines() if line.startswith("trained")]
    assert line[1] == f"{result['trained']['mean']:.0f}"


def test_sampling_actions_needs_probabilities(townlet: Program, gym_runs: dict[str, Run]) -> None:
    drawn, likeliest = (measured(townlet, gym_runs["ppo"], "--episodes", "6", *word) for word in (["--sample"], []))
    assert drawn["trained"] != likeliest["trained"]
    assert drawn["random"] == likeliest["random"]
    run = gym_runs["qlearning"]
    refused = townlet("eval", run.name, "--sample", "--root", str(run.path.parent))
    assert refused.code == 2
    assert "qlearning learns values" in refused.err


@pytest.mark.parametrize("words", [["max_steps=9"], ["--world", "town"], ["--layout", "shuffled"]])
def test_town_options_are_rejected(townlet: Program, gym_runs: dict[str, Run], words: list[str]) -> None:
    run = gym_runs["ppo"]
    done = townlet("eval", run.name, *words, "--root", str(Path(run.path).parent))
    assert done.code == 2
    assert "CartPole-v1 is not a town" in done.err
