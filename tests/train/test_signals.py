"""Signals during training: the first requests a stop, a later one interrupts, and handlers are restored."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from metrics_digest import content_digest
from townlet.runs.metrics_store import MetricsStore
from townlet.runs.serialization import flatten
from townlet.tasks.town_evaluation import evaluate_town
from townlet.train.checkpointer import Checkpointer
from townlet.train.loop import train_loop
from townlet.train.stop_conditions import STOP_SIGNALS, SignalHandler, StopConditions
from townlet.train.training import Training
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
class FakeCheckpointer(Checkpointer):
    """A checkpointer that saves nothing and records the calls."""

    t: Training
    saved_at: list[int] = field(default_factory=list)

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        self.saved_at.append(self.t.counters.env_steps)


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
    """A training loop without saving that can be continued."""

    def __init__(self, store: MetricsStore, every: int = 10**6) -> None:
        self.loaded, self.store = tiny("town:ppo", *LONG), store
        self.t, self.logger = build_with_logger(self.loaded, self.store)
        self.checkpointer, self.every, self.evaluation_pending = FakeCheckpointer(self.t), every, False

    def run(self, stop_requested: Callable[[], bool] = lambda: False, pause_at: int | None = None) -> str:
        """Train until a stop, and return its reason."""
        conditions = StopConditions(
            self.loaded.recipe, self.every, pause_at, stop_requested, evaluation_pending=self.evaluation_pending
        )
        world, policy = self.loaded.worlds.evaluation, self.t.agent.policy
        ending = train_loop(
            self.t,
            conditions,
            self.logger,
            self.checkpointer,
            lambda: evaluate_town(policy(), world, 3, 0, check_interrupt=conditions.check_interrupt),
        )
        self.evaluation_pending = conditions.evaluation_pending
        return ending.why

    def all(self) -> tuple[dict[str, Any], str]:
        """The complete state, and a digest of the metrics."""
        self.store.flush()
        leaves = flatten({"training": self.t.state(), "logger": self.logger.state()})
        return {
            name: leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in leaves.items()
        }, content_digest(self.store)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[MetricsStore, MetricsStore]]:
    with MetricsStore(tmp_path / "one.db") as one, MetricsStore(tmp_path / "two.db") as two:
        yield one, two


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
def test_interrupted_rollout_is_undone(patience: int, rollouts: int, stores: tuple[MetricsStore, MetricsStore]) -> None:
    one, uninterrupted, stop_requested = ResumableLoop(stores[0]), ResumableLoop(stores[1]), StopAfter(patience)
    assert one.run(stop_requested) == "interrupted"
    assert stop_requested.times == patience + 2  # it stopped at once; the loop checks once more for the reason
    assert one.checkpointer.saved_at == [rollouts * ROLLOUT]
    uninterrupted.run(pause_at=rollouts * ROLLOUT)
    assert one.all() == uninterrupted.all()
    for loop in (one, uninterrupted):  # then both continue identically
        loop.run(pause_at=3 * ROLLOUT)
    assert one.all() == uninterrupted.all()
    assert one.store.read("stage_changes", ["row"])["row"]


def test_interrupted_evaluation_is_repeated_once(stores: tuple[MetricsStore, MetricsStore]) -> None:
    one, uninterrupted = (ResumableLoop(store, every=ROLLOUT) for store in stores)
    assert one.run(StopAfter(COLLECT + LEARN + 10)) == "interrupted"
    assert one.evaluation_pending
    assert one.checkpointer.saved_at == [ROLLOUT]
    assert one.store.read("evaluations", ["policy"])["policy"] == []
    for loop in (one, uninterrupted):
        loop.run(pause_at=2 * ROLLOUT)
    assert one.all() == uninterrupted.all()
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROLLOUT, 2 * ROLLOUT]


def test_interrupted_final_evaluation_is_repeated(stores: tuple[MetricsStore, MetricsStore]) -> None:
    one = ResumableLoop(stores[0])
    one.loaded = tiny("town:ppo", *LONG, f"budget={{env_steps: {ROLLOUT}}}")
    assert one.run(StopAfter(COLLECT + LEARN + 10)) == "interrupted"
    assert one.run() == "all steps of the budget are spent"
    assert one.t.counters.env_steps == ROLLOUT
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROLLOUT]


def test_rollout_without_undo_is_completed(
    stores: tuple[MetricsStore, MetricsStore],
) -> None:
    """A replay buffer is too large to be copied before every rollout; such rollouts are short."""
    loaded = tiny("town:dqn", "agent.update_every=50")
    t, logger = build_with_logger(loaded, stores[0])
    conditions = StopConditions(loaded.recipe, 10**6, None, StopAfter(1))
    ending = train_loop(
        t,
        conditions,
        logger,
        FakeCheckpointer(t),
        lambda: evaluate_town(t.agent.policy(), loaded.worlds.evaluation, 1, 0),
    )
    assert (ending.why, t.counters.env_steps) == ("interrupted", 200)


def test_saved_step_is_not_saved_again(stores: tuple[MetricsStore, MetricsStore]) -> None:
    """Otherwise its score would be lost."""
    one = ResumableLoop(stores[0], every=ROLLOUT)
    assert one.run(StopAfter(COLLECT + LEARN + 50 + COLLECT // 2)) == "interrupted"
    assert one.checkpointer.saved_at == [ROLLOUT]  # as the best so far; the second rollout was undone
