"""What a run says of itself, against a recount of everything that happened."""

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
from train.tiny import STAGES, RecordingSink, begun, tiny


class Recount(NullListener):
    """Stands before a journal and remembers all episodes one by one."""

    def __init__(self, t: Training, journal: MetricsLogger) -> None:
        self.t, self.journal, self.lives = t, journal, list[dict[str, Any]]()
        self.changes: list[StageChange] = []

    def on_step(self, actions: Tensor) -> None:
        self.journal.on_step(actions)

    def on_episodes(self, over: Episodes, ended: FinalObs) -> None:
        t, town = self.t, cast(Town, self.t.env)
        for k in range(len(over)):
            row = int(over.rows[k])
            life: dict[str, Any] = {
                "env_steps": t.counters.env_steps,
                "row": row,
                "length": int(over.length[k]),
                "return": float(over.reward[k]),
                "cause": town.cause_names[int(town.causes(ended)[k])],
                "stage": int(t.curriculum.stage[row]) if t.curriculum else 0,
                "meters": town.final_meters(ended)[k].tolist(),
            }
            self.lives.append(life)
        self.journal.on_episodes(over, ended)

    def on_stage_changes(self, changes: list[StageChange]) -> None:
        self.changes += changes
        self.journal.on_stage_changes(changes)


def live(t: Training, journal: MetricsLogger, until: int) -> Recount:
    """Collect and learn until a moment, with every episode counted."""
    recount = Recount(t, journal)
    while t.counters.env_steps < until:
        collect(t, t.agent.update_interval, recount)
        journal.on_update(t.agent.learn() or {})
        journal.on_rollout_end()
    return recount


def test_intervals_equal_a_recount_of_all_episodes(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES, "metrics.whole_episodes=2", "change.max_steps=25")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(loaded, store)
        recount = live(t, journal, 1000)
        spans = store.read("episode_intervals")
        assert [(s, e) for s, e in zip(spans["start"], spans["env_steps"], strict=True)][:2] == [(0, 100), (100, 200)]
        assert sum(spans["count"]) == len([life for life in recount.lives if life["env_steps"] <= 1000])
        for k, (start, end) in enumerate(zip(spans["start"], spans["env_steps"], strict=True)):
            lives = [life for life in recount.lives if start < life["env_steps"] <= end]
            for name in ("length", "return"):
                values = [life[name] for life in lives]
                figures = [np.mean(values), min(values), max(values), *np.quantile(values, [0.1, 0.5, 0.9])]
                found = [spans[f"{name}_{what}"][k] for what in ("mean", "min", "max", "p10", "p50", "p90")]
                assert found == pytest.approx(figures, rel=1e-6)
            assert spans["count"][k] == len(lives)
            assert spans["causes"][k] == Counter(life["cause"] for life in lives)
            assert spans["stages"][k] == Counter(str(life["stage"]) for life in lives)
            means = np.mean([life["meters"] for life in lives], axis=0)
            assert list(spans["meters"][k].values()) == pytest.approx(means, abs=1e-4)
        whole = store.read("episodes")
        kept = Counter(end for end in whole["env_steps"])
        assert max(Counter(-(-moment // 100) for moment in whole["env_steps"]).values()) <= 2
        assert sum(kept.values()) < len(recount.lives)
        reported = {(life["env_steps"], life["row"]): life for life in recount.lives}
        for k, moment in enumerate(whole["env_steps"]):
            life = reported[moment, whole["row"][k]]
            assert (whole["length"][k], whole["cause"][k], whole["stage"][k]) == (
                life["length"],
                life["cause"],
                life["stage"],
            )
            assert whole["start"][k] == moment - 4 * life["length"]
        assert recount.changes
        written = store.read("stage_changes")
        assert written["reason"] == [change.reason for change in recount.changes]
        assert written["row"] == [change.row for change in recount.changes]


def test_metrics_of_an_interval_are_means_over_its_updates(tmp_path: Path) -> None:
    heard = RecordingSink()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(tiny(), store, heard)
        for value in (1.0, 2.0, 6.0):
            journal.on_update({"loss": value})
        t.counters.env_steps = 100
        journal.on_rollout_end()
        journal.on_update({"loss": 5.0})
        t.counters.env_steps = 199
        journal.on_rollout_end()
        assert store.series("loss") == ([100], [3.0])
        t.counters.env_steps = 200
        journal.on_rollout_end()
        assert store.series("loss") == ([100, 200], [3.0, 5.0])
        journal.finish()  # nothing happened since
        assert store.series("steps_per_second")[0] == [100, 200]
    assert [mark.metrics["loss"] for mark in heard.marks] == [3.0, 5.0]
    assert heard.ticks == 3


def test_visits_and_mean_meters_are_stored(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(tiny(), store)
        live(t, journal, 400)
        visits = store.totals("cell_visits", ["cell"])
        assert sum(visits.values()) == 400
        energy = store.series("meter_energy")[1]
        assert len(energy) == 4
        assert all(0 < value <= 1 for value in energy)


def test_interval_continues_in_a_restored_logger(tmp_path: Path) -> None:
    loaded = tiny("town:dqn", STAGES)
    with MetricsStore(tmp_path / "a.db") as one, MetricsStore(tmp_path / "b.db") as two:
        t, journal = begun(loaded, one)
        u, other = begun(loaded, two)
        live(t, journal, 148)
        live(u, other, 148)
        again = MetricsLogger(u, 100, 20, two, ())
        again.restore(other.state())
        live(t, journal, 500)
        live(u, again, 500)
        assert content_digest(one) == content_digest(two)
        assert one.series("loss")[1]


def test_pending_episodes_written_after_a_checkpoint_are_rewound(tmp_path: Path) -> None:
    """They wait in the checkpoint for the next mark; in the store they would be there twice."""
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(tiny("town:dqn", "change.max_steps=12"), store)
        live(t, journal, 148)
        position, before = store.sync(), content_digest(store)
        live(t, journal, 200)
        assert min(store.read("episodes", ["env_steps"])["env_steps"][position.rows["episodes"] :]) <= 148
        store.rewind(148, position)
        assert content_digest(store) == before


def test_alerts_are_stored_and_reported(tmp_path: Path) -> None:
    heard = RecordingSink()
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(tiny(), store, heard)
        t.counters.env_steps = 12
        journal.alert("loss", "it grows", 1e9)
        found = store.read("alerts", ["env_steps", "name", "message", "value"])
    assert found == {"env_steps": [12], "name": ["loss"], "message": ["it grows"], "value": [1e9]}
    assert heard.notes == ["loss: it grows"]


def test_only_a_sample_of_many_episodes_is_stored(tmp_path: Path) -> None:
    """Storage never bounds training: of thousands of episodes in an interval only a sample is written whole."""
    loaded = tiny("town:dqn", "rows=2048", "change.max_steps=2", "agent.replay=8192", "metrics.every=1e5")
    with MetricsStore(tmp_path / "metrics.db") as store:
        t, journal = begun(loaded, store)
        collect(t, 60, journal)
        with within(2, time.monotonic):
            journal.end_interval()
        assert store.read("episode_intervals", ["count"])["count"] == [2048 * 30]
        assert len(store.read("episodes", ["row"])["row"]) == loaded.recipe.metrics.whole_episodes
