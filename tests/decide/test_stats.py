"""Statistics, curves and alarms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decide.ads_service import FileService, ask, click, request, run_visits, start_service
from townlet.decide.batcher import Batcher
from townlet.decide.clock import ManualClock
from townlet.decide.metrics import as_prometheus
from townlet.decide.stats import CURVES, MAX_POINTS, POINT_INTERVAL, RecentCurves, ServiceStats
from townlet.decide.storage import VERSIONS
from townlet.decide.storage.file import FileStorage
from townlet.decide.training_thread import TrainingThread
from townlet.runs import checkpoint

COLLAPSED = 3  # the action that a planted version always takes


@contextmanager
def watched(folder: Path, *words: str) -> Iterator[tuple[ServiceStats, FileService, TrainingThread, ManualClock]]:
    """A service with an idle trainer, and its statistics."""
    service, training, clock = start_service(folder, ["learning.interval=3600", *words])
    stats = ServiceStats(service, training)
    training.start()
    yield stats, service, training, clock
    training.stop()
    service.storage.close()


def alarms(stats: ServiceStats) -> list[str]:
    return [alarm["name"] for alarm in stats.as_json()["alarms"]]


def plant(service: FileService, action: int) -> int:
    """Publish a version that always takes the same action."""
    state = {name: tensor.clone() for name, tensor in service.storage.trainer.weights().items()}
    state["score.bias"][action] = 50.0
    return service.versions.publish(service.storage.trainer.step, state, service.storage.trainer.state(), {}).version


def test_stats_add_up_without_alarms(tmp_path: Path) -> None:
    with watched(tmp_path) as (stats, service, training, clock):
        run_visits(service, training, clock, 60)
        shown = stats.as_json()
        assert shown["alarms"] == []
        buffer, decisions = shown["buffer"], shown["decisions"]
        assert buffer["decisions"] == 60 == decisions["recent_count"] == sum(decisions["confidence"])
        parts = ("joined", "expired", "pending", "not_executed")
        assert buffer["decisions"] == sum(buffer[part] for part in parts)
        assert sum(shown["gate"]["reasons"].values()) == 60
        recent = decisions["recent"]
        assert [one["number"] for one in recent] == list(range(11, 61))
        assert sum(one["actual"] is not None for one in recent) > 20
        assert all(one["actual"] is None for one in recent if not one["send"])


def test_collapse_alarm_lasts_until_another_version_serves(tmp_path: Path) -> None:
    with watched(tmp_path) as (stats, service, _, _):
        service.versions.pin(plant(service, COLLAPSED))
        for second in range(60):
            assert ask(service, request(second))[0]["ad"] == COLLAPSED
        (alarm,) = stats.as_json()["alarms"]
        assert (alarm["name"], alarm["critical"]) == ("collapsed", True)
        assert "entropy is 0.000" in alarm["what"]
        assert "Roll back" in alarm["fix"]
        assert 'townlet_decide_alarm{name="collapsed",critical="true"} 1' in as_prometheus(stats.as_json())
        service.versions.set_gate_only(True, "it has collapsed")
        assert alarms(stats) == []  # the network is not used
        service.versions.set_gate_only(False, "it is gone")
        service.versions.unpin()
        service.versions.roll_back("it always says the same")
        for second in range(60, 80):
            ask(service, request(second))
        assert alarms(stats) == []


def test_single_repeated_action_raises_a_collapse_alarm(tmp_path: Path) -> None:
    with watched(tmp_path, "explore=false") as (stats, service, _, _):
        for second in range(200):
            assert alarms(stats) == []
            ask(service, request(second))
        (alarm,) = stats.as_json()["alarms"]
        assert "200 of its last 200 decisions are action" in alarm["what"]


def test_missing_pinned_version_raises_an_alarm_until_an_operator_acts(tmp_path: Path) -> None:
    with watched(tmp_path) as (_, service, training, clock):
        run_visits(service, training, clock, 60)
        service.versions.pin(2, "a calm night")
    rmtree(service.storage.folder / VERSIONS / checkpoint.folder_name(2))
    with watched(tmp_path) as (stats, service, training, clock):
        (alarm,) = stats.as_json()["alarms"]
        assert (alarm["name"], alarm["critical"]) == ("pin", True)
        assert alarm["what"] == "The pinned version 2 was damaged at startup: version 4 is pinned instead"
        run_visits(service, training, clock, 40, seed=2)
        assert service.versions.serving is not None
        assert service.versions.serving.version == 4
        service.versions.unpin()
        assert alarms(stats) == []


def test_pin_without_intact_versions_leaves_the_gate_alone(tmp_path: Path) -> None:
    with watched(tmp_path) as (_, service, _, _):
        service.versions.pin(1, "a calm night")
    rmtree(service.storage.folder / VERSIONS / checkpoint.folder_name(1))
    service = FileService(FileStorage(tmp_path, service.domain, service.settings))
    training = TrainingThread(service.storage)
    training.start()
    training.stop()
    stats = ServiceStats(service, training)
    assert (service.versions.serving, service.versions.pinned, service.versions.list_versions()) == (None, 1, [])
    shown = [alarm["what"] for alarm in stats.as_json()["alarms"] if alarm["name"] == "pin"]
    assert shown == ["The pinned version 1 was damaged at startup: the gate decides alone"]
    assert ask(service, request(1.0))[0]["modelVersion"] == 0
    service.versions.unpin()
    training.train_round()
    assert service.versions.serving is not None
    service.storage.close()


def test_missing_outcomes_raise_an_alarm(tmp_path: Path) -> None:
    with watched(tmp_path, "memory.expire_after=20") as (stats, service, _, clock):
        ids = []
        for second in range(24):
            assert alarms(stats) == []
            ids.append(ask(service, request(second))[0]["decisionId"])
            clock.now += 0.4
        clock.now += 1
        assert alarms(stats) == ["silence"]
        service.report(click(ids[-1], clicked=False))
        assert alarms(stats) == []


def test_failing_or_dead_trainer_raises_an_alarm(tmp_path: Path) -> None:
    with watched(tmp_path) as (stats, service, training, clock):
        for weight in service.storage.trainer.weights().values():
            weight.copy_(torch.full_like(weight, torch.nan))
        run_visits(service, training, clock, 40)
        assert training.progress.failed
        training.stop()
        (alarm,) = stats.as_json()["alarms"]
        assert (alarm["name"], alarm["critical"]) == ("training", True)
        assert alarm["what"] == "The thread 'training' has ended" == stats.alarms.problem()
    with watched(tmp_path / "another") as (stats, service, training, clock):
        training.progress.failed, training.progress.problem = 1, "step 7 of the trainer is not finite"
        (alarm,) = stats.as_json()["alarms"]
        assert (alarm["critical"], "is not finite" in alarm["what"]) == (False, True)
        clock.now += 61
        assert alarms(stats) == []


def test_slow_training_steps_raise_an_alarm_that_ends(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["learning.interval=0.000001"])  # the trainer is not running
    stats = ServiceStats(service, training)
    run_visits(service, training, clock, 40)
    shown = stats.as_json()
    assert shown["training"]["slow"] == shown["training"]["steps"] > 0
    (alarm,) = [alarm for alarm in shown["alarms"] if alarm["name"] == "slow_training"]
    assert alarm["critical"] is False
    assert "longer than learning.interval (1e-06 s)" in alarm["what"]
    clock.now += 61
    assert "slow_training" not in alarms(stats)
    service.storage.close()
    with watched(tmp_path / "another") as (stats, _, training, _):
        assert alarms(stats) == []
        training.progress.began = time.monotonic() - 3601  # a step that hangs
        assert alarms(stats) == ["slow_training"]
        training.progress.began = None
        assert alarms(stats) == []


def test_means_cover_the_last_100_steps_and_totals_all(tmp_path: Path) -> None:
    with watched(tmp_path, "learning.samples_per_insert=1000") as (stats, service, training, clock):
        assert stats.as_json()["training"]["means"] == dict.fromkeys(("loss", "batch", "step_seconds", "agreement"))
        run_visits(service, training, clock, 60)
        assert all(training.step() for _ in range(110))
        shown, recent = stats.as_json()["training"], training.progress.recent
        assert len(recent) == 100 < shown["steps"]
        assert shown["means"]["loss"] == pytest.approx(sum(step.loss for step in recent) / 100)
        assert shown["means"]["batch"] == pytest.approx(sum(step.batch for step in recent) / 100)
        assert 0 < shown["means"]["step_seconds"] < 10
        assert shown["means"]["agreement"] == shown["agreement_lifetime"] == 1.0
        assert shown["agreed"] == shown["validated"] == shown["samples"] == service.storage.trainer.sampled


@pytest.mark.parametrize("mode", ["gate_greedy", "refuse"])
def test_overload_raises_an_alarm_and_latency_is_measured(tmp_path: Path, mode: str) -> None:
    """Two of five simultaneous requests may wait, the others are refused.

    A request that waits too long is answered by the overload mode, and never after a later one of its territory.
    """

    async def crowd(stats: ServiceStats, service: FileService) -> list[list[dict[str, Any]]]:
        batcher = stats.batcher = Batcher(service)
        at_once = await asyncio.gather(*(batcher.submit(request(float(turn), "site")) for turn in range(5)))
        late = asyncio.gather(*(batcher.submit(request(float(turn), "site")) for turn in (7, 8)))
        time.sleep(0.8)  # blocks the event loop
        return [at_once, await late, [await batcher.submit(request(9.0, "site"))]]

    words = ("overload.waiting=2", "overload.patience=0.6", f"overload.mode={mode}")
    with watched(tmp_path, *words) as (stats, service, _, clock):
        at_once, late, calm = asyncio.run(crowd(stats, service))
        assert [answer.get("code") for answer in at_once] == [None, None, *["OVERLOADED"] * 3]
        if mode == "refuse":
            assert [answer.get("code") for answer in late] == ["OVERLOADED"] * 2
        else:
            assert [answer["modelVersion"] for answer in late] == [0, 0]
        assert calm[0]["modelVersion"] > 0
        shown = stats.as_json()
        assert [alarm["name"] for alarm in shown["alarms"]] == ["overload"]
        assert shown["decisions"]["overloaded"] == 5
        assert 0 < shown["decisions"]["p50_ms"] <= shown["decisions"]["p99_ms"] < 60_000
        clock.now += 61
        assert alarms(stats) == []


def test_history_merges_repeated_verdicts_and_keeps_operator_actions(tmp_path: Path) -> None:
    with watched(tmp_path) as (stats, service, training, clock):
        versions = service.versions
        run_visits(service, training, clock, 60)
        versions.pin(2, "to look at it")
        for version in (3, 4):
            versions.promote(version, "it earns more")
        versions.note(4, "hold: too little is known")
        versions.unpin("enough")
        for _ in range(200):
            versions.promote(4, "it earns more")
        shown = stats.as_json()["versions"]["history"]
        assert [entry["verdict"] for entry in shown] == ["promote", "pin", "noted", "hold", "unpin", "promote"]
        assert [(entry["first"], entry["last"]) for entry in shown[1:]] == [(2, 2), (3, 4), (4, 4), (2, 2), (4, 4)]
        assert (shown[1]["reason"], shown[3]["reason"]) == ("to look at it", "too little is known")
        assert shown[-1]["times"] == 200
        assert [entry["applied"] for entry in shown] == [True, True, False, False, True, True]


def test_updates_extend_curves(tmp_path: Path) -> None:
    with watched(tmp_path) as (stats, service, training, clock):
        run_visits(service, training, clock, 40)
        stats.update()
        shown = stats.as_json()["curves"]
        (row,) = shown["rows"]
        found = dict(zip(shown["names"], row, strict=True))
        assert found["at"] == clock.now
        assert 0.8 < found["pass_rate"] <= 1
        assert found["entropy"] > 0.9
        assert found["expected"] is not None
        assert found["p50_ms"] is None  # no request went through a batcher


@given(st.lists(st.floats(0.2, 5.0), min_size=1, max_size=80))
def test_curves_cover_ten_minutes(pauses: list[float]) -> None:
    curves, now = RecentCurves(), 0.0
    for pause in pauses * 12:
        curves.add(now, now, dict.fromkeys(CURVES, now))
        now += pause
    times = [row[0] for row in curves.as_json()["rows"]]
    assert len(times) <= MAX_POINTS
    assert all(isinstance(at, float) for at in times)
    assert all(later - earlier >= POINT_INTERVAL / 2 for earlier, later in pairwise(times))


def test_rate_covers_the_last_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(tmp_path) as (stats, service, training, clock):
        for second in range(15):
            monkeypatch.setattr("townlet.decide.stats.time", SimpleNamespace(monotonic=lambda now=second: float(now)))
            run_visits(service, training, clock, second, seed=second)
            stats.update()
        assert stats.as_json()["decisions"]["per_second"] == sum(range(5, 15)) / 10


def test_recent_decisions_are_listed_after_a_restart(tmp_path: Path) -> None:
    shown = ("recent", "actions", "confidence", "expected_and_actual", "actual_first", "actual_recent", "outcomes")
    with watched(tmp_path) as (stats, service, training, clock):
        run_visits(service, training, clock, 80)
        before, steps = stats.as_json()["decisions"], service.storage.trainer.step
        assert service.storage.log.wait(service.storage.log.last, 20)
    with watched(tmp_path) as (stats, _, _, _):
        after = stats.as_json()
        assert {name: after["decisions"][name] for name in shown} == {name: before[name] for name in shown}
        assert after["training"]["step"] == steps > 0
    assert before["outcomes"] > 20
