"""A process with everything imported that forks one child per request, so that runs start immediately.

Requests are JSON, one per line: what to train, or {"wait": pid}. Forking is safe because the process never uses a
second thread. Started by `crash.training_process` as a warm fork with `python -c`: a `__main__` without a file is not
imported again by the fork server of `vectorization: async`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from townlet.config import user_code
from townlet.errors import EXIT_INTERRUPTED, TownletError
from townlet.interfaces.vec_env import Discrete
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.evaluation import RandomPolicy
from townlet.tasks.experiment import load_experiment
from townlet.tasks.town_evaluation import evaluate_town
from townlet.train import logger
from townlet.train.checkpointer import Checkpointer
from townlet.train.session import TrainingOutcome, resume, start
from townlet.train.training import build_training

MAX_SECONDS = 240


def watch_commits(request: dict[str, Any]) -> list[str]:
    """Die or stall at the n-th pass of a commit point; returns the points passed so far.

    Those of policy snapshots begin with "snapshot", as in "snapshot committed".
    """
    passed: list[str] = []
    saving_snapshot = False
    save_snapshot = Checkpointer.save_snapshot

    def at(point: str) -> None:
        point = f"snapshot {point}" if saving_snapshot else point
        passed.append(point)
        if [point, passed.count(point)] == request.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if [point, passed.count(point)] == request.get("stall"):
            print("stalled", flush=True)
            time.sleep(120)

    def watched_snapshot(self: Checkpointer, score: float | None = None) -> None:
        nonlocal saving_snapshot
        saving_snapshot = True
        save_snapshot(self, score)
        saving_snapshot = False

    checkpoint.on_point = at
    Checkpointer.save_snapshot = watched_snapshot  # type: ignore[method-assign]
    return passed


def kill_between_checkpoints(commits: int, steps: int, passed: list[str]) -> None:
    """SIGKILL this process after this many checkpoints and this many vector steps since the last of them."""
    seen, since = 0, 0

    on_step = logger.MetricsLogger.on_step

    def stepped(self: logger.MetricsLogger, actions: torch.Tensor) -> None:
        nonlocal seen, since
        on_step(self, actions)
        done = passed.count("committed")
        seen, since = done, since + 1 if done == seen else 1
        if done >= commits and since >= steps:
            os.kill(os.getpid(), signal.SIGKILL)

    logger.MetricsLogger.on_step = stepped  # type: ignore[method-assign]


def train(request: dict[str, Any]) -> TrainingOutcome:
    if request.get("run"):
        return resume(Run(Path(request["run"])), request["words"], pause_at=request["pause_at"])
    return start(
        load_experiment(request["recipe"], request["words"]), Path(request["root"]), pause_at=request["pause_at"]
    )


def child(request: dict[str, Any]) -> int:
    """Handle a request as the command line would; returns the exit code. An alarm ends it if the test fails."""
    signal.alarm(MAX_SECONDS)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    passed = watch_commits(request)
    if "killed_after" in request:
        commits, steps = request["killed_after"]
        kill_between_checkpoints(commits, steps, passed)
    logger.FLUSH_SECONDS = request.get("flush_seconds", logger.FLUSH_SECONDS)  # type: ignore[misc]
    user_code.permit()
    try:
        outcome = train(request)
    except TownletError as error:
        print(error, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print(f"commits {passed.count('begun')}\n{outcome.ending.why}", flush=True)
    return EXIT_INTERRUPTED if outcome.ending.why == "interrupted" else 0


def warm_up() -> None:
    """Import and compile what every child needs."""
    loaded = load_experiment("town:dqn", ["rows=2", "threads=1", "agent.replay=5000"])
    build_training(loaded).env.close()
    evaluate_town(
        RandomPolicy(Discrete(loaded.worlds.evaluation.actions), torch.Generator()), loaded.worlds.evaluation, 1, 0
    )
    build_training(load_experiment("CartPole-v1:ppo", ["rows=2", "threads=1"])).env.close()
    import_module("townlet.runs.report")


def main() -> None:
    torch.set_num_threads(1)
    warm_up()
    gc.freeze()  # garbage collections in children would otherwise copy every page of this process
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            try:
                os._exit(child(request))
            finally:
                os._exit(99)
        print(pid, flush=True)
