"""Several processes train one run: real processes with real sockets, some of which are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
import torch

from townlet.distributed.process_group import ProcessGroup
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.api import train
from townlet.train.parallel_training import require_parallel_support
from townlet.train.session import TrainingOutcome, resume, start
from train.processes import WAIT, Launch, assert_same, launch, load_latest
from train.tiny import tiny

SMALL = ("rows=24", "metrics.every=240", "evaluation.every=1e4")
SETTINGS = {
    "town:ppo": ("agent.n_steps=8", "agent.batch_size=48", "agent.entropy_coef=.01", "agent.target_kl=1"),
    "town:dqn": ("agent={replay: 480, warmup: 96, batch_size: 16, update_every: 4, gradient_steps: 2}",),
}
STEPS, MIDDLE = 2880, 960
__all__ = ["launch"]
LONG = pytest.mark.long(minutes=1)


class Four:
    """The part of a process group of four that `require_parallel_support` reads."""

    size = local_size = 4


def words_of(recipe: str, steps: int = STEPS) -> tuple[str, ...]:
    """Overrides for a very short run whose rows can be split over two or three processes."""
    return (*SMALL, *SETTINGS[recipe], f"budget={{env_steps: {steps}}}")


def alone(recipe: str, root: Path, pause_at: int | None = None) -> TrainingOutcome:
    return start(tiny(recipe, *words_of(recipe)), root, pause_at=pause_at)


@LONG
def test_three_dqn_processes_resume_a_run_of_one(tmp_path: Path, launch: Launch) -> None:
    run = alone("town:dqn", tmp_path / "three", MIDDLE).run
    (code, said), *others = launch(3, "--resume", str(run.path)).results()
    assert (code, others) == (0, [(0, ""), (0, "")]), said
    assert_same(alone("town:dqn", tmp_path / "one").run, run)
    assert "all steps of the budget are spent" in said


def tiny_words(recipe: str, steps: int = STEPS) -> tuple[str, ...]:
    """Arguments with which `townlet train` trains the same run as `alone`."""
    from train.tiny import DQN, PPO

    return (*(PPO if recipe.endswith("ppo") else DQN), *words_of(recipe, steps))


def wait_for_run(root: Path, steps: int) -> Run:
    """Wait for a run below `root` with a checkpoint of at least `steps` env_steps."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        for path in root.glob("*/checkpoints"):
            found = checkpoint.latest(path)
            if found is not None and found.env_steps >= steps:
                return Run(path.parent)
        time.sleep(0.05)
    raise AssertionError("nothing was saved")


@pytest.mark.parametrize("victim", [pytest.param(0, marks=LONG), 1])
def test_killed_process_is_reported_and_the_run_can_be_resumed(tmp_path: Path, launch: Launch, victim: int) -> None:
    words = (*tiny_words("town:ppo", 10**9), "checkpoints.minutes=0.001", "--root", str(tmp_path))
    processes = launch(2, "town:ppo", *words)
    run = wait_for_run(tmp_path, 2 * 192)
    os.kill(processes.all[victim].pid, signal.SIGKILL)
    code, said = processes.results()[1 - victim]
    assert code == 1
    assert "one of the 2 processes that train together is gone" in said
    assert "Traceback" not in said
    if victim:
        assert f"resume from the last checkpoint: townlet train --resume {run.path.resolve()}" in said
    before = int(str(load_latest(run)[1]["env_steps"]))
    resume(run, [f"budget.env_steps={before + 192}"])
    assert load_latest(run)[1]["env_steps"] == before + 192


BREAK = """
import os, sys
from townlet.agents.ppo import Ppo
from townlet.cli.app import main
from townlet.town.env import Town

step, learn, here, steps = Town.step, Ppo.learn, os.environ["RANK"] == "{rank}", 0

def wrong_step(self, actions):
    global steps
    steps, made = steps + (self.rows == 12), step(self, actions)  # other towns are for evaluation only
    if "{what}" == "reward" and here and steps == 20:
        made.reward[2] = float("nan")
    return made

def wrong_learn(self, check_interrupt=None):
    if "{what}" == "learn" and here:
        raise MemoryError("too much")
    return learn(self)

Town.step, Ppo.learn = wrong_step, wrong_learn
main()
"""


