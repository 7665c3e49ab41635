"""A process that has everything imported and forks one child for each order: a training begins in no time.

Orders come as JSON, one in a line: what to train, or {"wait": pid}. Children are clean: the process itself has
never used a second thread. Started by `crash.smith` with `python -c`: a `__main__` without a file is not imported
again by the fork server of vectorization: async.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
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
from townlet.train.session import TrainingOutcome, resume, start
from townlet.train.training import build_training

LONGEST = 240  # seconds


def watch_commits(order: dict[str, Any]) -> list[str]:
    """Die or wait at a point of a commit when it is passed for the n-th time; the points that were passed."""
    passed: list[str] = []

    def at(point: str) -> None:
        passed.append(point)
        if [point, passed.count(point)] == order.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if [point, passed.count(point)] == order.get("stall"):
            print("stalled", flush=True)
            time.sleep(120)

    checkpoint.on_point = at
    return passed


def kill_between_checkpoints(commits: int, steps: int, passed: list[str]) -> None:
    """SIGKILL this process once it has made so many commits, and so many vector steps since the last of them."""
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


def train(order: dict[str, Any]) -> TrainingOutcome:
    if order.get("run"):
        return resume(Run(Path(order["run"])), order["words"], pause_at=order["pause_at"])
    return start(load_experiment(order["recipe"], order["words"]), Path(order["root"]), pause_at=order["pause_at"])


def child(order: dict[str, Any]) -> int:
    """Do what was ordered, as the command line would; the exit code. It never outlives a test that went wrong."""
    signal.alarm(LONGEST)
    for stream, number in (("said", 1), ("said", 2)):
        os.dup2(os.open(order[stream], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    passed = watch_commits(order)
    if "killed_after" in order:
        kill_between_checkpoints(*order["killed_after"], passed)
    logger.FLUSH_SECONDS = order.get("fresh", logger.FLUSH_SECONDS)  # type: ignore[misc]
    user_code.permit()
    try:
        outcome = train(order)
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


def main() -> None:
    torch.set_num_threads(1)
    warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            try:
                os._exit(child(order))
            finally:
                os._exit(99)
        print(pid, flush=True)
