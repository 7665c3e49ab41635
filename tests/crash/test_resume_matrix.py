"""SIGKILL in the middle of a run: every agent in every kind of environment resumes bit for bit.

The middle: at least two checkpoints after that of step 0, open episodes, metrics on disk that are newer than the last
checkpoint, and the next checkpoint not begun.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from pathlib import Path
from zlib import crc32

import pytest

from crash.training_process import TINY, ForkServer, checkpoint_leaves, differences, only_run
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader

WRAPPERS = Path(__file__).with_name("wrappers.py")
RND = "explore.bonus={name: rnd, hidden: [8], embedding_size: 4, batch_size: 16}"
ADAPTIVE = "explore.weight={name: adaptive, start: .5, minimum: .01, episodes: 4, variance: 1e4, mean: 5}"
# With these settings replay, rollouts, hidden states and moving averages are in use at the kill.
AGENTS = {
    "ppo": ("agent={name: ppo, n_steps: 8, batch_size: .5, epochs: 2}", RND, ADAPTIVE),
    "pqn": ("agent={name: pqn, n_steps: 8}", "network={name: mlp, hidden: [16], layer_norm: true}", RND, ADAPTIVE),
    "dqn": ("agent={name: dqn, replay: 400, warmup: 60, batch_size: 8, n_step: 3, prioritized: {}}",),
    "drqn": (
        "agent={name: drqn, replay: 400, warmup: 60, batch_size: 4, sequence_length: 6, burn_in: 2}",
        "network={name: mlp, hidden: [16], recurrent: {kind: gru, size: 8, post_widths: [8]}}",
    ),
    "reinforce": ("agent={name: reinforce, episodes: 3, baseline: mean}", RND, ADAPTIVE),
    "qlearning": ("agent={name: qlearning, double: true}", "explore.bonus=counts", ADAPTIVE),
}
SMALL = ("metrics.every=20", "checkpoints.every_episodes=8", "evaluation.every=300")
GYM = (
    "rows=3", "threads=1", "network={name: mlp, hidden: [16]}", "evaluation.episodes=2", "metrics.tensorboard=false",
    "metrics.report=false", *SMALL,
)  # fmt: skip
QUICK_BUDGET, LONG_BUDGET = "budget={env_steps: 540}", "budget={env_steps: 2000}"
SHORT = "gym.max_episode_steps=23"  # does not divide the steps between checkpoints
WRAPPED = (
    "gym={vectorization: sync, frame_stack: 3, normalize_obs: running, wrappers: [{name: cart_pole_shaping}, "
    "{name: sticky_actions}, {name: frame_skip, frames: 1, max_frames: 3}]}"
)
KINDS = {
    "town": ("town:ppo", (*TINY, "network={name: mlp, hidden: [16]}", *SMALL)),
    "CartPole native": ("CartPole-v1:ppo", (*GYM, "gym={vectorization: native, normalize_obs: running}")),
    "CartPole sync": ("CartPole-v1:ppo", (*GYM, "gym.vectorization=sync")),
    "CartPole wrapped": ("CartPole-v1:ppo", (*GYM, WRAPPED)),
    "CartPole async": ("CartPole-v1:ppo", (*GYM, "gym.vectorization=async")),
    "Pendulum sync": ("Pendulum-v1:ppo", (*GYM, SHORT, "gym={vectorization: sync, normalize_obs: running}")),
    "Pendulum async": ("Pendulum-v1:ppo", (*GYM, SHORT, "gym.vectorization=async")),
}
NOT_DISCRETE = "{} needs discrete actions, but this environment's are continuous"
NO_STATE = "qlearning needs a single discrete observation"
# Combinations that cannot be trained, and part of the message.
IMPOSSIBLE = {
    ("qlearning", "town"): NO_STATE,
    ("qlearning", "CartPole wrapped"): NO_STATE,
    ("qlearning", "CartPole native"): "does not work with vectorization: native",
    ("drqn", "CartPole native"): "drqn with a recurrent network cannot train on an environment with autoreset steps",
    **{(agent, "Pendulum sync"): NOT_DISCRETE.format(agent) for agent in ("pqn", "dqn", "drqn", "qlearning")},
}
PAIRS = [(a, kind) for a in AGENTS for kind in KINDS if (a, kind.replace("m async", "m sync")) not in IMPOSSIBLE]
# Every agent once and every kind of environment once.
QUICK = [
    ("dqn", "town"), ("pqn", "CartPole native"), ("drqn", "CartPole wrapped"), ("qlearning", "CartPole async"),
    ("ppo", "Pendulum sync"), ("reinforce", "Pendulum sync"),
]  # fmt: skip


def custom_wrapper(name: str) -> str:
    """The override that adds a custom wrapper to the environment."""
    return f"gym.wrappers=[{{name: custom, wrapper: {name}, file: {json.dumps(str(WRAPPERS))}}}]"


def settings(agent: str, kind: str, budget: str = QUICK_BUDGET) -> tuple[str, tuple[str, ...]]:
    """The recipe and its overrides."""
    recipe, words = KINDS[kind]
    if (agent, kind) == ("drqn", "town"):
        recipe = "town-l2:drqn"  # a partially observable town
    if agent == "qlearning" and kind in ("CartPole native", "CartPole sync", "CartPole async"):
        vectorization = kind.split()[1]
        words = (*words, f"gym={{vectorization: {vectorization}, normalize_obs: none}}", custom_wrapper("bins"))
    return recipe, (*words, *AGENTS[agent], budget)


def assert_killed_in_the_middle(run: Path) -> None:
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    assert last.env_steps > 0
    assert checkpoint_leaves(run)["training/tracker/length"].any()  # open episodes
    with MetricsReader(run / "metrics.db") as metrics:
        assert max(metrics.read("updates", ["env_steps"])["env_steps"]) > last.env_steps
    assert not Run(run).meta().get("finished")


def assert_same_end(whole: Path, resumed: Path) -> None:
    """Weights, optimizer, replay, counters, random streams, environments, metrics and summary."""
    assert differences(whole, resumed) == []
    assert [path.name for path in checkpoint.paths(whole / "checkpoints")] == [
        path.name for path in checkpoint.paths(resumed / "checkpoints")
    ]
    for key in ("finished", "ended", "summary"):
        assert Run(whole).meta()[key] == Run(resumed).meta()[key]
    assert Run(whole).meta()["finished"]


def kill_and_resume(server: ForkServer, agent: str, kind: str, folder: Path, more: int = 0) -> int:
    """Kill a run in the middle and `more` times at random, resume it to its end and compare; returns the kills."""
    recipe, words = settings(agent, kind, LONG_BUDGET if more else QUICK_BUDGET)
    chance = random.Random(crc32(f"{agent} {kind}".encode()))
    whole = server.train(recipe, words, folder / "whole")
    process = server.start(recipe, words, folder / "killed", flush_seconds=0, killed_after=[3, chance.randint(17, 24)])
    assert process.wait() == -9, process.output()
    run, killed = only_run(folder / "killed"), 1
    assert_killed_in_the_middle(run)
    for turn in range(more):
        if turn % 2:  # at any time: restoring, collecting, learning, evaluating, committing
            process = server.resume(run, flush_seconds=0)
            process.wait_for_cpu(chance.uniform(0.0, 0.5))
            code = process.kill()
        else:
            process = server.resume(run, flush_seconds=0, killed_after=[turn // 4, chance.randint(1, 20)])
            code = process.wait()
        assert code in (-9, 0), process.output()
        killed += code == -9
    server.resume_to_end(run)
    assert_same_end(whole, run)
    return killed


@pytest.mark.parametrize(("agent", "kind"), QUICK)
def test_killed_run_resumes_bit_for_bit(agent: str, kind: str, server: ForkServer, tmp_path: Path) -> None:
    kill_and_resume(server, agent, kind, tmp_path)


@pytest.mark.long(minutes=2)
@pytest.mark.parametrize(("agent", "kind"), PAIRS)
def test_repeatedly_killed_run_resumes_bit_for_bit(agent: str, kind: str, server: ForkServer, tmp_path: Path) -> None:
    killed = kill_and_resume(server, agent, kind, tmp_path, 6)
    print(f"{killed} kills")
    assert killed >= 3


@pytest.mark.parametrize(("agent", "kind"), IMPOSSIBLE)
def test_untrainable_combination_is_rejected_before_a_run_is_created(
    agent: str, kind: str, server: ForkServer, tmp_path: Path
) -> None:
    recipe, words = settings(agent, kind)
    process = server.start(recipe, words, tmp_path)
    assert process.wait() == 2, process.output()
    assert IMPOSSIBLE[agent, kind] in process.output()
    assert "Traceback" not in process.output()
    assert Run.list(tmp_path) == []


def test_unsavable_environment_starts_new_episodes_and_logs_it(server: ForkServer, tmp_path: Path) -> None:
    """Everything else continues: weights, optimizer, counters and random streams; two resumes are bit-identical."""
    recipe, words = settings("ppo", "CartPole sync")
    words = (*words, custom_wrapper("unsavable"))
    process = server.start(recipe, words, tmp_path / "killed", flush_seconds=0, killed_after=[3, 20])
    assert process.wait() == -9, process.output()
    run = only_run(tmp_path / "killed")
    assert_killed_in_the_middle(run)
    (tmp_path / "copy").mkdir()
    twin = Path(shutil.copytree(run, tmp_path / "copy" / run.name))
    last = checkpoint.latest(run / "checkpoints")
    assert last is not None
    server.resume_to_end(run, pause_at=last.env_steps)  # restored, without a step
    assert "cannot be saved in the middle of one" in Run(run).log_file.read_text()
    for each in (run, twin):
        server.resume_to_end(each)
    assert_same_end(run, twin)
    assert Run(run).meta()["finished"]


def descendants(pid: int) -> set[int]:
    """All descendants of a process."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def test_worker_processes_end_with_a_killed_run(server: ForkServer, tmp_path: Path) -> None:
    recipe, words = settings("dqn", "CartPole async")
    process = server.start(recipe, words, tmp_path, stall=["committed", 2])
    process.wait_for("stalled", 60)
    workers = descendants(process.pid)
    assert len(workers) >= 3  # one for each row, and the server that forks them
    assert process.kill() == -9
    deadline = time.monotonic() + 30
    while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)
