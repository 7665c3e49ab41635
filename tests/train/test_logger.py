"""Metrics of a run, compared with a recount of all episodes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from torch import Tensor

from metrics_digest import content_digest
from time_limit import within
from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs.metrics_store import MetricsStore
from townlet.town.env import Town
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.logger import MetricsLogger
from townlet.train.training import Training
from train.tiny import STAGES, RecordingSink, build_with_logger, tiny


class Recount(NullListener):
    """Passes everything on to a logger and stores all episodes one by one."""

    def __init__(self, t: Training, logger: MetricsLogger) -> None:
        self.t, self.logger, self.episodes = t, logger, list[dict[str, Any]]()
        self.changes: list[StageChange] = []

    def on_step(self, actions: Tensor) -> None:
        self.logger.on_step(actions)

    def on_episodes(self, over: Episodes, ended: FinalObs) -> None:
        t, town = self.t, cast(Town, self.t.env)
        for k in range(len(over)):
            row = int(over.rows[k])
            episode: dict[str, Any] = {
                "env_steps": t.counters.env_steps,
                "row": row,
                "length": int(over.length[k]),
                "return": float(over.reward[k]),
                "cause": town.cause_names[int(town.causes(ended)[k])],
                "stage": int(t.curriculum.stage[row]) if t.curriculum else 0,
                "meters": town.final_meters(ended)[k].tolist(),
            }
            self.episodes.append(episode)
        self.logger.on_episodes(over, ended)

    def on_stage_changes(self, changes: list[StageChange]) -> None:
        self.changes += changes
        self.logger.on_stage_changes(changes)


def train_until(t: Training, logger: MetricsLogger, until: int) -> Recount:
    """Collect and learn for `until` env_steps, with every episode counted."""
    recount = Recount(t, logger)
    while t.counters.env_steps < until:
        collect(t, t.agent.update_interval, recount)
        logger.on_update(t.agent.learn() or {})
        logger.on_rollout_end()
    return recount


def test_intervals_equal_a_recount_of_all_episodes(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES, "metrics.whole_episodes=2", "change.max_steps=25")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        recount = train_until(t, logger, 1000)
        spans = store.read("episode_intervals")
        assert [(s, e) for s, e in zip(spans["start"], spans["env_steps"], strict=True)][:2] == [(0, 100), (100, 200)]
        assert sum(spans["count"]) == len([episode for episode in recount.episodes if episode["env_steps"] <= 1000])
        for k, (start, end) in enumerate(zip(spans["start"], spans["env_steps"], strict=True)):
            episodes = [episode for episode in recount.episodes if start < episode["env_steps"] <= end]
            for name in ("length", "return"):
                values = [episode[name] for episode in episodes]
                figures = [np.mean(values), min(values), max(values), *np.quantile(values, [0.1, 0.5, 0.9])]
                found = [spans[f"{name}_{what}"][k] for what in ("mean", "min", "max", "p10", "p50", "p90")]
                assert found == pytest.approx(figures, rel=1e-6)
            assert spans["count"][k] == len(episodes)
            assert spans["causes"][k] == Counter(episode["cause"] for episode in episodes)
            assert spans["stages"][k] == Counter(str(episode["stage"]) for episode in episodes)
            means = np.mean([episode["meters"] for episode in episodes], axis=0)
            assert list(spans["meters"][k].values()) == pytest.approx(means, abs=1e-4)
        whole = store.read("episodes")
        kept = Counter(end for end in whole["env_steps"])
        assert max(Counter(-(-moment // 100) for moment in whole["env_steps"]).values()) <= 2
        assert sum(kept.values()) < len(recount.episodes)
        reported = {(episode["env_steps"], episode["row"]): episode for episode in recount.episodes}
        for k, moment in enumerate(whole["env_steps"]):
            episode = reported[moment, whole["row"][k]]
            assert (whole["length"][k], whole["cause"][k], whole["stage"][k]) == (
                episode["length"],
                episode["cause"],
                episode["stage"],
            )
            assert whole["start"][k] == moment - 4 * episode["length"]
        assert recount.changes
        written = store.read("stage_changes")
        assert written["reason"] == [change.reason for change in recount.changes]
        assert written["row"] == [change.row for change in recount.changes]


def test_metrics_of_an_interval_are_means_over_its_updates(tmp_path: Path) -> None:
    sink = RecordingSink()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny(), store, sink)
        for value in (1.0, 2.0, 6.0):
            logger.on_update({"loss": value})
        t.counters.env_steps = 100
        logger.on_rollout_end()
        logger.on_update({"loss": 5.0})
        t.counters.env_steps = 199
        logger.on_rollout_end()
        assert store.series("loss") == ([100], [3.0])
        t.counters.env_steps = 200
        logger.on_rollout_end()
        assert store.series("loss") == ([100, 200], [3.0, 5.0])
        logger.finish()  # nothing happened since
        assert store.series("steps_per_second")[0] == [100, 200]
    assert [interval.metrics["loss"] for interval in sink.intervals] == [3.0, 5.0]
    assert sink.rollouts == 3


def test_visits_of_every_row_are_stored(tmp_path: Path) -> None:
    """Also of rows after the first few hundred."""
    loaded = tiny("town:dqn", "rows=300", "agent.replay=3000", "metrics.every=1500")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        collect(t, 5, logger)
        logger.end_interval()
        assert sum(store.totals("cell_visits", ["cell"]).values()) == t.counters.env_steps == 1500


def test_an_interval_without_recorded_steps_has_no_mean_meters(tmp_path: Path) -> None:
    """A rollout that is one CUDA graph reports no single steps: the meters are unknown, not empty."""
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny(), store)
        t.counters.env_steps = 100
        logger.end_interval()
        assert "steps_per_second" in store.names()
        assert not [name for name in store.names() if name.startswith("meter_")]


def test_visits_and_mean_meters_are_stored(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny(), store)
        train_until(t, logger, 400)
        visits = store.totals("cell_visits", ["cell"])
        assert sum(visits.values()) == 400
        energy = store.series("meter_energy")[1]
        assert len(energy) == 4
        assert all(0 < value <= 1 for value in energy)


def test_interval_continues_in_a_restored_logger(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES)
    with MetricsStore(tmp_path / "a.db") as one, MetricsStore(tmp_path / "b.db") as two:
        t, logger = build_with_logger(loaded, one)
        u, other = build_with_logger(loaded, two)
        train_until(t, logger, 148)
        train_until(u, other, 148)
        again = MetricsLogger(u, 100, 20, two, ())
        again.restore(other.state())
        train_until(t, logger, 500)
        train_until(u, again, 500)
        assert content_digest(one) == content_digest(two)
        assert one.series("loss")[1]


def test_pending_episodes_written_after_a_checkpoint_are_rewound(tmp_path: Path) -> None:
    """The checkpoint contains them until the next interval ends; in the store they would be duplicates."""
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny("town:dqn", "change.max_steps=12"), store)
        train_until(t, logger, 148)
        position, before = store.sync(), content_digest(store)
        train_until(t, logger, 200)
        assert min(store.read("episodes", ["env_steps"])["env_steps"][position.rows["episodes"] :]) <= 148
        store.rewind(148, position)
        assert content_digest(store) == before


def test_alerts_are_stored_and_reported(tmp_path: Path) -> None:
    sink = RecordingSink()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(tiny(), store, sink)
        t.counters.env_steps = 12
        logger.alert("loss", "it grows", 1e9)
        found = store.read("alerts", ["env_steps", "name", "message", "value"])
    assert found == {"env_steps": [12], "name": ["loss"], "message": ["it grows"], "value": [1e9]}
    assert sink.messages == ["loss: it grows"]


def test_only_a_sample_of_many_episodes_is_stored(tmp_path: Path) -> None:
    """Storage must not slow down training: of thousands of episodes in an interval only a sample is written."""
    loaded = tiny("town:dqn", "rows=2048", "change.max_steps=2", "agent.replay=8192", "metrics.every=1e5")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, logger = build_with_logger(loaded, store)
        collect(t, 60, logger)
        with within(2, time.monotonic):
            logger.end_interval()
        assert store.read("episode_intervals", ["count"])["count"] == [2048 * 30]
        assert len(store.read("episodes", ["row"])["row"]) == loaded.recipe.metrics.whole_episodes
