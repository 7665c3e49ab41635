"""What serves and what is learned from it go together: through lost records, gone versions and an operator's wishes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from decide.sites import begin, live
from townlet.decide import training_thread as learning
from townlet.decide.events import VersionPublished, decode
from townlet.decide.recovery import replay_folder
from townlet.decide.service import Service
from townlet.decide.storage.control import ControlFile
from townlet.decide.storage.segments import HEADER, RECORD, iter_records, list_segments
from townlet.errors import TownletError


def learned(service: Service) -> dict[str, list[float]]:
    return {name: weight.tolist() for name, weight in service.trainer.weights().items()}


def cut_before_a_publication(folder: Path) -> None:
    """As if the machine had stopped before the first `Published` came to the disk."""
    segment = list_segments(folder / "log")[0].path
    data, end, last = segment.read_bytes(), HEADER.size, 0
    for number, payload in iter_records(data, 1):
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


def test_a_milestone_is_of_use_although_what_was_gone_back_to_is_gone(tmp_path: Path) -> None:
    """A newer version is whole, so that nobody has to make the old one again from all that was ever written."""
    words = ["versions=2", "segment=16384"]
    service, rounds, clock = begin(tmp_path, words)
    live(service, rounds, clock, 200)
    back = service.versions.serving
    service.milestone()
    assert back is not None
    rounds._go_back()
    live(service, rounds, clock, 100, seed=2)
    rounds.step()
    before = learned(service), service.trainer.step, service.state.join.counts
    assert back.version not in service.versions.list_versions()
    service.close()
    early = list_segments(tmp_path / "log")[1].path
    early.write_bytes(early.read_bytes()[:-1] + b"?")  # whoever reads all of it cannot start
    again, _, _ = begin(tmp_path, words)
    assert (learned(again), again.trainer.step, again.state.join.counts) == before
    again.close()


@pytest.mark.parametrize("prioritized", ["false", "true"])
def test_what_was_gone_back_to_without_a_record_of_it_keeps_nobody_from_starting(
    tmp_path: Path, prioritized: str
) -> None:
    service, _, _ = begin(tmp_path)
    service.close()
    cut_before_a_publication(tmp_path)
    service, rounds, clock = begin(tmp_path, ["versions=2"])
    back = service.versions.serving
    assert back is not None
    live(service, rounds, clock, 15)
    rounds._go_back()
    live(service, rounds, clock, 100, seed=2)
    assert back.version not in service.versions.list_versions()
    service.close()
    for seed in (3, 4):  # the second time priorities have counted
        service, rounds, clock = begin(tmp_path, ["versions=2", f"learning.prioritized={prioritized}"])
        clock.now = 1000.0 * seed
        live(service, rounds, clock, 40, seed)
        before = learned(service), service.trainer.step
        service.close()
    again, _, _ = begin(tmp_path)
    assert (learned(again), again.trainer.step) == before
    again.close()


def test_nothing_serves_that_the_log_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes the version and not the record of it: the round fails, and what served goes on."""
    service, rounds, clock = begin(tmp_path, ["learning.samples_per_insert=100"])
    live(service, rounds, clock, 60)
    assert rounds.step()
    assert service.log.wait(service.log.last, 20)
    serving = service.versions.serving
    assert serving is not None
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", failing)
        broken.setattr(learning, "PATIENCE", 0.3)
        with pytest.raises(TownletError, match="the log does not come to the disk"):
            rounds.publish()
        assert service.versions.serving is serving
    assert service.log.wait(service.log.last, 20)  # there is room again
    live(service, rounds, clock, 20, seed=2)
    assert service.versions.serving is not None
    assert service.versions.serving.version == serving.version + 2  # the one between was never judged
    service.close()
    assert [one.version for one in replay_folder(tmp_path)] == list(range(1, serving.version + 3))
    assert all(one.same for one in replay_folder(tmp_path))


class Operator:
    """Puts a version in place while another one is judged: as soon as somebody asks the network that is heard."""

    def __init__(self, service: Service, heard: int, to: int) -> None:
        network = service.versions._load(heard).network
        self._act = lambda: service.versions.roll_back("by hand", to=to)
        self._hook = network.register_forward_hook(self)

    def __call__(self, *_: object) -> None:
        self._hook.remove()
        self._act()


def test_a_verdict_comes_too_late_for_what_an_operator_has_replaced(tmp_path: Path) -> None:
    service, rounds, clock = begin(tmp_path, ["memory.held_out=0.5"])
    live(service, rounds, clock, 100)
    state = {name: weight.clone() for name, weight in service.trainer.weights().items()}
    state["score.bias"][3] += 50.0
    bad = service.versions.publish(service.trainer.step, state, service.trainer.copy(), {}).version
    service.versions.promote(bad, "by mistake")
    Operator(service, bad, to=2)
    verdict = rounds.watch()
    assert verdict is not None
    assert (verdict.action, verdict.reason) == ("keep", "another version was put in place while it was judged")
    serving = service.versions.serving
    assert serving is not None
    assert serving.version == 2
    service.versions.promote(bad, "once more")
    verdict = rounds.watch()
    assert verdict is not None
    assert verdict.action == "roll_back"  # nobody is in the way
    service.close()


def test_what_is_refused_gives_way_to_what_serves_by_then(tmp_path: Path) -> None:
    service, rounds, clock = begin(tmp_path, ["memory.held_out=0.5"])
    live(service, rounds, clock, 100)
    serving = service.versions.serving
    assert serving is not None
    service.trainer.weights()["score.bias"].data[3] += 50.0
    live(service, rounds, clock, 19, seed=2)
    Operator(service, serving.version, to=2)
    rounds.publish()
    assert "refuse: it has collapsed" in service.versions.history[-1].reason
    assert service.versions.serving is not None
    assert service.versions.serving.version == 2
    kept = service.versions.open(2)[0]
    assert learned(service) == {name: weight.tolist() for name, weight in kept.items()}
    service.close()


def failing(descriptor: int) -> None:
    raise OSError(28, "no space")
