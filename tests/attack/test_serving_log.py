"""Attacks on the serving log: whatever happens to the file, the kill switch is never lost silently."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.program import program
from decide.ads_service import FileService, ask, request, start_service
from townlet.decide.stats import ServiceStats
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError

RECORD = Path("versions", "serving.jsonl")


def switched_off(folder: Path) -> bytes:
    """Run a service and leave the kill switch on; returns its serving log."""
    service, training, _ = start_service(folder)
    training.publish()
    service.versions.pin(1, "a calm night")
    service.versions.set_gate_only(True, "it is odd")
    service.storage.close()
    return (folder / RECORD).read_bytes()


def assert_gate_only(folder: Path, message: str) -> FileService:
    """A start leaves all decisions to the gate, with a reason, until an operator switches."""
    service, training, _ = start_service(folder)
    assert service.versions.gate_only
    assert ask(service, request(1e6, "x"))[0].get("modelVersion", 0) == 0
    (alarm,) = alarms(service, training)
    assert alarm["critical"]
    assert re.search(message, alarm["what"]), alarm["what"]
    return service


def alarms(service: FileService, training: TrainingThread) -> list[dict[str, Any]]:
    stats = ServiceStats(service, training)
    stats.update()
    return [alarm for alarm in stats.as_json()["alarms"] if alarm["name"] == "serving_log"]


def test_a_flipped_bit_in_the_serving_log_never_switches_the_network_on(tmp_path: Path) -> None:
    intact, chance = switched_off(tmp_path), random.Random(3)
    for place in [0, 5, 8, 9, len(intact) - 1, *chance.sample(range(len(intact)), 12)]:
        damaged = bytearray(intact)
        damaged[place] ^= 1 << chance.randrange(8)
        (tmp_path / RECORD).write_bytes(damaged)
        service = assert_gate_only(tmp_path, r"line \d of serving.jsonl|last line of serving.jsonl")
        service.storage.close()
    service = assert_gate_only(tmp_path, "serving.jsonl")
    service.versions.set_gate_only(False, "checked")
    assert not service.versions.fault
    service.storage.close()
    again, training, _ = start_service(tmp_path)
    assert not again.versions.gate_only
    assert not alarms(again, training)
    again.storage.close()
    assert list(tmp_path.glob("versions/serving-damaged-*.jsonl"))  # a copy is kept


def missing(path: Path, intact: bytes) -> None:
    path.unlink()


def emptied(path: Path, intact: bytes) -> None:
    path.write_bytes(b"")


def without_last_line(path: Path, intact: bytes) -> None:
    path.write_bytes(b"".join(intact.splitlines(keepends=True)[:-1]))


def without_first_line(path: Path, intact: bytes) -> None:
    path.write_bytes(b"".join(intact.splitlines(keepends=True)[1:]))


def cut_off(path: Path, intact: bytes) -> None:
    path.write_bytes(intact[:-20])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing, "ends with change 0, but the control file of the log refers to change"),
        (emptied, "ends with change 0, but the control file of the log refers to change"),
        (without_last_line, r"ends with change \d, but the control file of the log refers to change \d"),
        (without_first_line, "lines before line 1 of serving.jsonl are missing"),
        (cut_off, "the last line of serving.jsonl .* is cut off"),
    ],
)
def test_a_shortened_serving_log_means_gate_only(
    change: Callable[[Path, bytes], None], message: str, tmp_path: Path
) -> None:
    change(tmp_path / RECORD, switched_off(tmp_path))
    service = assert_gate_only(tmp_path, message)
    service.versions.set_gate_only(False, "checked")
    assert not service.versions.gate_only
    service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert not again.versions.gate_only
    again.storage.close()


def test_without_control_data_the_log_restores_the_kill_switch(tmp_path: Path) -> None:
    without_last_line(tmp_path / RECORD, switched_off(tmp_path))
    (tmp_path / "log" / "control").unlink()
    assert_gate_only(tmp_path, "but the log refers to change").close()


def test_a_log_shorter_than_the_serving_log_is_refused(tmp_path: Path) -> None:
    switched_off(tmp_path)
    (tmp_path / "log" / "control").unlink()
    for segment in (tmp_path / "log").glob("*.wal"):
        segment.unlink()
    for version in (tmp_path / "versions").glob("step-*"):
        version.rename(tmp_path / version.name)
    with pytest.raises(TownletError, match=r"the log ends at record 0, but versions/serving.jsonl \(change"):
        start_service(tmp_path)
    again, _, _ = start_service(tmp_path, accept_data_loss=True)
    assert list(tmp_path.glob("set-aside-*/versions/serving.jsonl"))
    again.storage.close()


def test_the_list_of_versions_names_a_damaged_serving_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(tmp_path / RECORD, switched_off(tmp_path))
    done = program(capsys, monkeypatch)("decide", "versions", "--folder", str(tmp_path))
    assert "The gate decides alone." in done.out
    assert "The serving log cannot be trusted: the last line of serving.jsonl" in done.err
