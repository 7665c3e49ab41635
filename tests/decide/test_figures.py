"""What an operator is told: figures that add up, curves of the last minutes, and alarms that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decide.sites import Clock, ask, begin, click, live, request
from townlet.decide.batcher import Batcher
from townlet.decide.curves import EVERY, NAMES, POINTS, RateMeter, RecentCurves
from townlet.decide.figures import ServiceStats, as_prometheus
from townlet.decide.service import Service
from townlet.decide.training_thread import TrainingThread
from townlet.runs import checkpoint

COLLAPSED = 3  # the action that a planted version always takes


@contextmanager
def watched(folder: Path, *words: str) -> Iterator[tuple[ServiceStats, Service, TrainingThread, Clock]]:
    """A service whose trainer runs, but has nothing to do for an hour, and who looks at it."""
    service, rounds, clock = begin(folder, ["learning.every=3600", *words])
    figures = ServiceStats(service, rounds)
    rounds.ensure()
    yield figures, service, rounds, clock
    rounds.stop()
    service.close()


def alarms(figures: ServiceStats) -> list[str]:
    return [alarm["name"] for alarm in figures.whole()["alarms"]]


def plant(service: Service, action: int) -> int:
    """A version that always decides the same."""
    state = {name: tensor.clone() for name, tensor in service.trainer.weights().items()}
    state["score.bias"][action] = 50.0
    return service.versions.publish(service.trainer.step, state, service.trainer.state(), {}).version


def test_figures_add_up_and_nothing_is_wrong(tmp_path: Path) -> None:
    with watched(tmp_path) as (figures, service, rounds, clock):
        live(service, rounds, clock, 60)
        told = figures.whole()
        assert told["alarms"] == []
        buffer, decisions = told["buffer"], told["decisions"]
        assert buffer["decisions"] == 60 == decisions["lately"] == sum(decisions["confidence"])
        parts = ("joined", "expired", "pending", "not_executed")
        assert buffer["decisions"] == sum(buffer[part] for part in parts)
        assert sum(told["gate"]["reasons"].values()) == 60
        recent = decisions["recent"]
        assert [one["number"] for one in recent] == list(range(11, 61))
        assert sum(one["actual"] is not None for one in recent) > 20
        assert all(one["actual"] is None for one in recent if not one["send"])


def test_whoever_collapsed_is_told_until_something_else_serves(tmp_path: Path) -> None:
    with watched(tmp_path) as (figures, service, _, _):
        service.versions.pin(plant(service, COLLAPSED))
        for second in range(60):
            assert ask(service, request(second))[0]["ad"] == COLLAPSED
        (alarm,) = figures.whole()["alarms"]
        assert (alarm["name"], alarm["grave"]) == ("collapsed", True)
        assert "entropy is 0.000" in alarm["what"]
        assert "Roll back" in alarm["fix"]
        assert 'townlet_decide_alarm{name="collapsed"} 1' in as_prometheus(figures.whole())
        service.versions.set_gate_only(True, "it has collapsed")
        assert alarms(figures) == []  # nobody asks that policy
        service.versions.set_gate_only(False, "it is gone")
        service.versions.unpin()
        service.versions.roll_back("it always says the same")
        for second in range(60, 80):
            ask(service, request(second))
        assert alarms(figures) == []


def test_one_action_alone_is_a_collapse_however_undecided_the_policy_says_it_is(tmp_path: Path) -> None:
    with watched(tmp_path, "explore=false") as (figures, service, _, _):
        for second in range(200):
            assert alarms(figures) == []
            ask(service, request(second))
        (alarm,) = figures.whole()["alarms"]
        assert "200 of its last 200 decisions are action" in alarm["what"]


def test_a_pinned_version_that_is_not_there_any_more_is_told_until_an_operator_has_seen_it(tmp_path: Path) -> None:
    with watched(tmp_path) as (_, service, rounds, clock):
        live(service, rounds, clock, 60)
        service.versions.pin(2, "a calm night")
    rmtree(service.versions.folder / checkpoint.folder_name(2))
    with watched(tmp_path) as (figures, service, rounds, clock):
        (alarm,) = figures.whole()["alarms"]
        assert (alarm["name"], alarm["grave"]) == ("pin", True)
        assert alarm["what"] == "Version 2 is pinned and was not whole at the start: version 4 is held in its place"
        live(service, rounds, clock, 40, seed=2)
        assert service.versions.serving is not None
        assert service.versions.serving.version == 4
        service.versions.unpin()
        assert alarms(figures) == []


def test_with_nothing_whole_a_pin_leaves_it_to_the_gate(tmp_path: Path) -> None:
    with watched(tmp_path) as (_, service, _, _):
        service.versions.pin(1, "a calm night")
    rmtree(service.versions.folder / checkpoint.folder_name(1))
    service = Service(tmp_path, service.domain, service.settings)
    rounds = TrainingThread(service)
    rounds.begin()
    rounds.stop()
    figures = ServiceStats(service, rounds)
    assert (service.versions.serving, service.versions.pinned, service.versions.list_versions()) == (None, 1, [])
    told = [alarm["what"] for alarm in figures.whole()["alarms"] if alarm["name"] == "pin"]
    assert told == ["Version 1 is pinned and was not whole at the start: the gate decides alone"]
    assert ask(service, request(1.0))[0]["modelVersion"] == 0
    service.versions.unpin()
    rounds.round()
    assert service.versions.serving is not None
    service.close()


def test_outcomes_that_do_not_come_are_missed(tmp_path: Path) -> None:
    with watched(tmp_path, "memory.expire_after=20") as (figures, service, _, clock):
        ids = []
        for second in range(24):
            assert alarms(figures) == []
            ids.append(ask(service, request(second))[0]["decisionId"])
            clock.now += 0.4
        clock.now += 1
        assert alarms(figures) == ["silence"]
        service.report(click(ids[-1], clicked=False))
        assert alarms(figures) == []


def test_a_trainer_that_fails_or_is_dead_is_told_for_a_while(tmp_path: Path) -> None:
    with watched(tmp_path) as (figures, service, rounds, clock):
        for weight in service.trainer.weights().values():
            weight.copy_(torch.full_like(weight, torch.nan))
        live(service, rounds, clock, 40)
        assert rounds.progress.failed
        rounds.stop()
        (alarm,) = figures.whole()["alarms"]
        assert (alarm["name"], alarm["grave"]) == ("training", True)
        assert "does not run" in alarm["what"]
    with watched(tmp_path / "another") as (figures, service, rounds, clock):
        rounds.progress.failed, rounds.progress.problem = 1, "step 7 of the trainer is not finite"
        (alarm,) = figures.whole()["alarms"]
        assert (alarm["grave"], "is not finite" in alarm["what"]) == (False, True)
        clock.now += 61
        assert alarms(figures) == []


@pytest.mark.parametrize("mode", ["gate_greedy", "refuse"])
def test_overload_is_told_and_answers_are_timed(tmp_path: Path, mode: str) -> None:
    """Two may wait: of five who come at once the first two do, and the others are refused. Whoever waits too long is
    answered as it was declared, and never after a later observation of the same territory.
    """

    async def crowd(figures: ServiceStats, service: Service) -> list[list[dict[str, Any]]]:
        desk = figures.batcher = Batcher(service)
        at_once = await asyncio.gather(*(desk.ask(request(float(turn), "site")) for turn in range(5)))
        late = asyncio.gather(*(desk.ask(request(float(turn), "site")) for turn in (7, 8)))
        time.sleep(0.8)  # the loop has no time for them
        return [at_once, await late, [await desk.ask(request(9.0, "site"))]]

    words = ("overload.waiting=2", "overload.patience=0.6", f"overload.mode={mode}")
    with watched(tmp_path, *words) as (figures, service, _, clock):
        at_once, late, calm = asyncio.run(crowd(figures, service))
        assert [answer.get("code") for answer in at_once] == [None, None, *["OVERLOADED"] * 3]
        if mode == "refuse":
            assert [answer.get("code") for answer in late] == ["OVERLOADED"] * 2
        else:
            assert [answer["modelVersion"] for answer in late] == [0, 0]
        assert calm[0]["modelVersion"] > 0
        told = figures.whole()
        assert [alarm["name"] for alarm in told["alarms"]] == ["overload"]
        assert told["decisions"]["overloaded"] == 5
        assert 0 < told["decisions"]["p50_ms"] <= told["decisions"]["p99_ms"] < 60_000
        clock.now += 61
        assert alarms(figures) == []


def test_what_happens_many_times_is_one_chapter_and_an_operator_is_not_forgotten(tmp_path: Path) -> None:
    with watched(tmp_path) as (figures, service, rounds, clock):
        versions = service.versions
        live(service, rounds, clock, 60)
        versions.pin(2, "to look at it")
        for version in (3, 4):
            versions.promote(version, "it earns more")
        versions.note(4, "hold: too little is known")
        versions.unpin("enough")
        for _ in range(200):
            versions.promote(4, "it earns more")
        told = figures.whole()["versions"]["chapters"]
        assert [chapter["verdict"] for chapter in told] == ["promote", "pin", "noted", "hold", "unpin", "promote"]
        assert [(chapter["first"], chapter["last"]) for chapter in told[1:]] == [(2, 2), (3, 4), (4, 4), (2, 2), (4, 4)]
        assert (told[1]["reason"], told[3]["reason"]) == ("to look at it", "too little is known")
        assert told[-1]["times"] == 200
        assert [chapter["served"] for chapter in told] == [True, True, False, False, True, True]


def test_looking_makes_curves(tmp_path: Path) -> None:
    with watched(tmp_path) as (figures, service, rounds, clock):
        live(service, rounds, clock, 40)
        figures.look()
        told = figures.whole()["curves"]
        (row,) = told["rows"]
        found = dict(zip(told["names"], row, strict=True))
        assert found["at"] == clock.now
        assert 0.8 < found["pass_rate"] <= 1
        assert found["entropy"] > 0.9
        assert found["expected"] is not None
        assert found["p50_ms"] is None  # nobody has asked over a desk


@given(st.lists(st.floats(0.2, 5.0), min_size=1, max_size=80))
def test_curves_keep_ten_minutes_however_often_one_looks(pauses: list[float]) -> None:
    curves, now = RecentCurves(), 0.0
    for pause in pauses * 12:
        curves.add(now, now, dict.fromkeys(NAMES, now))
        now += pause
    times = [row[0] for row in curves.told()["rows"]]
    assert len(times) <= POINTS
    assert all(isinstance(at, float) for at in times)
    assert all(later - earlier >= EVERY / 2 for earlier, later in pairwise(times))


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40))
def test_a_pace_is_what_came_in_the_last_ten_seconds(grown: list[int]) -> None:
    pace, count = RateMeter(), 0
    for second, more in enumerate(grown):
        count += more
        pace.look(float(second), count)
    last = grown[1:][-10:]
    assert abs(pace.per_second - sum(last) / len(last)) < 1e-9


def test_after_a_restart_the_last_decisions_are_still_told(tmp_path: Path) -> None:
    shown = ("recent", "actions", "confidence", "expected_and_actual", "actual_first", "actual_lately", "outcomes")
    with watched(tmp_path) as (figures, service, rounds, clock):
        live(service, rounds, clock, 80)
        before, steps = figures.whole()["decisions"], service.trainer.step
        assert service.log.wait(service.log.last, 20)
    with watched(tmp_path) as (figures, _, _, _):
        after = figures.whole()
        assert {name: after["decisions"][name] for name in shown} == {name: before[name] for name in shown}
        assert after["training"]["step"] == steps > 0
    assert before["outcomes"] > 20
