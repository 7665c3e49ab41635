"""The log: records are read back, a torn tail is set aside, damage is refused, and a failing disk loses nothing."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from time_limit import within
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.segments import HEADER, MARKER, RECORD, encode_record, read_records
from townlet.errors import TownletError

PAYLOADS = [b"one", b"", b"three" * 2, bytes(9), b"\xff" * 5, b"six"]
law = settings(deadline=None, derandomize=True, max_examples=25, database=None)


def fill(folder: Path, payloads: list[bytes], segment_bytes: int = 1 << 20) -> None:
    with closing(WriteAheadLog(folder, segment_bytes)) as log:
        for number, payload in enumerate(payloads, log.last + 1):
            assert log.append(payload) == number
            assert log.wait(number, 10)


def crashed(folder: Path, payloads: list[bytes]) -> None:
    """The same in a process that is killed right afterwards, so that the control file is outdated."""
    control = (folder / "control").read_bytes()
    fill(folder, payloads)
    (folder / "control").write_bytes(control)


def torn(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("torn-*.bin"))]


def content(folder: Path, after: int = 0) -> list[bytes]:
    """The payloads; checks that their numbers have no gap."""
    found = list(read_records(folder, after))
    assert [number for number, _ in found] == list(range(after + 1, after + 1 + len(found)))
    return [payload for _, payload in found]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("log-*.wal"))


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@law
@given(
    st.lists(st.lists(st.binary(max_size=60), max_size=12), max_size=5),
    st.integers(HEADER.size + 1, 1000),
    st.integers(0, 30),
)
def test_appended_records_are_read_again(sittings: list[list[bytes]], segment_bytes: int, after: int) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place, "log")
        wanted = [payload for sitting in sittings for payload in sitting]
        done = 0
        for sitting in sittings:
            with closing(WriteAheadLog(folder, segment_bytes)) as log:
                assert log.last == log.synced == done
                for payload in sitting:
                    done += 1
                    assert log.append(payload) == done
            assert content(folder) == wanted[:done]
        if sittings:
            assert content(folder, min(after, done)) == wanted[after:]
            for path in segments(folder)[:-1]:
                assert path.stat().st_size < segment_bytes + RECORD.size + 60


def test_segments_are_named_by_their_first_record(tmp_path: Path) -> None:
    fill(tmp_path, [b"x" * 40] * 7, segment_bytes=HEADER.size + 2 * (RECORD.size + 40))
    assert [path.name for path in segments(tmp_path)] == [f"log-{first:012d}.wal" for first in (1, 3, 5, 7)]


@pytest.mark.parametrize("cut", [1, 40])
def test_every_truncation_of_the_last_segment_leaves_a_prefix(cut: int, tmp_path: Path) -> None:
    """Read it, then reopen it: the next record follows the intact prefix."""
    fill(tmp_path, PAYLOADS[:2], segment_bytes=cut)
    control = (tmp_path / "control").read_bytes()
    crashed(tmp_path, PAYLOADS[2:])
    *_, last = segments(tmp_path)
    whole, before = last.read_bytes(), int(last.stem.removeprefix("log-")) - 1
    ends = [HEADER.size]
    for payload in PAYLOADS[before:]:
        ends.append(ends[-1] + RECORD.size + len(payload))
    assert ends[-1] == len(whole)
    synced = HEADER.size + sum(RECORD.size + len(payload) for payload in PAYLOADS[before:2])
    for length in range(len(whole) + 1):
        last.write_bytes(whole[:length])
        (tmp_path / "control").write_bytes(control)
        for path in tmp_path.glob("torn-*"):
            path.unlink()
        left = before + sum(end <= length for end in ends[1:])
        assert content(tmp_path) == PAYLOADS[:left]
        if left < 2:
            with pytest.raises(TownletError, match=f"ends at record {left}, but its control file refers to record 2"):
                WriteAheadLog(tmp_path)
            assert last.read_bytes() == whole[:length]
            continue
        cut_off = length - max([0, *(end for end in ends if end <= length)])
        with closing(WriteAheadLog(tmp_path)) as log:
            assert log.last == log.synced == left
            assert log.append(b"next") == left + 1
            assert bool(log.notices) == bool(cut_off)
        assert content(tmp_path) == [*PAYLOADS[:left], b"next"]
        assert torn(tmp_path) == ([whole[length - cut_off : length]] if cut_off else [])
        assert last.stat().st_size == max(HEADER.size, *(e for e in ends if e <= length), synced) + RECORD.size + 4


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    """In the last record, too: the control file of a clean end knows that it was on the disk."""
    fill(tmp_path, PAYLOADS[:3], segment_bytes=1)
    fill(tmp_path, PAYLOADS[3:])
    for path in segments(tmp_path):
        whole = path.read_bytes()
        in_last = path == segments(tmp_path)[-1]
        for place in range(len(whole)):
            for flipped in (whole[place] ^ 1, whole[place] ^ 0x80, whole[place] ^ 0xFF):
                path.write_bytes(whole[:place] + bytes([flipped]) + whole[place + 1 :])
                if in_last and place >= len(whole) - len(PAYLOADS[-1]) - RECORD.size:
                    assert content(tmp_path) == PAYLOADS[:-1]
                    with pytest.raises(TownletError, match="ends at record 5, but its control file refers to record 6"):
                        WriteAheadLog(tmp_path)
                    assert path.stat().st_size == len(whole)
                    continue
                with pytest.raises(TownletError, match=rf"{path.name} (is damaged at byte \d+|has format)"):
                    content(tmp_path)
                if in_last:
                    with pytest.raises(TownletError, match=rf"{path.name} (is damaged at byte \d+|has format)"):
                        WriteAheadLog(tmp_path)
                    assert path.stat().st_size == len(whole)
        path.write_bytes(whole)
    assert content(tmp_path) == PAYLOADS


def test_damage_names_the_byte_where_the_record_begins(tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS)
    (path,) = segments(tmp_path)
    third = HEADER.size + 2 * RECORD.size + len(PAYLOADS[0])
    data = bytearray(path.read_bytes())
    data[third + 15] = 0x70  # its length is now beyond the end of the file, as if the rest were missing
    path.write_bytes(data)
    with pytest.raises(
        TownletError, match=f"{path.name} is damaged at byte {third}: record 3 is unreadable, but record 4"
    ):
        WriteAheadLog(tmp_path)


def test_unwritten_blocks_are_a_torn_tail(tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS)
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    for zeros in (1, 7, 8, 9, 5000):
        path.write_bytes(whole + bytes(zeros))
        fill(tmp_path, [])
        assert path.read_bytes() == whole
    assert sorted(map(len, torn(tmp_path))) == [1, 7, 8, 9, 5000]


@pytest.mark.parametrize(
    "payload", [random.Random(1).randbytes(200_000), b'{"seen":12},' * 8_000, bytes(range(8)) * 4_000, MARKER * 30_000]
)
def test_a_large_torn_record_is_set_aside_with_any_content(payload: bytes, tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS)
    crashed(tmp_path, [payload])
    (path,) = segments(tmp_path)
    os.truncate(path, path.stat().st_size - 1)
    with closing(WriteAheadLog(tmp_path)) as log:
        assert log.append(b"next") == len(PAYLOADS) + 1
        (notice,) = log.notices
    assert f"{RECORD.size + len(payload) - 1} bytes after record {len(PAYLOADS)} of {path.name}" in notice.what
    assert content(tmp_path) == [*PAYLOADS, b"next"]
    assert torn(tmp_path) == [encode_record(len(PAYLOADS) + 1, payload)[:-1]]


def test_damage_is_refused_though_the_tail_is_torn_as_well(tmp_path: Path) -> None:
    payloads = [random.Random(number).randbytes(300) for number in range(20)]
    fill(tmp_path, payloads)
    (path,) = segments(tmp_path)
    whole, third = path.read_bytes()[:-1], HEADER.size + 2 * (RECORD.size + 300)
    for place in (third, third + 1, third + 3, third + 5, third + 100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        with pytest.raises(TownletError, match=f"damaged at byte {third}: "):
            WriteAheadLog(tmp_path)


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS, segment_bytes=1)
    segments(tmp_path)[2].unlink()
    found = read_records(tmp_path)
    assert [next(found), next(found)] == [(1, PAYLOADS[0]), (2, PAYLOADS[1])]
    with pytest.raises(TownletError, match=r"log-000000000002\.wal is damaged .* record 4 \(records 3 to 3 are lost"):
        next(found)


@pytest.mark.parametrize(
    ("version", "found"), [(1, struct.Struct("<8sIQI")), (4, struct.Struct("<8sIQ16xI"))], ids=["older", "newer"]
)
def test_a_format_of_another_release_is_named(version: int, found: struct.Struct, tmp_path: Path) -> None:
    fill(tmp_path, [b"x"])
    (path,) = segments(tmp_path)
    start = found.pack(b"townlog\n", version, 1, 0)[:-4]
    path.write_bytes(start + crc32(start).to_bytes(4, "little") + bytes(100))
    for act in (WriteAheadLog, content):
        with pytest.raises(TownletError, match=f"has format {version}, and this release reads format 3 only"):
            act(tmp_path)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with closing(WriteAheadLog(tmp_path)) as log:
        with pytest.raises(TownletError, match="another process is writing"):
            WriteAheadLog(tmp_path)
        log.append(b"x")
    fill(tmp_path, [b"y"])
    assert content(tmp_path) == [b"x", b"y"]


def test_a_refused_log_releases_the_lock(tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS)
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"?" + whole[1:])
    with pytest.raises(TownletError, match="its header is unreadable, but record 1"):
        WriteAheadLog(tmp_path)
    path.write_bytes(whole)
    fill(tmp_path, [])


def test_many_threads_append_and_each_is_acknowledged(tmp_path: Path) -> None:
    """Numbers follow the order of the file for all threads; subscribers are called in order."""
    given: dict[int, bytes] = {}
    committed: list[int] = []

    def work(name: int) -> None:
        for turn in range(200):
            payload = f"{name} {turn}".encode() * (turn % 7)
            number = log.append(payload)
            given[number] = payload
            if turn % 50 == 0:
                assert log.wait(number, 20)
                assert log.synced >= number

    with closing(WriteAheadLog(tmp_path, segment_bytes=4000)) as log:
        log.on_commit = committed.append
        threads = [threading.Thread(target=work, args=[name]) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.last == 1600
    assert dict(read_records(tmp_path)) == given
    assert committed == sorted(set(committed))
    assert committed[-1] == 1600
    assert len(committed) < 1600  # many were committed together


def test_failing_callback_does_not_stop_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    committed: list[int] = []

    def failing(synced: int) -> None:
        committed.append(synced)
        raise KeyError(synced)

    with closing(WriteAheadLog(tmp_path)) as log:
        log.on_commit = failing
        assert log.wait(log.append(b"x"), 10)
        assert log.wait(log.append(b"y"), 10)
    assert committed == [1, 2]
    assert "a callback of the log failed" in caplog.text


def test_waiting_times_out(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path)
    assert not log.wait(1, 0.01)
    waiter = threading.Thread(target=log.wait, args=[1])
    waiter.start()
    log.close()
    waiter.join(10)
    assert not waiter.is_alive()
    with pytest.raises(LogStopped, match="closed"):
        log.append(b"x")
    log.close()


def test_a_log_continues_its_numbers_although_the_last_header_is_torn(tmp_path: Path) -> None:
    fill(tmp_path, PAYLOADS[:5], segment_bytes=1)
    (tmp_path / "log-000000000006.wal").write_bytes(b"town")
    with closing(WriteAheadLog(tmp_path)) as log:
        assert log.last == 5
        assert log.append(b"again") == 6
    assert list(read_records(tmp_path))[-2:] == [(5, PAYLOADS[4]), (6, b"again")]


def test_reading_while_it_is_written_gives_a_prefix(tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            log.append(str(log.last + 1).encode() * 50)
            time.sleep(0)

    with closing(WriteAheadLog(tmp_path, segment_bytes=20_000)) as log:
        writer = threading.Thread(target=write)
        writer.start()
        lengths = [0]
        while lengths[-1] < 1000:
            synced = log.synced
            found = content(tmp_path)
            assert len(found) >= synced
            assert found == [str(number).encode() * 50 for number in range(1, len(found) + 1)]
            lengths.append(len(found))
        stop.set()
        writer.join()
    assert lengths == sorted(lengths)


class Disk:
    """Makes system calls fail while it is broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken: set[str] = set()
        self.failures = 0
        for name in ("write", "fdatasync", "ftruncate", "open"):
            monkeypatch.setattr(os, name, self._spied(name, getattr(os, name)))

    def _spied(self, name: str, real: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any, **named: Any) -> int:
            if name in self.broken and threading.current_thread().name == "log":
                self.failures += 1
                if name == "write" and len(args[1]) > 1:
                    real(args[0], args[1][:1])
                raise OSError(5, "injected")
            return real(*args, **named)

        return call


