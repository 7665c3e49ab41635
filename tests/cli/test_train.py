"""`townlet train`: from the command line to a run on disk, and the exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from cli.program import Program
from narrow import latest_checkpoint
from small import REPORT, SMALL, ctrl_c_once_training
from townlet.runs import checkpoint
from townlet.runs.folder import Run

WORDS = SMALL["town-l0:dqn"]


def test_training_prints_results_paths_and_working_commands(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a folder whose name alone is longer than a narrow terminal, and has blanks"
    monkeypatch.setenv("COLUMNS", "80")
    done = townlet("train", "town-l0:dqn", *WORDS, REPORT, "--seed", "5", "--steps", "8e2", "--root", str(root))
    assert done.code == 0
    run = Run.open("latest", root)
    assert run.meta()["seed"] == 5
    assert latest_checkpoint(run).env_steps == 800
    assert "A random agent survives" in " ".join(done.out.split())
    assert "checkpoint, this agent survives" in " ".join(done.out.split())
    assert "evaluation: " in done.err  # progress goes to stderr
    lines = {line.split(":")[0]: line.partition(":")[2].strip() for line in done.out.splitlines()[-4:]}
    assert list(lines) == ["Run", "Report", "Watch", "Evaluate"]
    assert Path(lines["Run"]).samefile(run.path)
    assert Path(lines["Report"]) == run.report_html
    assert run.report_html.is_file()
    watch, measure = (shlex.split(lines[name]) for name in ("Watch", "Evaluate"))
    assert townlet(*watch[1:], "--steps", "2", "--table-episodes", "2").code == 0
    assert townlet(*measure[1:], "--episodes", "2").code == 0


def test_quiet_training_prints_only_the_folder_of_the_run(townlet: Program, tmp_path: Path) -> None:
    done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "320", "--quiet", "--root", str(tmp_path))
    (run,) = Run.list(tmp_path)
    assert (done.code, done.out, done.err) == (0, f"{run.path}\n", "")
    refused = townlet("train", "--resume", "latest", "rows=1", "--quiet", "--root", str(tmp_path))
    assert (refused.code, refused.out) == (2, "")
    assert "rows" in refused.err


def test_finished_run_prints_how_to_continue(townlet: Program, tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    townlet("train", "town-l0:dqn", *WORDS, "--steps", "320", *root)
    (run,) = Run.list(tmp_path)
    for words in ([], ["budget.env_steps=300"], ["--minutes", "7"]):
        done = townlet("train", "--resume", "latest", *words, *root)
        assert done.code == 0
        assert "This run had already finished: all steps of the budget are spent." in done.out
        assert f"townlet train --resume {run.name} budget.env_steps=…" in done.out
        assert latest_checkpoint(run).env_steps == 320
    assert townlet("train", "--resume", "latest", "budget.env_steps=384", *root).code == 0
    assert latest_checkpoint(run).env_steps == 384


def test_report_can_be_written_later(townlet: Program, tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "320", *root)
    (run,) = Run.list(tmp_path)
    assert "Report:" not in done.out
    assert not run.report_html.exists()
    assert "Report: none yet" in townlet("runs", "show", run.name, *root).out
    done = townlet("train", "--resume", run.name, REPORT, *root)
    assert f"Report:   {run.report_html}" in done.out
    assert run.report_html.is_file()


def test_multiple_seeds_are_summarized(townlet: Program, tmp_path: Path) -> None:
    done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "400", "--seeds", "2", "--root", str(tmp_path))
    assert done.code == 0
    assert [run.meta()["seed"] for run in Run.list(tmp_path)] == [0, 1]
    assert "IQM of length over 2 seeds" in done.out


def test_diverged_seed_does_not_stop_the_others(townlet: Program, tmp_path: Path) -> None:
    bad = ["agent.lr={start: 1e-3, end: 1e38, from: 900, to: 901}", "agent.max_grad_norm=null", "agent.loss=mse"]
    done = townlet("train", "town-l0:dqn", *WORDS, *bad, "--seeds", "2", "--root", str(tmp_path))
    assert done.code == 3
    assert [run.meta()["seed"] for run in Run.list(tmp_path)] == [0, 1]
    for seed, run in enumerate(Run.list(tmp_path)):
        (line,) = [line for line in done.out.splitlines() if line.startswith(f"seed {seed}:")]
        assert "failed  training diverged" in line
        assert str(run.path) in line
    assert "no seed finished" in done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["town-l0:dqn", "--seeds", "2", "--pause-at", "1e3"], "--pause-at cannot be used with --seeds"),
        (["--resume", "latest", "--seeds", "2"], "--resume continues one run"),
        (["town-l0:dqn", "--seeds", "2", "--live"], "--live and --open show one run"),
        (["town-l0:dqn", "--jobs", "2"], "there is only one"),
        (["town-l0:dqn", "--steps", "many"], "'many' is not a number of steps; write it like 100000 or 1e5"),
        (["town-l0:dqn", "--steps", "0"], "'0' is not a number of steps"),
        (["town-l0:dqn", "--quiet", "--metrics"], "--quiet and --metrics contradict each other"),
    ],
)
def test_conflicting_options_are_rejected(townlet: Program, tmp_path: Path, words: list[str], message: str) -> None:
    done = townlet("train", *words, "--root", str(tmp_path))
    assert done.code == 2
    assert message in done.err
    assert not Run.list(tmp_path)


def test_paused_run_resumes_to_the_end(townlet: Program, tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    paused = townlet("train", "town-l0:dqn", *WORDS, "--pause-at", "400", *root)
    (run,) = Run.list(tmp_path)
    assert paused.code == 0
    assert f"townlet train --resume {run.name}" in paused.out
    assert json.loads(townlet("runs", "list", "--json", *root).out)[0]["state"] == "interrupted"
    assert townlet("train", "--resume", run.name, *root).code == 0
    (line,) = json.loads(townlet("runs", "list", "--json", *root).out)
    assert (line["state"], line["env_steps"]) == ("finished", 1600)


def test_run_works_without_its_world_file(townlet: Program, tmp_path: Path) -> None:
    path, root = tmp_path / "my-town.yaml", tmp_path / "runs"
    path.write_text("extends: town-l0\nmax_steps: 33\n", encoding="utf-8")
    assert townlet("train", f"{path}:dqn", *WORDS, "--pause-at", "100", "--root", str(root)).code == 0
    path.unlink()
    (run,) = Run.list(root)
    for words in (["eval", "--episodes", "3"], ["play", "--steps", "3", "--table-episodes", "2"]):
        done = townlet(words[0], str(run.path), *words[1:])
        assert done.code == 0, done.err
        assert f"The world {path} is missing" in done.err
        assert "33" in done.out
    assert townlet("train", "--resume", run.name, "--pause-at", "200", "--root", str(root)).code == 0


def test_interrupt_saves_and_exits_with_130(townlet: Program, tmp_path: Path) -> None:
    with ctrl_c_once_training(tmp_path):
        done = townlet("train", "town-l0:dqn", *WORDS, "--steps", "100000000", "--root", str(tmp_path))
    assert done.code == 130
    assert "townlet train --resume" in done.out
    assert "Traceback" not in done.err
    (run,) = Run.list(tmp_path)
    assert latest_checkpoint(run).env_steps > 0


def test_divergence_exits_with_3_and_keeps_the_last_checkpoint(townlet: Program, tmp_path: Path) -> None:
    words = [*WORDS, "agent.lr=1e38", "agent.max_grad_norm=null", "agent.loss=mse", "agent.optimizer=sgd"]
    done = townlet("train", "town-l0:dqn", *words, "--root", str(tmp_path))
    assert done.code == 3
    assert "training diverged" in done.err
    assert "fix: lower agent.lr" in done.err
    assert "Traceback" not in done.err
    (run,) = Run.list(tmp_path)
    for path in checkpoint.paths(run.checkpoints):
        checkpoint.verify(path)
    listed = townlet("runs", "list", "--root", str(tmp_path))
    assert "diverged" in listed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["town-l0:dqm"], "did you mean 'town-l0:dqn'?"),
        (["town-l0:dqn", "agent.lrr=1"], "did you mean 'lr'"),
        (["town:ppo", "--resume", "latest"], "drop 'town:ppo'"),
        (["--resume", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_user_errors_exit_with_2(townlet: Program, tmp_path: Path, words: list[str], message: str) -> None:
    done = townlet("train", *words, "--root", str(tmp_path))
    assert done.code == 2
    assert message in done.err
    assert not Run.list(tmp_path)
