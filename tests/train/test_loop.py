"""When a run ends, pauses, evaluates and saves, and how exploration and curriculum progress in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from townlet.curriculum.curriculum import AdaptiveCurriculum, StageChange
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import EvaluationResult
from townlet.tasks.experiment import LoadedExperiment
from townlet.tasks.town_evaluation import evaluate_town
from townlet.town.env import Town
from townlet.train.checkpointer import Checkpointer
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.logger import MetricsLogger
from townlet.train.loop import LoopResult, train_loop
from townlet.train.stop_conditions import StopConditions
from townlet.train.training import Training
from train.tiny import STAGES, RecordingSink, build_with_logger, tiny


@dataclass
class FakeCheckpointer(Checkpointer):
    """A checkpointer that saves nothing and records the calls."""

    t: Training
    saved: list[tuple[int, float | None, str | None]] = field(default_factory=list)

    def save(self, score: float | None = None, ended: str | None = None) -> None:
        self.saved.append((self.t.counters.env_steps, score, ended))

    def save_snapshot(self, score: float | None = None) -> None:
        """Nothing is saved."""


@dataclass
class LoopRun:
    t: Training
    ending: LoopResult
    saved: list[tuple[int, float | None, str | None]]
    sink: RecordingSink


def run_loop(
    loaded: LoadedExperiment,
    folder: Path,
    stop_requested: Callable[[], bool] = lambda: False,
    pause_at: int | None = None,
) -> LoopRun:
    """Run the training loop without saving."""
    sink, world = RecordingSink(), loaded.worlds.evaluation
    with MetricsStore(folder / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store, sink)
        checkpointer = FakeCheckpointer(t)
        conditions = StopConditions(
            loaded.recipe, loaded.recipe.to_env_steps(loaded.recipe.evaluation.every), pause_at, stop_requested
        )
        ending = train_loop(t, conditions, logger, checkpointer, lambda: evaluate_town(t.agent.policy(), world, 3, 0))
    return LoopRun(t, ending, checkpointer.saved, sink)


@pytest.mark.parametrize(
    ("budget", "why", "reached"),
    [
        ("{env_steps: 500}", "all steps of the budget are spent", lambda t: t.counters.env_steps == 500),
        (
            "{env_steps: 1e6, episodes: 9}",
            "all episodes of the budget are spent",
            lambda t: 9 <= t.counters.episodes <= 12,
        ),
        ("{env_steps: 1e6, minutes: 1e-4}", "the time of the budget is spent", lambda t: t.counters.env_steps < 1e5),
        (
            "{env_steps: 1e6, threshold: 30}",
            "an evaluation reached the threshold",
            lambda t: t.counters.env_steps == 400,
        ),
    ],
)
def test_run_ends_at_the_first_limit(
    budget: str, why: str, reached: Callable[[Training], bool], tmp_path: Path
) -> None:
    found = run_loop(tiny("town:dqn", f"budget={budget}"), tmp_path)
    assert found.ending.why == why
    assert found.ending.finished
    assert reached(found.t)
    assert found.ending.evaluation is not None
    moment, score, ended = found.saved[-1]
    assert (moment, ended) == (found.t.counters.env_steps, why)
    assert score == found.ending.evaluation.mean_length


def test_intervals_and_evaluations_are_on_schedule(tmp_path: Path) -> None:
    found = run_loop(tiny("town:dqn", "budget={env_steps: 1000}"), tmp_path)
    assert [row["env_steps"] for row in found.sink.evaluations] == [400, 800, 1000]
    assert [interval.env_steps for interval in found.sink.intervals] == list(range(100, 1001, 100))
    assert len({moment for moment, _, _ in found.saved}) == len(found.saved)  # no step is saved twice


@pytest.mark.parametrize("warmup", [0.5, 500])
def test_nothing_is_evaluated_during_warmup(tmp_path: Path, warmup: float) -> None:
    found = run_loop(tiny("town:dqn", "budget={env_steps: 1000}", f"evaluation.warmup={warmup}"), tmp_path)
    assert [row["env_steps"] for row in found.sink.evaluations] == [800, 1000]


def test_last_partial_interval_is_stored(tmp_path: Path) -> None:
    found = run_loop(tiny("town:dqn", "budget={env_steps: 348}", "agent.update_every=1"), tmp_path)
    assert [interval.env_steps for interval in found.sink.intervals] == [100, 200, 300, 348]
    assert all(interval.metrics["meter_energy"] > 0 for interval in found.sink.intervals)


def test_pause_only_saves(tmp_path: Path) -> None:
    found = run_loop(tiny("town:dqn", "agent.update_every=1"), tmp_path, pause_at=348)
    assert (found.ending.why, found.ending.finished, found.ending.evaluation) == ("paused", False, None)
    assert [interval.env_steps for interval in found.sink.intervals] == [100, 200, 300]
    assert found.saved == [(348, None, None)]


def test_stop_request_before_the_first_rollout_ends_the_run(tmp_path: Path) -> None:
    found = run_loop(tiny(), tmp_path, lambda: True)
    assert (found.ending.why, found.t.counters.env_steps) == ("interrupted", 0)


def test_checkpoints_are_saved_at_new_bests_and_by_episodes(tmp_path: Path) -> None:
    found = run_loop(tiny("town:dqn", "checkpoints.every_episodes=8", "budget={env_steps: 2400}"), tmp_path)
    best = -np.inf
    evaluated = {row["env_steps"]: row["score"] for row in found.sink.evaluations}
    saved = {moment: score for moment, score, _ in found.saved}
    for moment, score in evaluated.items():
        if score > best:
            assert saved[moment] == score
            best = score
    assert len(saved) >= found.t.counters.episodes // 12
    assert all(score is None for moment, score in saved.items() if moment not in evaluated)


def test_finished_run_is_only_evaluated(tmp_path: Path) -> None:
    loaded = tiny()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        checkpointer = FakeCheckpointer(t)
        ending = train_loop(
            t,
            StopConditions(loaded.recipe, 400, already_over="it was over"),
            logger,
            checkpointer,
            lambda: measured(loaded, t),
        )
        assert (ending.why, ending.finished, t.counters.env_steps, checkpointer.saved) == ("it was over", True, 0, [])
        assert store.read("evaluations", ["policy"])["policy"] == []


def measured(loaded: LoadedExperiment, t: Training) -> EvaluationResult:
    return evaluate_town(t.agent.policy(), loaded.worlds.evaluation, 1, 0)


def test_epsilon_falls_over_a_run(tmp_path: Path) -> None:
    by_schedule = "explore={action_selection: {name: epsilon, schedule: {start: 1, end: .1, to: .5}}}"
    found = run_loop(tiny("town:dqn", by_schedule, "budget={env_steps: 1200}"), tmp_path)
    reported = [interval.metrics["epsilon"] for interval in found.sink.intervals if "epsilon" in interval.metrics]
    assert reported == sorted(reported, reverse=True)
    assert reported[0] > 0.6
    assert reported[-1] == pytest.approx(0.1)


def test_epsilon_falls_with_the_episodes_of_each_row(tmp_path: Path) -> None:
    by_episode = "explore={action_selection: {name: epsilon, start: 1, end: .2, decay: .5, schedule: null}}"
    found = run_loop(tiny("town:dqn", by_episode, "budget={env_steps: 1000}"), tmp_path)
    reported = [interval.metrics["epsilon"] for interval in found.sink.intervals if "epsilon" in interval.metrics]
    assert reported == sorted(reported, reverse=True)
    assert reported[-1] == pytest.approx(0.2)
    with MetricsStore(tmp_path / "metrics.db") as store:
        assert store.read("episodes", ["epsilon"])["epsilon"][-1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("gates", "falls"),
    [("variance: 1e4, mean: 5", True), ("variance: 1e4, mean: 41", False), ("variance: 1e-9, mean: 5", False)],
)
def test_intrinsic_weight_falls_only_if_episodes_are_long_and_similar(gates: str, falls: bool, tmp_path: Path) -> None:
    """Episodes have at most 40 steps, some fewer: their mean or variance may or may not suffice."""
    bonus = "bonus: {name: rnd, hidden: [8], embedding_size: 4, batch_size: 16}"
    weight = f"weight: {{name: adaptive, start: .5, minimum: .1, factor: .9, episodes: 12, {gates}}}"
    hungry_starts = "starts={fraction: .7, meters: [.02, .4]}"
    found = run_loop(
        tiny("town:dqn", f"explore={{action_selection: epsilon, {bonus}, {weight}}}", hungry_starts), tmp_path
    )
    reported = [
        interval.metrics["intrinsic_weight"]
        for interval in found.sink.intervals
        if "intrinsic_weight" in interval.metrics
    ]
    assert reported[0] == 0.5
    assert (reported[-1] == pytest.approx(0.1)) if falls else (set(reported) == {0.5})


def test_stages_apply_from_the_next_episode(tmp_path: Path) -> None:
    """Rows begin at stage 1; whatever its stage, a row's town has that stage's settings, from the reset on."""
    loaded = tiny("town:dqn-curriculum", STAGES, "budget={env_steps: 8000}", "change.max_steps=60")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        assert t.curriculum is not None
        assert t.curriculum.stage.tolist() == [1] * 4
        seen = set()
        for _ in range(800):
            before = t.curriculum.stage.clone()
            collect(t, 1, logger)
            town = cast(Town, t.env).engine.peek()
            for name, wanted in t.curriculum.settings().items():
                assert torch.equal(torch.as_tensor(np.array(town[name])).to(wanted.dtype), wanted), name
            changed = before != t.curriculum.stage
            assert not town["age"][changed.numpy()].any()  # only between two episodes
            seen |= set(t.curriculum.stage.tolist())
        logger.end_interval()
        reported = store.read("stage_changes")
    assert {1, 2, 3} <= seen
    assert all(reason.startswith(("advance to stage", "retreat to stage")) for reason in reported["reason"])
    row = reported["row"][0]
    steps = [
        (a, b)
        for r, a, b in zip(reported["row"], reported["from_stage"], reported["to_stage"], strict=True)
        if r == row
    ]
    assert steps[0] == (1, 2)
    assert all(abs(a - b) == 1 for a, b in steps)


class RewardSums(NullListener):
    """Sums the reward components of each row and compares them with the reported episodes."""

    def __init__(self, t: Training, logger: MetricsLogger) -> None:
        self.t, self.logger = t, logger
        self.components = np.zeros((t.env.rows, len(t.env.components)))
        self.own: list[float] = []
        self.paid: list[float] = []

    def on_step(self, actions: Tensor) -> None:
        self.components += np.asarray(cast(Town, self.t.env).engine.components)
        self.logger.on_step(actions)

    def on_episodes(self, over: Episodes, ended: FinalObs) -> None:
        rows = over.rows.numpy()
        self.own += self.components[rows, 0].tolist()
        self.paid += self.components[rows].sum(1).tolist()
        assert over.reward.numpy() == pytest.approx(self.components[rows, 0], abs=1e-3)
        self.components[rows] = 0
        self.logger.on_episodes(over, ended)

    def on_stage_changes(self, changes: list[StageChange]) -> None:
        self.logger.on_stage_changes(changes)


def test_returns_and_progress_exclude_the_shaping_reward(tmp_path: Path) -> None:
    """Neither the return of an episode nor the progress of a row includes the shaping reward."""
    slow = "curriculum={name: adaptive, episodes: 3, steps: 1e6}"
    loaded = tiny("town:dqn", slow, "potential=50", "change.max_steps=25", "metrics.whole_episodes=1000")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        assert t.env.components == ("milestone", "potential")
        sums = RewardSums(t, logger)
        collect(t, 100, sums)
        logger.end_interval()
        reported = store.read("episodes", ["return", "extrinsic"])
    assert reported["return"] == pytest.approx(sums.own, abs=1e-3)
    assert reported["extrinsic"] == pytest.approx(sums.paid, abs=1e-3)
    assert max(abs(a - b) for a, b in zip(sums.own, sums.paid, strict=True)) > 1
    assert isinstance(t.curriculum, AdaptiveCurriculum)
    judged = t.curriculum.window[:, :, 1].sum(1)  # the last three of each row
    assert sorted(judged.tolist()) == pytest.approx(
        sorted(sum(sums.own[row - 12 + 4 * k] for k in range(3)) for row in range(4)), abs=1e-3
    )


def test_logger_counts_every_step_of_a_rollout(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny("town:ppo"), store)
        assert isinstance(logger, MetricsLogger)
        collect(t, t.agent.update_interval, logger)
        assert t.counters.env_steps == 64
        assert int(np.sum(logger.state()["env_metrics"]["usage"]["cells"])) == 64
