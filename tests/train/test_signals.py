"""The first signal asks, what comes after all is saved interrupts, and Python has its own back at the end."""

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
from townlet.train.loop import train_loop
from townlet.train.stop_conditions import STOP_SIGNALS, SignalHandler, StopConditions
from townlet.train.training import Training
from train.tiny import STAGES, begun, tiny


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_first_signal_only_requests_a_stop(number: int) -> None:
    before = signal.getsignal(number)
    with SignalHandler() as signals:
        assert not signals.requested
        os.kill(os.getpid(), number)
        assert signals.requested
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_interrupts_after_saving(number: int) -> None:
    with SignalHandler() as signals:
        signals.urgent = True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_other_threads_install_no_signal_handlers() -> None:
    """Python allows it only in the first thread; training in another one works all the same."""
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
class Kept:
    """A keeper that only notes when it was asked to save."""

    t: Training
    moments: list[int] = field(default_factory=list)

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        self.moments.append(self.t.counters.env_steps)


@dataclass
class Asked:
    """Requests a stop from the n-th call on."""

    patience: int
    times: int = 0

    def __call__(self) -> bool:
        self.times += 1
        return self.times > self.patience


# A round is 128 steps of four rows, each asked about, as are its four minibatches. The first lives end in its midst.
LONG = ("agent.n_steps=128", STAGES, "change.rewards=[milestone, potential]", "budget={env_steps: 1e6}")
COLLECT, LEARN, ROUND = 128, 4, 512


class Lived:
    """A loop with real parts, but nothing saved, that can be gone on with."""

    def __init__(self, store: MetricsStore, every: int = 10**6) -> None:
        self.loaded, self.store = tiny("town:ppo", *LONG), store
        self.t, self.journal = begun(self.loaded, self.store)
        self.keeper, self.every, self.evaluation_pending = Kept(self.t), every, False

    def go_on(self, asked: Callable[[], bool] = lambda: False, pause_at: int | None = None) -> str:
        """Why it stopped."""
        limits = StopConditions(
            self.loaded.recipe, self.every, pause_at, asked, evaluation_pending=self.evaluation_pending
        )
        there, policy = self.loaded.worlds.evaluation, self.t.agent.policy
        ending = train_loop(
            self.t,
            limits,
            self.journal,
            self.keeper,
            lambda: evaluate_town(policy(), there, 3, 0, check_interrupt=limits.check_interrupt),
        )
        self.evaluation_pending = limits.evaluation_pending
        return ending.why

    def all(self) -> tuple[dict[str, Any], str]:
        """Everything that it is, and everything that it said."""
        self.store.flush()
        leaves = flatten({"training": self.t.state(), "logger": self.journal.state()})
        return {
            name: leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in leaves.items()
        }, content_digest(self.store)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[MetricsStore, MetricsStore]]:
    with MetricsStore(tmp_path / "one.db") as one, MetricsStore(tmp_path / "two.db") as two:
        yield one, two


@pytest.mark.parametrize(
    ("patience", "rounds"),
    [(20, 0), (COLLECT - 3, 0), (COLLECT + 3, 0), (COLLECT + LEARN + 90, 1), (2 * COLLECT + LEARN + 3, 1)],
    ids=["acting", "acting, after changes of stage", "learning", "acting again", "learning again"],
)
def test_interrupted_rollout_is_undone(patience: int, rounds: int, stores: tuple[MetricsStore, MetricsStore]) -> None:
    one, never, asked = Lived(stores[0]), Lived(stores[1]), Asked(patience)
    assert one.go_on(asked) == "interrupted"
    assert asked.times == patience + 2  # it stopped at once; the loop asks once more why
    assert one.keeper.moments == [rounds * ROUND]
    never.go_on(pause_at=rounds * ROUND)
    assert one.all() == never.all()
    for lived in (one, never):  # and goes on as if nothing had been
        lived.go_on(pause_at=3 * ROUND)
    assert one.all() == never.all()
    assert one.store.read("stage_changes", ["row"])["row"]


def test_interrupted_evaluation_is_repeated_once(stores: tuple[MetricsStore, MetricsStore]) -> None:
    one, never = (Lived(store, every=ROUND) for store in stores)
    assert one.go_on(Asked(COLLECT + LEARN + 10)) == "interrupted"
    assert one.evaluation_pending
    assert one.keeper.moments == [ROUND]
    assert one.store.read("evaluations", ["policy"])["policy"] == []
    for lived in (one, never):
        lived.go_on(pause_at=2 * ROUND)
    assert one.all() == never.all()
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROUND, 2 * ROUND]


def test_interrupted_final_evaluation_is_repeated(stores: tuple[MetricsStore, MetricsStore]) -> None:
    one = Lived(stores[0])
    one.loaded = tiny("town:ppo", *LONG, f"budget={{env_steps: {ROUND}}}")
    assert one.go_on(Asked(COLLECT + LEARN + 10)) == "interrupted"
    assert one.go_on() == "all steps of the budget are spent"
    assert one.t.counters.env_steps == ROUND
    assert one.store.read("evaluations", ["env_steps"])["env_steps"] == [ROUND]


def test_rollout_without_undo_is_completed(
    stores: tuple[MetricsStore, MetricsStore],
) -> None:
    """A replay memory is too large to be copied before every round; such rounds are short."""
    loaded = tiny("town:dqn", "agent.update_every=50")
    t, journal = begun(loaded, stores[0])
    limits = StopConditions(loaded.recipe, 10**6, None, Asked(1))
    ending = train_loop(
        t, limits, journal, Kept(t), lambda: evaluate_town(t.agent.policy(), loaded.worlds.evaluation, 1, 0)
    )
    assert (ending.why, t.counters.env_steps) == ("interrupted", 200)


def test_saved_step_is_not_saved_again(stores: tuple[MetricsStore, MetricsStore]) -> None:
    """Else the score that went with it would be lost."""
    one = Lived(stores[0], every=ROUND)
    assert one.go_on(Asked(COLLECT + LEARN + 50 + COLLECT // 2)) == "interrupted"
    assert one.keeper.moments == [ROUND]  # as the best so far; then the second round was taken back to it
