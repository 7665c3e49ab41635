"""`townlet train`: from the command line to a run on disk, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.program import Program
from small import SMALL, ctrl_c_once_training
from townlet.runs import checkpoint
from townlet.runs.folder import Run

WORDS = SMALL["town-l0:dqn"]


def test_training_ends_with_what_was_learned_and_where_it_lies(townlet: Program, tmp_path: Path) -> None:
    done = townlet("train", "town-l0:dqn", *WORDS, "--seed", "5", "--steps", "800", "--root", str(tmp_path))
    assert done.code == 0
    run = Run.open("latest", tmp_path)
    assert run.meta()["seed"] == 5
    assert checkpoint.newest(run.checkpoints).env_steps == 800  # type: ignore[union-attr]
    assert "A random agent lives" in done.out
    assert "This one lives" in done.out
    assert str(run.report_html) in done.out
    assert run.report_html.is_file()
    assert "evaluation: lives" in done.err  # progress stays out of the result


def test_several_seeds_are_summed_up(townlet: Program, tmp_path: Path) -> None:
    done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "400", "--seeds", "2", "--root", str(tmp_path))
    assert done.code == 0
    assert [run.meta()["seed"] for run in Run.list(tmp_path)] == [0, 1]
    assert "IQM of length over 2 seeds" in done.out


def test_a_pause_says_how_to_go_on_and_going_on_finishes(townlet: Program, tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    paused = townlet("train", "town-l0:dqn", *WORDS, "--pause-at", "400", *root)
    (run,) = Run.list(tmp_path)
    assert paused.code == 0
    assert f"townlet train --resume {run.name}" in paused.out
    assert json.loads(townlet("runs", "list", "--json", *root).out)[0]["state"] == "interrupted"
    assert townlet("train", "--resume", run.name, *root).code == 0
    (line,) = json.loads(townlet("runs", "list", "--json", *root).out)
    assert (line["state"], line["env_steps"]) == ("finished", 1600)


def test_interrupting_saves_and_leaves_with_130(townlet: Program, tmp_path: Path) -> None:
    with ctrl_c_once_training(tmp_path):
        done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "100000000", "--root", str(tmp_path))
    assert done.code == 130
    assert "townlet train --resume" in done.out
    assert "Traceback" not in done.err
    (run,) = Run.list(tmp_path)
    assert checkpoint.newest(run.checkpoints).env_steps > 0  # type: ignore[union-attr]


def test_diverging_leaves_with_3_and_keeps_the_last_good_checkpoint(townlet: Program, tmp_path: Path) -> None:
    words = [*WORDS, "agent.lr=1e38", "agent.max_grad_norm=null", "agent.loss=mse", "agent.optimizer=sgd"]
    done = townlet("train", "town-l0:dqn", *words, "--root", str(tmp_path))
    assert done.code == 3
    assert "training diverged" in done.err
    assert "fix: lower agent.lr" in done.err
    assert "Traceback" not in done.err
    (run,) = Run.list(tmp_path)
    for path in checkpoint.listing(run.checkpoints):
        checkpoint.verify(path)
    listed = townlet("runs", "list", "--root", str(tmp_path))
    assert "diverged" in listed.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["town-l0:dqm"], "did you mean 'dqn'?"),
        (["town-l0:dqn", "agent.lrr=1"], "did you mean 'lr'"),
        (["town:ppo", "--resume", "latest"], "leave out 'town:ppo'"),
        (["--resume", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_mistakes_are_told_and_leave_with_2(townlet: Program, tmp_path: Path, words: list[str], told: str) -> None:
    done = townlet("train", *words, "--root", str(tmp_path))
    assert done.code == 2
    assert told in done.err
    assert not Run.list(tmp_path)
