"""`townlet sweep`: trials, sweeps shared by processes, and the resulting recipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from cli.program import Program
from small import ctrl_c_once_training
from townlet.config.models import SearchRange
from townlet.runs.folder import Run
from townlet.sweep import study as studies
from townlet.sweep.space import search_space, split_overrides
from townlet.sweep.trial import SweepConfig, suggest, trial_overrides
from townlet.tasks.experiment import load_experiment

SMALL = (
    "rows=2", "threads=1", "agent.n_steps=16", "evaluation.episodes=2", "evaluation.every=64",
    "metrics.tensorboard=false", "metrics.report=false",
)  # fmt: skip
SPACE = ("agent.lr=1e-4..1e-1", "agent.epochs=1..8", "agent.gamma=0.9,0.99", "network.hidden=[8],[16]")
SWEEP = ("sweep", "Bandit-v0:ppo", *SPACE, *SMALL, "--steps", "128")


def test_arguments_define_the_search_space() -> None:
    plain, space = split_overrides(
        ["agent.lr=1e-5..1e-2", "agent.n_steps=16,32", "network.hidden=[8, 8],[16]", "seed=3"]
    )
    assert plain == ["seed=3"]
    assert space["agent.lr"] == SearchRange(low=1e-5, high=1e-2)
    assert space["agent.lr"].is_log
    assert space["agent.n_steps"].choices == (16, 32)
    assert space["network.hidden"].choices == ((8, 8), (16,))
    assert split_overrides(["world=../my-town.yaml", "network.hidden=[64, 64]"])[1] == {}


def test_recipe_may_define_the_search_space(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        "env: Bandit-v0\ngym: {}\nagent: ppo\nbudget: {env_steps: 1e3}\n"
        "sweep:\n  agent.epochs: {low: 1, high: 1e1}\n  agent.gamma: {low: 0, high: 1}\n"
    )
    recipe = load_experiment(str(file)).recipe
    assert search_space(recipe, {}) == {
        "agent.epochs": SearchRange(low=1, high=10),
        "agent.gamma": SearchRange(low=0, high=1),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agent.lrr=1e-4..1e-2"], "did you mean 'lr'"),
        (["agent.lr=1e-2..1e-4"], "must be below `high`"),
        (["agent.epochs=0..3"], "agent.epochs"),
        (["--storage", "nonsense"], "the storage of the sweep cannot be opened"),
        (["--storage", "mysql://me:s3cret@host/db"], "its database driver is not installed"),
        (["seed=1,2"], "use --seeds"),
        (["--to", "no-such-folder/x.yaml"], "there is no folder no-such-folder"),
    ],
)
def test_errors_are_reported_before_the_first_trial(
    townlet: Program, tmp_path: Path, words: list[str], message: str
) -> None:
    done = townlet("sweep", "Bandit-v0:ppo", *words, "--root", str(tmp_path / "runs"))
    assert done.code == 2
    assert message in done.err
    assert "s3cret" not in done.err
    assert "Traceback" not in done.err
    assert Run.list(tmp_path / "runs") == []


def test_missing_extra_is_one_line(townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "find_spec", lambda _: None)  # as if it were not installed
    done = townlet("sweep", "Bandit-v0:ppo")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].strip() == "fix: install it: pip install 'townlet[sweep]'"


def test_two_processes_share_a_sweep_and_write_a_trainable_recipe(townlet: Program, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    command = [sys.executable, "-m", "townlet", *SWEEP, "--root", str(root), "--trials", "3"]
    both = [warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    metas = [run.meta() for run in Run.list(root)]
    assert sorted(meta["sweep"]["trial"] for meta in metas) == [0, 1, 2]
    (first,) = (meta for meta in metas if meta["sweep"]["trial"] == 0)
    assert "agent.lr" not in " ".join(first["overrides"])  # the unchanged recipe
    assert all(out.count("3 trials") for out, _ in said)
    # The same command continues the sweep: nothing is left to do, and the recipe is written.
    done = townlet(*SWEEP, "--root", str(root), "--trials", "3")
    assert done.code == 0
    assert len(Run.list(root)) == 3
    file = root / "Bandit-v0-ppo-best.yaml"
    recipe = load_experiment(str(file)).recipe
    assert recipe.tuned
    assert "return" in recipe.result[0].what
    assert townlet("train", str(file), "--root", str(tmp_path / "trained")).code == 0
    # Other arguments are another sweep.
    done = townlet("sweep", "Bandit-v0:ppo", "agent.lr=1e-3,1e-2", *SMALL, "--root", str(root))
    assert done.code == 2
    assert "differs in overrides and space" in done.err
    assert "start another sweep with --name" in done.err


def test_choices_are_stored_as_numbers_and_not_rounded() -> None:
    import optuna

    _, space = split_overrides(["agent.gamma=0.98,0.123456", "network.hidden=[8],[16]", "agent.epochs=1..8"])
    recipe = load_experiment("Bandit-v0:ppo").recipe
    config = SweepConfig("study", "Bandit-v0:ppo", (), recipe, space, Path())
    study = optuna.create_study()
    study.enqueue_trial({"agent.gamma": 0.123456, "network.hidden": "[16]", "agent.epochs": 3})
    trial = study.ask()
    suggest(trial, config)
    assert trial.params == {"agent.gamma": 0.123456, "network.hidden": "[16]", "agent.epochs": 3}
    assert trial_overrides(trial) == ["agent.gamma=0.123456", "network.hidden=[16]", "agent.epochs=3"]


def test_single_trial_has_no_importance(townlet: Program, tmp_path: Path) -> None:
    done = townlet(*SWEEP, "--root", str(tmp_path), "--trials", "1")
    assert done.code == 0, done.err
    assert "1 trial over" in done.err
    assert "1 trial: 1 finished." in done.out
    assert "Importance" not in done.out


def test_failed_trial_does_not_end_the_sweep(townlet: Program, tmp_path: Path) -> None:
    # A huge learning rate makes the weights NaN.
    done = townlet(
        "sweep",
        "Bandit-v0:ppo",
        "agent.lr=1e-3,1e30",
        *SMALL,
        "--steps",
        "128",
        "--trials",
        "4",
        "--root",
        str(tmp_path),
    )
    assert done.code == 0, done.err
    assert "failed (training diverged" in done.err
    assert "4 trials: " in done.out


def test_interrupted_sweep_resumes(townlet: Program, tmp_path: Path) -> None:
    words = ("sweep", "CartPole-v1:ppo", "agent.lr=1e-4,1e-3", "rows=2", "threads=1", "--root", str(tmp_path))
    with ctrl_c_once_training(tmp_path):
        done = townlet(*words, "--trials", "2", "--steps", "1e7")
    assert done.code == 130, done.err
    assert "Resume with: " in done.out
    assert "Traceback" not in done.err
    (run,) = Run.list(tmp_path)
    assert run.meta()["ended"] == "interrupted"


def test_trial_that_is_repeated_counts_once() -> None:
    import optuna

    from townlet.sweep.study import _retry, counted_trials

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    study.tell(study.ask(), 1.0)
    interrupted = study.ask()
    interrupted.suggest_float("lr", 0, 1)
    _retry(study, study.trials[interrupted.number])
    assert [trial.number for trial in counted_trials(study)] == [0]
    repeated = study.ask()
    assert repeated.suggest_float("lr", 0, 1) == interrupted.params["lr"]
    assert [trial.number for trial in counted_trials(study)] == [0, repeated.number]


@pytest.mark.long(minutes=4)
def test_a_sweep_improves_on_a_poor_start(tmp_path: Path) -> None:
    """Twenty short trials improve on a learning rate that learns nothing."""
    words = ["CartPole-v1:ppo", "agent.lr=1e-5..1e-2", "agent.epochs=4,10,20", "threads=1", "evaluation.episodes=20"]
    poor = tmp_path / "poor.yaml"
    poor.write_text(
        "env: CartPole-v1\nvariants:\n  ppo:\n    extends: 'CartPole-v1:ppo'\n"
        "    agent: {lr: 1e-5}\n    budget: {env_steps: 1.5e4}\n"
    )
    root = tmp_path / "runs"
    command = [sys.executable, "-m", "townlet", "sweep", str(poor), *words[1:], "--trials", "20", "--root", str(root)]
    done = warm.run(command, capture_output=True, text=True, check=True, timeout=1200, env={**os.environ})
    print(done.stdout)
    file = next(root.glob("*-best.yaml"))
    scores = {meta["sweep"]["trial"]: _last(run) for run in Run.list(root) for meta in [run.meta()]}
    assert max(scores.values()) > 3 * scores[0], scores
    trained = [sys.executable, "-m", "townlet", "train", str(file), "--root", str(tmp_path / "trained")]
    print(warm.run(trained, capture_output=True, text=True, check=True, timeout=600).stdout)
    (again,) = Run.list(tmp_path / "trained")
    assert _last(again) > 3 * scores[0]


def _last(run: Run) -> float:
    from townlet.runs.overview import make_overview

    return make_overview(run).last or 0.0


def test_database_password_is_not_stored(tmp_path: Path) -> None:
    from townlet.runs.provenance import without_passwords

    typed = json.dumps("townlet sweep X --storage postgresql://me:s3cret@db.example/x --trials 2")
    assert "s3cret" not in without_passwords(typed)
    assert "db.example" in without_passwords(typed)
