"""Signals during training: the first requests a stop, a later one interrupts, and handlers are restored."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from metrics_digest import content_digest
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore
from townlet.runs.serialization import flatten
from townlet.tasks.town_evaluation import evaluate_town
from townlet.train.checkpointer import Checkpointer
from townlet.train.loop import train_loop
from townlet.train.stop_conditions import STOP_SIGNALS, SignalHandler, StopConditions
from train.tiny import STAGES, build_with_logger, tiny


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_first_signal_only_requests_a_stop(number: int) -> None:
    before = signal.getsignal(number)
    with SignalHandler() as signals:
        requested_before = signals.requested
        os.kill(os.getpid(), number)
        assert (requested_before, signals.requested) == (False, True)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_interrupts_after_saving(number: int) -> None:
    with SignalHandler() as signals:
        signals.urgent = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_other_threads_install_no_signal_handlers() -> None:
    """Python allows handlers only in the main thread; training in another one must still work."""
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def train() -> None:
        with SignalHandler() as signals:
            seen.append((signals.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


@dataclass
class StopAfter:
    """Requests a stop after `patience` calls."""

    patience: int
    times: int = 0

    def __call__(self) -> bool:
        self.times += 1
        return self.times > self.patience


# A rollout has 128 steps of four rows. Interrupts are checked at every step and every one of its four minibatches; the
# first episodes end within the rollout.
LONG = ("agent.n_steps=128", STAGES, "change.rewards=[milestone, potential]", "budget={env_steps: 1e6}")
COLLECT, LEARN, ROLLOUT = 128, 4, 512


class ResumableLoop:
    """The training loop of a run on disk; after a stop it can be continued."""

    def __init__(self, root: Path, *words: str, recipe: str = "town:ppo", every: int = 10**6) -> None:
        self.loaded, self.every = tiny(recipe, *words), every
        self.folder = Run.create(root, "town", "test", "", "", {})
        self.lock, self.store = Lock(self.folder.path), MetricsStore(self.folder.metrics_file)
        self.lock.acquire()
        self.t, self.logger = build_with_logger(self.loaded, self.store)
        self.evaluation_pending = False

    def run(self, stop_requested: Callable[[], bool] = lambda: False, pause_at: int | None = None) -> str:
        """Train until a stop, and return its reason."""
        stop = StopConditions(
            self.loaded.recipe, self.every, pause_at, stop_requested, evaluation_pending=self.evaluation_pending
        )
        checkpointer = Checkpointer(self.folder, self.lock, self.t, self.logger, self.store, stop, {})
        world, policy = self.loaded.worlds.evaluation, self.t.agent.policy
        ending = train_loop(
            self.t,
            stop,
            self.logger,
            checkpointer,
            lambda: evaluate_town(policy(), world, 3, 0, check_interrupt=stop.check_interrupt),
        )
        self.evaluation_pending = stop.evaluation_pending
        return ending.why

    def all(self) -> tuple[dict[str, Any], str]:
        """The complete state, and a digest of the metrics."""
        self.store.flush()
        leaves = flatten({"training": self.t.state(), "logger": self.logger.state()})
        return {
            name: leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in leaves.items()
        }, content_digest(self.store)

    def close(self) -> None:
        self.store.close()
        self.lock.release()


def names(folder: Path) -> list[str]:
    """The names of the checkpoints in a folder; a step that was saved again has a serial number in its name."""
    return [path.name for path in checkpoint.paths(folder)]


@pytest.fixture
def make_loop(tmp_path: Path) -> Iterator[Callable[..., ResumableLoop]]:
    with ExitStack() as stack:
        yield lambda *words, **options: stack.enter_context(closing(ResumableLoop(tmp_path, *words, **options)))


@pytest.mark.parametrize(
    ("patience", "rollouts"),
    [
        pytest.param(20, 0, id="acting", marks=pytest.mark.long),
        pytest.param(COLLECT - 3, 0, id="acting, after changes of stage"),
        pytest.param(COLLECT + 3, 0, id="learning", marks=pytest.mark.long),
        pytest.param(COLLECT + LEARN + 90, 1, id="acting again", marks=pytest.mark.long),
        pytest.param(2 * COLLECT + LEARN + 3, 1, id="learning again"),
    ],
)
def test_interrupted_rollout_is_undone(patience: int, rollouts: int, make_loop: Callable[..., ResumableLoop]) -> None:
    one, uninterrupted, stop_requested = make_loop(*LONG), make_loop(*LONG), StopAfter(patience)
    assert one.run(stop_requested) == "interrupted"
    assert stop_requested.times == patience + 2  # it stopped at once; the loop checks once more for the reason
    assert names(one.folder.checkpoints) == [checkpoint.folder_name(rollouts * ROLLOUT)]
    uninterrupted.run(pause_at=rollouts * ROLLOUT)
    assert one.all() == uninterrupted.all()
    for loop in (one, uninterrupted):  # then both continue identically
        loop.run(pause_at=3 * ROLLOUT)
    assert one.all() == uninterrupted.all()
    assert one.store.read("stage_changes", ["row"])["row"]


def test_interrupted_evaluation_is_repeated_once(make_loop: Callable[..., ResumableLoop]) -> None:
    one, uninterrupted = (make_loop(*LONG, every=ROLLOUT) for _ in range(2))
    assert one.run(StopAfter(COLLECT + LEARN + 10)) == "interrupted"
    assert one.evaluation_pending
    assert names(one.folder.checkpoints) == [checkpoint.folder_name(ROLLOUT)]
    assert one.store.read("evaluations", ["policy"])["policy"] == []
    for loop in (one, uninterrupted):
        loop.run(pause_at=2 * ROLLOUT)
    assert one.all() == uninterrupted.all()
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROLLOUT, 2 * ROLLOUT]


def test_interrupted_final_evaluation_is_repeated(make_loop: Callable[..., ResumableLoop]) -> None:
    one = make_loop(*LONG, f"budget={{env_steps: {ROLLOUT}}}")
    assert one.run(StopAfter(COLLECT + LEARN + 10)) == "interrupted"
    assert names(one.folder.snapshots) == []  # its score is not known yet
    assert one.run() == "all steps of the budget are spent"
    assert one.t.counters.env_steps == ROLLOUT
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROLLOUT]
    (snapshot,) = checkpoint.scan(one.folder.snapshots)[0]
    assert (snapshot.env_steps, snapshot.info["score"]) == (ROLLOUT, one.store.read("evaluations")["score"][0])


def test_rollout_without_undo_is_completed(make_loop: Callable[..., ResumableLoop]) -> None:
    """A replay buffer is too large to be copied before every rollout; such rollouts are short."""
    one = make_loop("agent.update_every=50", recipe="town:dqn")
    assert (one.run(StopAfter(1)), one.t.counters.env_steps) == ("interrupted", 200)


def test_saved_step_is_not_saved_again(make_loop: Callable[..., ResumableLoop]) -> None:
    """Otherwise its score would be lost."""
    one = make_loop(*LONG, every=ROLLOUT)
    assert one.run(StopAfter(COLLECT + LEARN + 50 + COLLECT // 2)) == "interrupted"
    (saved,) = checkpoint.scan(one.folder.checkpoints)[0]  # as the best so far; the second rollout was undone
    assert saved.name == checkpoint.folder_name(ROLLOUT)
    assert saved.info["score"] is not None
