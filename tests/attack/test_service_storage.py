"""`decide verify` and `decide backup`: damage of any file is named, and a copy of a running service starts like it."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.program import program
from decide.ads_service import FileService, ask, click, request, run_visits, start_service
from decide.both_storages import replay_folder
from townlet.decide.alarms import Alarms
from townlet.decide.recovery import read_events
from townlet.decide.stats import ServiceStats
from townlet.decide.storage import LOG, SNAPSHOTS
from townlet.decide.storage.backup import backup
from townlet.decide.storage.consistency import check_events
from townlet.decide.storage.verify import verify
from townlet.decide.storage.versions import weights_digest
from townlet.decide.websocket import ConnectionLimits
from townlet.errors import TownletError
from townlet.runs import checkpoint
from townlet.runs.verify import IntegrityReport

WORDS = ("segment_bytes=16384", "versions=4")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service with several segments, versions, a snapshot and a pinned version."""
    folder = tmp_path_factory.mktemp("stopped") / "ads"
    service, training, clock = start_service(folder, WORDS)
    run_visits(service, training, clock, 120)
    service.storage.save_snapshot()
    run_visits(service, training, clock, 60, seed=2)
    service.versions.pin(service.versions.list_versions()[-1], "a calm night")
    service.storage.close()
    assert len(list((folder / LOG).glob("*.wal"))) > 2
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "copy"))


def damaged(found: IntegrityReport) -> dict[str, str]:
    return {part.name: part.text for part in found.items if part.state == "damaged"}


def test_an_undamaged_folder_passes(stopped: Path) -> None:
    found = verify(stopped)
    assert damaged(found) == {}
    assert found.usable == ["A service can start from this folder."]
    assert any("joined" in part.text for part in found.items)


@pytest.mark.parametrize("flips", [1, pytest.param(20, marks=pytest.mark.long(minutes=5))])
def test_flipped_bits_in_every_kind_of_file_are_named(flips: int, copy: Path) -> None:
    chance, seen = random.Random(4), set[str]()
    files = [path for path in sorted(copy.rglob("*")) if path.is_file() and path.name != "lock"]
    for path in files:
        intact = path.read_bytes()
        for _ in range(flips):
            place = chance.randrange(len(intact)) if path.name != "control" else chance.choice((30, 4096 + 30))
            data = bytearray(intact)
            data[place] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            found = verify(copy)
            if path.name == "control":
                assert any(part.name == "log/control" and part.state == "noted" for part in found.items)
            else:
                assert not found.intact, (path, place)
                # A flip in the last record of the log looks like an incomplete write, except for its control file.
                names = (str(path.relative_to(copy).parent), *(["length of the log"] if path.suffix == ".wal" else []))
                assert any(name.startswith(names) for name in damaged(found)), path
            seen.add(path.suffix or path.name)
        path.write_bytes(intact)
    assert seen >= {".wal", ".jsonl", ".json", ".safetensors", ".sha256", "control"}
    assert verify(copy).intact


def remove_segment(folder: Path) -> str:
    sorted((folder / LOG).glob("*.wal"))[1].unlink()
    return "the next segment begins with record"


def shorten(folder: Path) -> str:
    sorted((folder / LOG).glob("*.wal"))[-1].unlink()
    return "the log ends at record"


def remove_control(folder: Path) -> str:
    (folder / LOG / "control").unlink()
    return "it is missing"


def remove_serving(folder: Path) -> str:
    (folder / "versions" / "serving.jsonl").unlink()
    return "refers to it"


def swap_versions(folder: Path) -> str:
    first, second = sorted((folder / "versions").glob("step-*"))[:2]
    for path, other in ((first, "x"), (second, first.name), (first.with_name("x"), second.name)):
        path.rename(path.with_name(other))
    return "its digest differs from the one in the log"


@pytest.mark.parametrize("attack", [remove_segment, shorten, remove_control, remove_serving, swap_versions])
def test_contradictions_between_files_are_named(attack: Callable[[Path], str], copy: Path) -> None:
    message = attack(copy)
    found = verify(copy)
    assert any(message in text for text in damaged(found).values()), damaged(found)
    assert found.usable
    assert found.usable != ["A service can start from this folder."]


def state(service: FileService) -> dict[str, Any]:
    places = {name: place.last.reply for name, place in service.storage.state.territories.items() if place.last}
    serving = service.versions.serving
    return {
        "counts": service.storage.state.join.counts, "tally": service.storage.state.totals,
        "step": service.storage.trainer.step,
        "weights": weights_digest(service.storage.trainer.weights()), "serving": serving.digest if serving else None,
        "pinned": service.versions.pinned, "gate_only": service.versions.gate_only, "territories": places,
        "pending": sorted(service.storage.state.pending),
    }  # fmt: skip