@pytest.mark.parametrize(
    ("rank", "what", "codes", "reported"),
    [
        pytest.param(0, "reward", [3, 3], "reward of row 2 is nan in the rollout up to env_steps 576", marks=LONG),
        (1, "reward", [3, 3], "reward of row 14 is nan in the rollout up to env_steps 576"),
        pytest.param(0, "learn", [2, 1], "not enough memory: too much", marks=LONG),
    ],
)
def test_error_in_one_process_ends_all_of_them(
    tmp_path: Path, launch: Launch, rank: int, what: str, codes: list[int], reported: str
) -> None:
    words = ("town:ppo", *tiny_words("town:ppo"), "--root", str(tmp_path))
    ends = launch(2, *words, program=("-c", BREAK.format(rank=rank, what=what))).results()
    assert [code for code, _ in ends] == codes, ends
    assert reported in ends[0][1]
    if what == "reward":
        assert Run.open("latest", tmp_path).meta()["ended"] == "diverged"


@LONG
def test_all_processes_warm_start_from_another_run(tmp_path: Path, launch: Launch) -> None:
    source = alone("town:ppo", tmp_path).run
    words = ("town:ppo", *tiny_words("town:ppo", 192), "init_from=latest", "agent.lr=0", "--root", str(tmp_path))
    assert [code for code, _ in launch(2, *words).results()] == [0, 0]
    (before, _), (after, _) = load_latest(source), load_latest(Run.open("latest", tmp_path))
    names = [name for name in before if name.startswith("training/agent/network/")]
    assert names
    for name in names:
        assert torch.equal(torch.as_tensor(before[name]), torch.as_tensor(after[name])), name


@LONG
def test_torchrun_starts_all_processes_and_ctrl_c_saves(tmp_path: Path) -> None:
    words = (*tiny_words("town:ppo", 10**9), "--root", str(tmp_path))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [*torchrun, "-m", "townlet", "train", "town:ppo", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    run = wait_for_run(tmp_path, 0)
    time.sleep(3)
    os.killpg(process.pid, signal.SIGINT)  # to all processes, as a terminal does
    said = process.communicate(timeout=WAIT)[0]
    assert "Resume with:" in said
    before = int(str(load_latest(run)[1]["env_steps"]))
    assert before > 0
    resume(run, [f"budget.env_steps={before + 192}"])


@pytest.mark.parametrize(
    ("recipe", "words", "what"),
    [
        (
            "town:ppo",
            ["rows=30", "agent.batch_size=.5"],
            "30 rows cannot be split evenly over 4 processes with at least 4 rows each; "
            "number of processes that fit: 1, 2, 3, 5 or 6; or start a run with rows=32",
        ),
        (
            "town:ppo",
            ["rows=8", "agent.batch_size=.5"],
            "8 rows cannot be split evenly over 4 processes with at least 4 rows each; "
            "number of processes that fit: 1 or 2; or start a run with rows=16",
        ),
        (
            "town-foggy:drqn",
            [],
            "drqn cannot be trained by several processes; start it without torchrun, or train dqn, ppo or pqn",
        ),
        ("town:dqn-curriculum", [], "curriculum is not supported with several processes; write curriculum=null"),
        ("town:dqn-rnd", [], "explore.bonus is not supported with several processes; write explore.bonus=null"),
        ("town:dqn", ["agent.prioritized={}"], "agent.prioritized is not supported with several processes"),
        ("CartPole-v1:ppo", [], "training in several processes supports towns only"),
    ],
)
def test_unsupported_recipes_are_rejected(recipe: str, words: list[str], what: str) -> None:
    with pytest.raises(TownletError) as found:
        require_parallel_support(load_experiment(recipe, words).recipe, cast(ProcessGroup, Four()))
    assert what in str(found.value)


def test_train_function_refuses_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(TownletError, match=r"start it without torchrun, or run torchrun … -m townlet train"):
        train("town:dqn")
