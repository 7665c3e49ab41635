"""Attacks on the decision log: holes, missing records, folders that were cut, copied or written by another release."""

from __future__ import annotations

import os
import random
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

import warm
from decide.ads_service import ask, click, request, run_visits, start_service
from runs.test_disk import may_mount
from townlet.decide.storage.log import WriteAheadLog
from townlet.decide.storage.segments import HEADER, RECORD, list_segments, read_records
from townlet.decide.storage.verify import verify
from townlet.errors import TownletError

FULL_DISK = Path(__file__).with_name("restart_on_full_disk.py")
HOLES = tuple(512 << power for power in range(0, 12))  # 512 B to 1 MiB


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 4 MB in one segment, written in many groups, and closed."""
    folder, chance = tmp_path_factory.mktemp("holes") / "log", random.Random(1)
    with closing(WriteAheadLog(folder)) as log:
        while log.last < 4000:
            with log.batch():
                for _ in range(chance.randint(1, 8)):
                    log.append(b'{"seen":%d,' % log.last + b'"rest":"' + chance.randbytes(500).hex().encode())
            log.wait(log.last)
    return folder


def holes(data: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """Damaged copies of a file, each with the byte at which the damage begins."""
    chance = random.Random(2)
    for turn in range(count):
        size = HOLES[turn % len(HOLES)]
        at = chance.randrange(0, len(data)) // 512 * 512
        fill = bytes(size) if turn % 2 else chance.randbytes(size)
        yield at, (data[:at] + fill + data[at + size :])[: len(data)]


@pytest.mark.parametrize("count", [24, pytest.param(400, marks=pytest.mark.long(minutes=3))])
def test_a_hole_in_the_decision_log_is_reported_and_nothing_is_truncated(count: int, long_log: Path) -> None:
    (segment,) = list_segments(long_log)
    intact = segment.path.read_bytes()
    try:
        for at, data in holes(intact, count):
            segment.path.write_bytes(data)
            with pytest.raises(TownletError) as refusal:
                WriteAheadLog(long_log)
            message = str(refusal.value)
            assert segment.path.read_bytes() == data
            if "is damaged at byte" in message:
                byte = int(message.split("at byte ")[1].split(":")[0])
                assert byte <= at + 512  # the record in which the hole begins
                assert at < byte + RECORD.size + 2000 or byte == 0
            else:  # up to the end of the file: the control file names its last record
                assert "refers to record 4" in message
    finally:
        segment.path.write_bytes(intact)
    assert sum(1 for _ in read_records(long_log)) >= 4000


def test_a_hole_is_named_with_the_records_that_are_lost(long_log: Path) -> None:
    (segment,) = list_segments(long_log)
    intact = segment.path.read_bytes()
    try:
        segment.path.write_bytes(intact[:1_000_000] + bytes(65536) + intact[1_065_536:])
        with pytest.raises(TownletError, match=r"damaged at byte \d+: record (\d+) .*\(records \1 to \d+ are lost\)"):
            WriteAheadLog(long_log)
    finally:
        segment.path.write_bytes(intact)


def cut(folder: Path, last: int) -> None:
    """Shorten the log to this record."""
    (segment,) = list_segments(folder)
    end = HEADER.size + sum(RECORD.size + len(payload) for number, payload in read_records(folder) if number <= last)
    segment.path.write_bytes(segment.path.read_bytes()[:end])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def referred_by_control(folder: Path) -> None:
    shutil.rmtree(folder / "versions")


def referred_by_snapshot(folder: Path) -> None:
    (folder / "log" / "control").unlink()
    shutil.rmtree(folder / "versions")


def referred_by_version(folder: Path) -> None:
    (folder / "log" / "control").unlink()
    (folder / "versions" / "serving.jsonl").unlink()
    shutil.rmtree(folder / "snapshots")


@pytest.mark.parametrize(
    ("refer", "source"),
    [
        (referred_by_control, "its control file"),
        (referred_by_snapshot, "snapshots/step-"),
        (referred_by_version, "versions/step-"),
    ],
)
def test_a_shortened_log_is_refused_until_the_loss_is_accepted(
    refer: Callable[[Path], None], source: str, tmp_path: Path
) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 30)
    service.storage.save_snapshot()
    training.publish()
    lost = ask(service, request(5e6, "lost"))[0]["decisionId"]
    service.storage.close()
    cut(tmp_path / "log", 40)
    refer(tmp_path)
    before = contents(tmp_path)
    wrong = rf"the log ends at record 40, but {source}.* refers to record \d+.*missing; .*--accept-data-loss"
    with pytest.raises(TownletError, match=wrong):
        start_service(tmp_path)
    assert contents(tmp_path) == before
    again, _, _ = start_service(tmp_path, accept_data_loss=True)
    assert any(notice.name == "data_loss" for notice in again.storage.notices)
    if refer is not referred_by_control:
        assert list(tmp_path.glob("set-aside-*/*/step-*/manifest.json"))
    for turn in range(40):  # until the number of the lost decision is given again
        ask(again, request(float(turn), "new"))
    assert again.report(click(lost)).reply["code"] == "UNKNOWN_DECISION"
    again.storage.close()


def test_ids_of_a_copied_folder_are_unknown_to_the_other_copy(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path / "one")
    common = ask(service, request(1.0))[0]["decisionId"]
    service.storage.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copies = [start_service(tmp_path / name)[0] for name in ("one", "two")]
    ids = [ask(copy, request(2.0))[0]["decisionId"] for copy in copies]
    assert ids[0].split("-")[1] == ids[1].split("-")[1] == "2"
    for copy, foreign in zip(copies, reversed(ids), strict=True):
        assert copy.report(click(foreign)).reply["code"] == "UNKNOWN_DECISION"
        assert copy.report(click(common)).reply["type"] == "outcome_ack"
        assert copy.storage.state.join.counts.joined == 1
        copy.storage.close()


def test_an_id_cannot_be_guessed_from_another(tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    ids = [ask(service, request(float(turn)))[0]["decisionId"] for turn in range(3)]
    epoch, _, tag = ids[0].split("-")
    for guess in (f"{epoch}-2-{tag}", f"{epoch}-2", f"{epoch}-02-{tag}", f"{epoch}-2-{'0' * 16}"):
        assert service.report(click(guess)).reply["code"] == "UNKNOWN_DECISION"
    assert service.storage.state.join.counts.joined == 0
    assert len({id.split("-")[2] for id in ids}) == 3
    service.storage.close()


def test_a_folder_of_format_1_is_refused_by_name(tmp_path: Path) -> None:
    """As written by format 1: the header and a record without a number."""
    folder = tmp_path / "log"
    folder.mkdir()
    start = struct.pack("<8sIQ", b"townlog\n", 1, 1)
    payload = b'["begun","a1b2c3",{"domain":"bandit-ads"},1.0]'
    record = struct.pack("<II", len(payload), crc32(payload, crc32(struct.pack("<Q", 1)))) + payload
    path = folder / "log-000000000001.wal"
    path.write_bytes(start + struct.pack("<I", crc32(start)) + record)
    with pytest.raises(TownletError, match=r"wal has format 1, and this release reads format 3 only; use the release"):
        start_service(tmp_path)
    assert path.read_bytes().endswith(payload)


def test_a_folder_of_another_commit_with_the_same_format_is_refused(tmp_path: Path) -> None:
    with closing(WriteAheadLog(tmp_path / "log")) as log:
        log.append(b'["servicestarted","%s",{"domain":"bandit-ads"},1.0,"0123456789abcdef"]' % (b"ab" * 16))
    with pytest.raises(TownletError, match="the log was written by another version of Townlet, with other events"):
        start_service(tmp_path)


def test_a_flood_of_duplicate_reports_does_not_grow_the_log(tmp_path: Path) -> None:
    """Ignored reports are counted, and logged at most once a second."""
    service, _, clock = start_service(tmp_path)
    id = ask(service, request(1.0))[0]["decisionId"]
    service.report(click(id))
    late = ask(service, request(2.0))[0]["decisionId"]
    clock.now += 60
    service.storage.maintain()
    record, foreign = service.storage.log.last, id[:-1] + ("0" if id[-1] != "0" else "1")
    for _ in range(3000):
        assert service.report(click(id)).reply == {"type": "outcome_ack", "decisionId": id}
        service.report(click(late))
        service.report(click(foreign))
    assert service.storage.log.last == record
    service.storage.maintain()
    service.storage.maintain()
    assert service.storage.log.last == record + 1
    counts = service.storage.state.join.counts
    assert (counts.joined, counts.duplicates, counts.late, counts.balanced) == (1, 3000, 3000, True)
    service.report(click(id))
    service.storage.close()
    again, _, _ = start_service(tmp_path)
    assert again.storage.state.join.counts.duplicates == 3001  # a clean end writes the rest
    assert again.storage.state.join.counts.late == 3000
    again.storage.close()


@pytest.mark.parametrize("restart", ["none", "log", "snapshot"])
def test_a_contradicting_duplicate_has_a_separate_code_and_changes_nothing(restart: str, tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path)
    first, second, third = (ask(service, request(float(turn)))[0]["decisionId"] for turn in range(3))
    for report in (click(first, True), click(second, False), click(third, shown=False)):
        assert service.report(report).reply["type"] == "outcome_ack"
    if restart == "snapshot":
        service.storage.save_snapshot()
    if restart != "none":
        service.storage.close()
        service, _, _ = start_service(tmp_path)
    before = service.storage.state.totals
    for report in (click(first, False), click(second, True), click(first, shown=False), click(third, True)):
        assert service.report(report).reply["code"] == "CONTRADICTING_REPORT"
    for report in (click(first, True), click(second, False), click(third, shown=False)):
        assert service.report(report).reply["type"] == "outcome_ack"
    counts = service.storage.state.join.counts
    assert (counts.joined, counts.failed, counts.contradicting, counts.duplicates) == (2, 1, 4, 3)
    assert service.storage.state.totals == before
    service.storage.close()


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a tmpfs in a separate namespace")
def test_a_restart_on_a_full_disk_learns_nothing_until_space_is_freed(tmp_path: Path) -> None:
    command = [sys.executable, str(FULL_DISK), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the helpers of the tests, too
    done = warm.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the disk is full; free some space there") == 2  # after a clean end, and after a crash
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("alarms")] == ["log", "log"]
    assert done.stdout.count("decisions: 1\n") == 2


def test_a_damaged_log_can_be_continued_before_the_damage_and_no_file_is_deleted(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["segment_bytes=16384"])
    run_visits(service, training, clock, 60)
    service.storage.close()
    damaged = list_segments(tmp_path / "log")[1]
    data = bytearray(damaged.path.read_bytes())
    data[5000:6000] = bytes(1000)
    damaged.path.write_bytes(data)
    with pytest.raises(TownletError, match=f"{damaged.path.name} is damaged at byte"):
        list(read_records(tmp_path / "log"))
    names = [segment.path.name for segment in list_segments(tmp_path / "log")[1:]]
    again, _, _ = start_service(tmp_path, ["segment_bytes=16384"], accept_data_loss=True)
    assert any("is damaged at byte" in notice.what for notice in again.storage.notices)
    assert again.storage.state.join.counts.balanced
    assert ask(again, request(9e6, "new"))[0]["type"] in ("ad_decision", "no_ad")
    again.storage.close()
    assert sorted(path.name for path in (tmp_path / "log").glob("set-aside-*/*")) == names
    assert (next((tmp_path / "log").glob("set-aside-*")) / damaged.path.name).read_bytes() == data
    assert verify(tmp_path).intact
    later, _, _ = start_service(tmp_path, ["segment_bytes=16384"])  # an ordinary start
    assert later.storage.notices == []
    assert not later.versions.gate_only
    later.close()