@pytest.mark.parametrize(
    "broken", [{"write"}, {"fdatasync"}, {"write", "open"}, {"fdatasync", "ftruncate"}, {"fdatasync", "open"}]
)
def test_a_failing_disk_stops_appending_and_loses_nothing(
    broken: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ftruncate` broken the old segment keeps what was never acknowledged; it is not read twice."""
    disk = Disk(monkeypatch)
    with closing(WriteAheadLog(tmp_path, retry=0.02)) as log:
        assert log.wait(log.append(b"before"), 10)
        for sitting in (1, 2):
            disk.broken, disk.failures = broken, 0
            numbers = [log.append(f"during {sitting}".encode())]
            until(lambda: log.problem)
            with pytest.raises(LogStopped, match="the disk reports an error"):
                log.append(b"never")
            until(lambda: disk.failures >= 5)
            assert not log.wait(numbers[0], 0.01)
            disk.broken = set()
            assert log.wait(numbers[0], 10)
            until(lambda: log.problem is None)
            assert log.append(f"after {sitting}".encode()) == numbers[0] + 1
            assert log.wait(numbers[0] + 1, 10)
    wanted = [b"before", b"during 1", b"after 1", b"during 2", b"after 2"]
    assert content(tmp_path) == wanted
    assert content(tmp_path, 3) == wanted[3:]
    if "ftruncate" not in broken:  # failed writes leave nothing behind
        assert segments(tmp_path)[0].stat().st_size == HEADER.size + RECORD.size + len(b"before")
    fill(tmp_path, [b"again"])
    assert content(tmp_path) == [*wanted, b"again"]


def test_records_appended_while_a_group_fails_are_kept_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third write fails while records are appended."""
    calls, failures, real, taken = count(), 0, os.fdatasync, list[bytes]()

    def failing(descriptor: int) -> None:
        nonlocal failures
        if next(calls) % 3 == 2:
            failures += 1
            raise OSError(28, "injected")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    with closing(WriteAheadLog(tmp_path, segment_bytes=300, retry=0.001)) as log:
        while failures < 30:
            payload = f"{len(taken)} ".encode() * (len(taken) % 5)
            try:
                log.append(payload)
            except LogStopped:
                time.sleep(0.001)
            else:
                taken.append(payload)
                time.sleep(0.0002)
        monkeypatch.setattr(os, "fdatasync", real)
        assert log.wait(log.last, 20)
    assert len(taken) > 30
    assert content(tmp_path) == taken


def test_closing_on_a_failing_disk_reports_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    log = WriteAheadLog(tmp_path)
    assert log.wait(log.append(b"kept"), 10)
    disk.broken = {"write"}
    log.append(b"lost")
    with pytest.raises(LogStopped, match=r"1 records could not be written: .* the disk reports an error"):
        log.close()
    disk.broken = set()
    assert content(tmp_path) == [b"kept"]
    fill(tmp_path, [b"next"])
    assert content(tmp_path) == [b"kept", b"next"]


def test_a_disk_that_is_too_slow_stops_appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, real = threading.Event(), os.fdatasync

    def slow(descriptor: int) -> None:
        go_on.wait(20)
        real(descriptor)

    with closing(WriteAheadLog(tmp_path, max_pending_bytes=1000)) as log:
        monkeypatch.setattr(os, "fdatasync", slow)
        for _ in range(8):
            log.append(bytes(100))
        with pytest.raises(LogStopped, match="too slow: 992 bytes are already waiting"):
            log.append(bytes(100))
        assert log.problem
        go_on.set()
        assert log.wait(8, 10)
        until(lambda: log.problem is None)
        assert log.append(bytes(100)) == 9
        with pytest.raises(ValueError, match="exceeds the limit of pending bytes"):
            log.append(bytes(1001))
    assert len(content(tmp_path)) == 9


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(TownletError, match=r"cannot make .*file/log: a file of that name already exists"):
        WriteAheadLog(tmp_path / "file" / "log")
    with pytest.raises(TownletError, match=r"cannot read the log in .*none: it does not exist"):
        list(read_records(tmp_path / "none"))


def test_appending_is_cheap_and_reading_fast(tmp_path: Path) -> None:
    """Generous bounds: they fail only for synchronous writes or a linear search."""
    payload, took = bytes(200), []
    with closing(WriteAheadLog(tmp_path)) as log:
        for _ in range(20_000):
            start = time.perf_counter()
            log.append(payload)
            took.append(time.perf_counter() - start)
    assert sorted(took)[10_000] < 100e-6
    with within(2.0):
        assert sum(1 for _ in read_records(tmp_path)) == 20_000