@pytest.mark.parametrize("gate_only", [False, True])
def test_a_backup_starts_in_the_state_of_the_original(gate_only: bool, tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path / "ads", WORDS)
    run_visits(service, training, clock, 60)
    service.storage.save_snapshot()
    run_visits(service, training, clock, 30, seed=2)
    training.step()
    (open_one,) = ask(service, request(5e6, "open"))
    service.versions.set_gate_only(gate_only, "for the test")
    assert service.storage.log.wait(service.storage.log.last, 20)
    (tmp_path / "ads" / "tokens.json").write_text("{}")
    before, copied = state(service), backup(tmp_path / "ads", tmp_path / "copy")
    assert copied.records == service.storage.log.last
    assert (tmp_path / "copy" / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert verify(tmp_path / "copy").intact
    again, _, _ = start_service(tmp_path / "copy", WORDS)
    assert state(again) == before
    assert again.storage.notices == []
    assert again.report(click(open_one["decisionId"])).reply["type"] == "outcome_ack"
    again.storage.close()
    service.storage.close()


def test_a_backup_of_a_busy_service_is_consistent(tmp_path: Path) -> None:
    """Copy while another thread decides, learns, publishes and takes snapshots."""
    service, training, clock = start_service(tmp_path / "ads", [*WORDS, "learning.samples_per_insert=100"])
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        seed = 0
        try:
            while not stop.is_set():
                seed += 1
                run_visits(service, training, clock, 21, seed)
                service.storage.save_snapshot()
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for turn in range(4):
            copied = backup(tmp_path / "ads", tmp_path / f"copy {turn}")
            assert verify(tmp_path / "ads").intact, damaged(verify(tmp_path / "ads"))
            assert copied.records >= turn
    finally:
        stop.set()
        worker.join()
    assert not failed
    service.storage.close()
    original = list(read_events(tmp_path / "ads" / LOG))
    for turn in range(4):
        folder = tmp_path / f"copy {turn}"
        assert verify(folder).intact, damaged(verify(folder))
        found = list(read_events(folder / LOG))
        assert found == original[: len(found)]
        again, _, _ = start_service(folder, WORDS)
        assert not again.versions.fault
        assert again.storage.notices == []
        again.storage.close()
    assert all(one.same for one in replay_folder(tmp_path / "copy 3"))


def test_a_damaged_log_is_not_copied(copy: Path, tmp_path: Path) -> None:
    segment = sorted((copy / LOG).glob("*.wal"))[1]
    data = bytearray(segment.read_bytes())
    data[5000:9000] = bytes(4000)
    segment.write_bytes(data)
    with pytest.raises(TownletError, match=f"{segment.name} is damaged at byte"):
        backup(copy, tmp_path / "other")
    assert not list(tmp_path.glob("*other*"))


def test_a_backup_never_replaces_existing_files(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("x")
    with pytest.raises(TownletError, match="exists and is not empty"):
        backup(stopped, tmp_path / "there")
    with pytest.raises(TownletError, match="has no decision log"):
        backup(tmp_path / "there", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_both_commands_and_their_exit_codes(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    townlet = program(capsys, monkeypatch)
    done = townlet("decide", "backup", str(copy), str(tmp_path / "other"))
    assert done.code == 0
    assert "Copied to" in done.out
    (copy / "versions" / "serving.jsonl").write_bytes(b"nonsense\n")
    done = townlet("decide", "verify", str(copy), "--json")
    assert done.code == 1
    assert "line 1 of serving.jsonl is damaged" in done.out
    assert not json.loads(done.out)["intact"]
    done = townlet("decide", "verify", str(tmp_path / "none"))
    assert done.code == 2
    assert "has no decision log" in done.err


def assert_never_serves(folder: Path, version: int, message: str) -> None:
    """A start serves another version and gives the reason, and `verify` names this one."""
    service, training, _ = start_service(folder, WORDS)
    try:
        assert service.versions.serving is not None
        assert service.versions.serving.version != version
        assert any(message in alarm["what"] for alarm in ServiceStats(service, training).as_json()["alarms"])
    finally:
        service.storage.close()
    assert f"versions/{checkpoint.folder_name(version)}" in damaged(verify(folder))


def test_a_version_under_the_name_of_another_never_serves(copy: Path) -> None:
    older, newest = checkpoint.paths(copy / "versions")[-2:]
    shutil.rmtree(newest)
    shutil.copytree(older, newest)
    version = checkpoint.step_and_serial(newest)[0]
    assert_never_serves(copy, version, f"version {version - 1} under the name of {version}")


def test_a_version_of_another_service_never_serves(copy: Path, tmp_path: Path) -> None:
    newest = checkpoint.paths(copy / "versions")[-1]
    other, training, clock = start_service(tmp_path / "other", (*WORDS, "seed=9"))
    run_visits(other, training, clock, 20)
    while checkpoint.step_and_serial(newest)[0] not in other.versions.list_versions():
        training.publish()
    other.storage.close()
    shutil.rmtree(newest)
    shutil.copytree(tmp_path / "other" / "versions" / newest.name, newest)
    assert_never_serves(copy, checkpoint.step_and_serial(newest)[0], "belongs to another service")


def test_a_log_without_its_beginning_and_without_a_snapshot_is_refused_by_name(copy: Path) -> None:
    min((copy / LOG).glob("*.wal")).unlink()
    shutil.rmtree(copy / "snapshots")
    for _ in range(2):  # even if the loss is accepted
        with pytest.raises(TownletError, match=r"log begins with record \d+, but no intact snapshot covers"):
            start_service(copy, WORDS, accept_data_loss=True)


def test_a_version_that_is_published_during_the_check_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, training, _ = start_service(tmp_path / "ads", WORDS)

    def then_publish(*parts: Any) -> Any:
        found = check_events(*parts)
        service.versions.pin(training.publish().version)
        return found

    monkeypatch.setattr("townlet.decide.storage.verify.check_events", then_publish)
    assert damaged(verify(tmp_path / "ads")) == {}
    service.storage.close()


def test_a_damaged_snapshot_is_skipped_with_an_alarm_and_gives_the_same_state(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 20)
    service.storage.save_snapshot()
    before = service.storage.state.join.counts, weights_digest(service.storage.trainer.weights())
    service.storage.close()
    (snapshot,) = checkpoint.paths(tmp_path / SNAPSHOTS)
    state = snapshot / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    again, training, _ = start_service(tmp_path)
    assert (again.storage.state.join.counts, weights_digest(again.storage.trainer.weights())) == before
    alarms = [alarm for alarm in Alarms(again, training, ConnectionLimits()).active(0) if alarm.name == "snapshot"]
    assert [snapshot.name in alarm.what for alarm in alarms] == [True]
    again.storage.close()
