"""Restart and replay after evictions, rewinds, failures, new settings and clock changes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decide.ads_service import FileService, ask, click, request, run_visits, start_service, stop
from decide.both_storages import replay_folder
from townlet.decide import trainer
from townlet.decide.batcher import Batcher
from townlet.decide.domains import DOMAINS
from townlet.decide.offline_eval import OfflineEvaluator
from townlet.decide.settings import load_settings
from townlet.decide.state import ServiceState
from townlet.decide.storage import log, snapshots
from townlet.decide.storage.file import FileStorage
from townlet.decide.storage.log import LogStopped
from townlet.decide.storage.snapshots import Snapshot
from townlet.decide.websocket import MAX_IN_FLIGHT
from townlet.errors import TownletError


def all_the_same(folder: Path) -> int:
    found = list(replay_folder(folder))
    assert [one.version for one in found if not one.same] == []
    return len(found)


def test_evicted_territories_are_replayed_identically(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["memory.territories=3"])
    for second in range(60):
        sites = [f"site {(second + n) % 5}" for n in range(4)]  # more than are stored
        for reply in ask(service, *(request(second, site) for site in sites)):
            service.report(click(reply["decisionId"]))
        clock.now += 1
        if second % 10 == 9:
            assert training.step()
            training.publish()
    assert len(service.storage.state.territories) == 3
    service.storage.close()
    assert all_the_same(tmp_path) == 7
    again, _, _ = start_service(tmp_path, ["memory.territories=2"])
    ask(again, request(100.0, "another"))
    assert len(again.storage.state.territories) == 2
    again.storage.close()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_replay_with_more_cores_gives_the_same_weights(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    words = ["learning.batch_size=256", "learning.samples_per_insert=1000", "policy=candidates", "gate.enabled=false"]
    service, training, clock = start_service(tmp_path, words, "hive")
    games = [service.domain.make_game(seed, f"hive {seed}", 0) for seed in range(20)]
    for _ in range(40):
        for game, reply in zip(games, ask(service, *(game.observe() for game in games)), strict=True):
            game.apply(reply)
            game.advance()
        clock.now += 1
    for _ in range(4):
        assert training.step()
        training.publish()
    service.storage.close()
    torch.set_num_threads(4)  # torch's default depends on the machine
    assert all_the_same(tmp_path) == 5


@pytest.mark.parametrize("milestone", [False, True])
def test_priorities_survive_a_restart_and_can_be_enabled_by_one(tmp_path: Path, milestone: bool) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 60)
    for seed in (2, 3):
        if milestone:
            service.storage.save_snapshot()
        service.storage.close()
        service, training, clock = start_service(tmp_path, ["learning.prioritized=true"])
        clock.now = 1000.0 * seed
        run_visits(service, training, clock, 60, seed)
    service.storage.close()
    assert all_the_same(tmp_path) > 8


def test_recovery_without_a_version_that_was_rewound_to(tmp_path: Path) -> None:
    words = ["promotion.entropy_floor=1.0", "versions=2"]  # lower entropy is always refused
    service, training, clock = start_service(tmp_path, words)
    run_visits(service, training, clock, 60)
    service.storage.save_snapshot()
    run_visits(service, training, clock, 60, seed=2)
    digest = {name: weight.tolist() for name, weight in service.storage.trainer.weights().items()}
    service.storage.close()
    for version in (tmp_path / "versions").glob("*1"):  # the first one served all the time
        os.rename(version, tmp_path / "elsewhere")
    again, _, _ = start_service(tmp_path, words)
    assert {name: weight.tolist() for name, weight in again.storage.trainer.weights().items()} == digest
    again.storage.close()


def test_rewind_is_logged_before_it_happens(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["promotion.entropy_floor=1.0"])
    run_visits(service, training, clock, 30)
    assert training.step()
    learned = service.storage.trainer.copy()
    stop(service)
    serving = service.versions.serving
    assert serving is not None
    with pytest.raises(LogStopped):
        training._rewind()
    assert all(bool((learned["network"][name] == now).all()) for name, now in service.storage.trainer.weights().items())
    service.storage.log.problem = None
    training._rewind()
    training.step()
    assert training.publish().parent == serving.version  # and not the newest one
    service.storage.close()
    all_the_same(tmp_path)


def test_failed_step_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 30)
    with monkeypatch.context() as broken:
        broken.setattr(trainer, "training_rewards", lambda *_: [].pop())  # an IndexError
        assert not training.step()
    assert training.progress.failed == 1
    assert "IndexError" in training.progress.problem
    run_visits(service, training, clock, 30, seed=2)
    service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert again.storage.trainer.step == service.storage.trainer.step
    again.storage.close()


def test_internal_error_affects_one_batch_only(tmp_path: Path) -> None:
    async def talk() -> list[dict[str, Any]]:
        service, _, _ = start_service(tmp_path)
        batcher, decide = Batcher(service), service.domain.parse_observation
        service.domain.__dict__["parse_observation"] = lambda message: decide(
            {**message, "traits": message["traits"].pop("no")}
        )
        try:
            first = await batcher.submit(request(1.0))
        finally:
            del service.domain.__dict__["parse_observation"]
        second = await asyncio.wait_for(batcher.submit(request(2.0)), 20)
        service.storage.close()
        return [first, second]

    first, second = asyncio.run(talk())
    assert (first["type"], first["code"]) == ("error", "INTERNAL")
    assert second["type"] == "ad_decision"


def test_clients_take_turns(tmp_path: Path) -> None:
    """A client with many waiting observations does not delay the others."""

    async def talk() -> list[str]:
        service, _, _ = start_service(tmp_path, ["overload.batch_size=2", "overload.patience=10"])
        batcher, order = Batcher(service), list[str]()
        service.decision_listeners.append(lambda event, decision: order.append(event.territory))
        waiting = [("busy", turn) for turn in range(6)] + [("second", 0), ("third", 0)]
        replies = [batcher.submit(request(1.0 + turn, client), client=client) for client, turn in waiting]
        await asyncio.gather(*replies)
        service.storage.close()
        return order

    assert asyncio.run(talk()) == ["busy", "second", "third", *["busy"] * 5]


def test_hanging_disk_is_reported_and_delays_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "STALL_SECONDS", 0.2)
    real = os.fdatasync

    def slow_sync(file: int) -> None:
        time.sleep(1.5)
        real(file)

    async def talk() -> tuple[dict[str, Any], str | None]:
        service, _, _ = start_service(tmp_path)
        batcher = Batcher(service)
        monkeypatch.setattr(os, "fdatasync", slow_sync)
        promise = batcher.submit(request(1.0))
        for _ in range(10):
            await asyncio.sleep(0.1)
            service.storage.log.check_stall()
            batcher.release_unsynced()
        answer, wrong = promise.result(), service.storage.log.problem
        monkeypatch.setattr(os, "fdatasync", real)
        await asyncio.sleep(1.0)
        assert service.storage.log.problem is None  # the log works again
        service.storage.close()
        return answer, wrong

    answer, wrong = asyncio.run(talk())
    assert answer["decisionId"].split("-")[1] == "0"
    assert wrong is not None
    assert "has not answered" in wrong


def test_failed_action_is_removed_from_memory(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    (reply,) = ask(service, request(10.0))
    assert service.storage.state.territory("a").state["shown"][reply["ad"]] == 10.0
    service.report(click(reply["decisionId"], shown=False))
    assert service.storage.state.territory("a").state["shown"][reply["ad"]] < -1e9
    service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert again.storage.state.territory("a").state["shown"][reply["ad"]] < -1e9
    again.storage.close()


@pytest.mark.parametrize("restart", ["none", "log", "milestone"])
def test_answers_of_a_lost_connection_are_repeated(tmp_path: Path, restart: str) -> None:
    service, _, _ = start_service(tmp_path)
    seconds = [float(second) for second in range(1, 101)]
    replies = [ask(service, *(request(second, site) for second in seconds)) for site in ("a", "b")]
    ask(service, request(1.0, "c"))
    if restart == "milestone":
        service.storage.save_snapshot()
    if restart != "none":
        service.storage.close()
        service, _, _ = start_service(tmp_path)
    lost = seconds[-MAX_IN_FLIGHT - 2 :]  # including one being answered and one being read
    for site, said in zip(("a", "b"), replies, strict=True):
        assert ask(service, *(request(second, site) for second in lost)) == said[-len(lost) :]
    assert service.storage.state.decisions == 201
    (stale,) = ask(service, request(1.0))
    assert stale["code"] == "STALE_OBSERVATION"
    assert "another territoryId" in stale["message"]
    service.storage.close()


def test_ids_of_an_earlier_release_in_a_snapshot_are_valid(tmp_path: Path) -> None:
    """It stored the first number of each key, not the last one."""
    ids = []
    for start in range(3):
        service, _, _ = start_service(tmp_path)
        ids += [ask(service, request(float(n), f"site {start}"))[0]["decisionId"] for n in range(3)]
        if start < 2:
            service.storage.close()
    taken = snapshots.take(service.storage, "")
    state = taken.state()
    keys = [key for _, key in service.storage.state.ids.state()]
    del state["service"]["keys"]
    state["service"]["ids"] = snapshots.encode_json(list(zip((1, 4, 7), keys, strict=True)))
    restored = ServiceState(service.domain, service.settings)
    snapshots.restore_service(Snapshot(taken.info["record"], state, taken.info), restored)
    assert [restored.ids.resolve(id) for id in ids] == list(range(1, 10))
    assert restored.ids.state() == service.storage.state.ids.state()
    service.storage.close()


def test_decisions_expire_after_the_clock_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings("bandit-ads", ["memory.expire_after=0.3"], DOMAINS)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # a hundred years ahead
    service = FileService(FileStorage(tmp_path, DOMAINS["bandit-ads"], settings))
    ask(service, request(1.0))
    service.storage.close()
    monkeypatch.undo()
    again = FileService(FileStorage(tmp_path, DOMAINS["bandit-ads"], settings))
    (notice,) = again.storage.notices
    assert re.fullmatch(r"The clock of .+ is 2\d{9} s behind the time of the service", notice.what)
    assert again.storage.state.join.counts.pending == 1
    time.sleep(0.4)
    again.storage.maintain()
    assert again.storage.state.join.counts.expired == 1
    again.storage.close()


def test_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TownletError, match=r"is not the folder of a service: it contains notes.txt"):
        start_service(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "log").mkdir()
    mine = tmp_path / "log" / "log-000000000001.wal"
    mine.write_text("x")
    with pytest.raises(TownletError, match="header is unreadable"):
        start_service(tmp_path)
    assert mine.read_text() == "x"


@pytest.mark.parametrize(("threshold", "counts"), [(0.0, True), (0.99, False)])
def test_versions_are_evaluated_with_the_current_gate(tmp_path: Path, threshold: float, counts: bool) -> None:
    service, training, clock = start_service(
        tmp_path, ["memory.expired_outcome=0", "memory.held_out=0.5", "gate.threshold=0.12"]
    )
    run_visits(service, training, clock, 200)
    service.storage.close()
    again, _, _ = start_service(
        tmp_path, ["memory.expired_outcome=0", "memory.held_out=0.5", f"gate.threshold={threshold}"]
    )
    serving = again.versions.serving
    assert serving is not None
    found = OfflineEvaluator(again.storage).evaluate(serving, serving, np.random.default_rng(0))
    held = again.storage.state.held_out.newest(10**9)
    if counts:  # actions that only the current gate sends have no outcome
        assert int(held.send.sum()) <= found.count < len(held)
        assert (found.pass_rate or 0) > 0
    else:  # the current gate sends nothing, so the reward is 0
        assert found.count == len(held)
        assert found.pass_rate == found.difference.value == 0
    again.storage.close()


def test_greedy_policy_is_evaluated_without_exploration(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["explore=false", "memory.held_out=0.5"])
    run_visits(service, training, clock, 100)
    serving = service.versions.serving
    assert serving is not None
    found = OfflineEvaluator(service.storage).evaluate(training.publish(), serving, np.random.default_rng(0))
    assert found.entropy == pytest.approx(found.entropy_before, abs=0.1)  # of the networks themselves
    assert found.entropy is not None
    assert 0.5 < found.entropy < 1.0
    assert found.change is not None
    held = service.storage.state.held_out.newest(10**9)
    changed = found.change * len(held)
    assert changed == pytest.approx(round(changed))  # each decision changes or does not
    service.storage.close()


def test_collapse_is_refused_without_exploration(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["explore=false", "memory.held_out=0.5"])
    run_visits(service, training, clock, 700)
    serving = service.versions.serving
    assert serving is not None
    assert serving.version > 20
    assert training.progress.verdicts["promote"] > 5
    service.storage.trainer.weights()["score.bias"].data[3] += 50.0
    run_visits(service, training, clock, 20, seed=2)
    assert "refuse: it has collapsed: its normalized entropy is 0.000" in service.versions.history[-1].reason
    assert service.versions.serving is serving
    service.storage.close()


def test_evaluator_cache_does_not_change_results(tmp_path: Path) -> None:
    """Held-out experiences and versions change between two evaluations."""
    service, training, clock = start_service(
        tmp_path, ["memory.held_out=0.5", "memory.held_out_capacity=40", "promotion.min_count=40"]
    )
    evaluator, sizes = OfflineEvaluator(service.storage), set()
    for turn in range(6):
        run_visits(service, training, clock, 40, seed=turn)
        serving, published = service.versions.serving, training.publish()
        assert serving is not None
        cached, fresh = (
            one.evaluate(published, serving, np.random.default_rng(0))
            for one in (evaluator, OfflineEvaluator(service.storage))
        )
        assert cached == fresh
        sizes.add(cached.count)
    assert max(sizes) > 10
    service.storage.close()
