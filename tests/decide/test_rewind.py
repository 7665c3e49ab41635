"""The trainer follows the serving version, with lost records, missing versions and operator actions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decide.ads_service import FileService, run_visits, start_service
from decide.both_storages import replay_folder
from townlet.decide.events import VersionPublished, decode
from townlet.decide.storage import file
from townlet.decide.storage.control import ControlFile
from townlet.decide.storage.segments import HEADER, RECORD, list_segments, read_records
from townlet.errors import TownletError


def learned(service: FileService) -> dict[str, list[float]]:
    return {name: weight.tolist() for name, weight in service.storage.trainer.weights().items()}


def cut_before_a_publication(folder: Path) -> None:
    """Cut the log before the first `VersionPublished`, as a crash would."""
    segment = list_segments(folder / "log")[0].path
    data, end, last = segment.read_bytes(), HEADER.size, 0
    for number, payload in read_records(folder / "log"):
        if isinstance(decode(payload), VersionPublished):
            break
        end, last = end + RECORD.size + len(payload), number
    segment.write_bytes(data[:end])
    control = ControlFile(folder / "log")
    known = control.open()
    assert known is not None
    control.create(known._replace(synced=last, serving=0))
    control.close()
    (folder / "versions" / "serving.jsonl").unlink()  # it is promoted after that


def test_snapshot_is_usable_without_the_version_rewound_to(tmp_path: Path) -> None:
    """A newer version is intact, so the old one need not be rebuilt from the beginning of the log."""
    words = ["versions=2", "segment_bytes=16384"]
    service, training, clock = start_service(tmp_path, words)
    run_visits(service, training, clock, 200)
    back = service.versions.serving
    service.storage.save_snapshot()
    assert back is not None
    training._rewind()
    run_visits(service, training, clock, 100, seed=2)
    training.step()
    before = learned(service), service.storage.trainer.step, service.storage.state.join.counts
    assert back.version not in service.versions.list_versions()
    service.storage.close()
    early = list_segments(tmp_path / "log")[1].path
    early.write_bytes(early.read_bytes()[:-1] + b"?")  # a start that reads it fails
    again, _, _ = start_service(tmp_path, words)
    assert (learned(again), again.storage.trainer.step, again.storage.state.join.counts) == before
    again.storage.close()


@pytest.mark.parametrize("prioritized", ["false", "true"])
def test_rewind_to_an_unlogged_version_does_not_prevent_a_start(tmp_path: Path, prioritized: str) -> None:
    service, _, _ = start_service(tmp_path)
    service.storage.close()
    cut_before_a_publication(tmp_path)
    service, training, clock = start_service(tmp_path, ["versions=2"])
    back = service.versions.serving
    assert back is not None
    run_visits(service, training, clock, 15)
    training._rewind()
    run_visits(service, training, clock, 100, seed=2)
    assert back.version not in service.versions.list_versions()
    service.storage.close()
    for seed in (3, 4):  # the second time with priorities
        service, training, clock = start_service(tmp_path, ["versions=2", f"learning.prioritized={prioritized}"])
        clock.now = 1000.0 * seed
        run_visits(service, training, clock, 40, seed)
        before = learned(service), service.storage.trainer.step
        service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert (learned(again), again.storage.trainer.step) == before
    again.storage.close()


def test_no_version_serves_before_it_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is written but its record is not: the round fails, and the old version keeps serving."""
    service, training, clock = start_service(tmp_path, ["learning.samples_per_insert=100"])
    run_visits(service, training, clock, 60)
    assert training.step()
    assert service.storage.log.wait(service.storage.log.last, 20)
    serving = service.versions.serving
    assert serving is not None
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", failing)
        broken.setattr(file, "DURABLE_TIMEOUT", 0.3)
        with pytest.raises(TownletError, match="the log cannot be written to disk"):
            training.publish()
        assert service.versions.serving is serving
    assert service.storage.log.wait(service.storage.log.last, 20)  # the disk has space again
    run_visits(service, training, clock, 20, seed=2)
    assert service.versions.serving is not None
    assert service.versions.serving.version == serving.version + 2  # the one between was never evaluated
    service.storage.close()
    assert [one.version for one in replay_folder(tmp_path)] == list(range(1, serving.version + 3))
    assert all(one.same for one in replay_folder(tmp_path))


class Operator:
    """Rolls back while another version is evaluated: at the first forward pass of its network."""

    def __init__(self, service: FileService, heard: int, to: int) -> None:
        network = service.versions._load(heard).network
        self._act: Callable[[], object] = lambda: service.versions.roll_back("by hand", to=to)
        self._hook: Any = network.register_forward_hook(self)

    def __call__(self, *_: object) -> None:
        self._hook.remove()
        self._act()


def test_verdict_on_a_replaced_version_is_ignored(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["memory.held_out=0.5"])
    run_visits(service, training, clock, 100)
    state = {name: weight.clone() for name, weight in service.storage.trainer.weights().items()}
    state["score.bias"][3] += 50.0
    bad = service.versions.publish(service.storage.trainer.step, state, service.storage.trainer.copy(), {}).version
    service.versions.promote(bad, "by mistake")
    Operator(service, bad, to=2)
    verdict = training.review_serving()
    assert verdict is not None
    assert (verdict.action, verdict.reason) == ("keep", "another version started serving during the evaluation")
    serving = service.versions.serving
    assert serving is not None
    assert serving.version == 2
    service.versions.promote(bad, "once more")
    verdict = training.review_serving()
    assert verdict is not None
    assert verdict.action == "roll_back"  # no operator interferes
    service.storage.close()


def test_refused_version_is_replaced_by_the_serving_one(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["memory.held_out=0.5"])
    run_visits(service, training, clock, 100)
    serving = service.versions.serving
    assert serving is not None
    service.storage.trainer.weights()["score.bias"].data[3] += 50.0
    run_visits(service, training, clock, 19, seed=2)
    Operator(service, serving.version, to=2)
    training.publish()
    assert "refuse: it has collapsed" in service.versions.history[-1].reason
    assert service.versions.serving is not None
    assert service.versions.serving.version == 2
    kept = service.versions.open(2)[0]
    assert learned(service) == {name: weight.tolist() for name, weight in kept.items()}
    service.storage.close()


def failing(descriptor: int) -> None:
    raise OSError(28, "no space")
