"""Run by test_log_crash.py: writes a log until it is killed, or on a full disk."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from zlib import crc32

from runs.small_disk import enter_namespaces
from townlet.decide.storage.log import LogStopped, WriteAheadLog
from townlet.decide.storage.segments import read_records

KIB = bytes(1000)


def write(folder: Path) -> None:
    """Append in three threads forever; acknowledge each record, with its checksum, once it is on disk."""
    mutex, given, acknowledged = threading.Lock(), dict[int, int](), 0

    def tell(synced: int) -> None:
        nonlocal acknowledged
        with mutex:
            lines = [f"{number} {given.pop(number)}\n" for number in range(acknowledged + 1, synced + 1)]
        acknowledged = synced
        os.write(1, "".join(lines).encode())

    def work(name: int) -> None:
        chance = random.Random()
        for turn in range(10**9):
            payload = f"{os.getpid()}.{name} {turn} ".encode() + chance.randbytes(chance.choice((0, 5, 300, 3000)))
            with mutex:
                given[log.append(payload)] = crc32(payload)
            if chance.random() < 0.3:
                time.sleep(chance.uniform(0, 0.002))

    log = WriteAheadLog(folder, segment_bytes=50_000)
    acknowledged = log.last
    log.on_commit = tell
    threads = [threading.Thread(target=work, args=[name]) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def killed(folder: Path, times: int) -> None:
    """Fork a writer and kill it at a random time, repeatedly; each continues the log of the previous one."""
    chance, acknowledged, last = random.Random(5), dict[int, int](), 0
    for turn in range(times):
        said = folder / f"acknowledged-{turn}"
        child = os.fork()  # this process has no other threads
        if not child:
            signal.alarm(60)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
            write(folder)
        while turn % 4 and not (said.exists() and said.stat().st_size):
            time.sleep(0.001)  # otherwise it may be killed while it opens the log
        time.sleep(chance.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
        lines = said.read_text().split("\n")[:-1] if said.exists() else []
        more = {int(number): int(check) for number, check in (line.split() for line in lines)}
        assert all(number > last for number in more), "a number was given twice"
        acknowledged |= more
        last = assert_whole(folder, acknowledged)
    with closing(WriteAheadLog(folder)) as log:
        assert log.last == last, "more was cut than a torn tail"
    assert assert_whole(folder, acknowledged) == last
    print("acknowledged:", len(acknowledged))
    print("segments:", len(list(folder.glob("log-*.wal"))))


def assert_whole(folder: Path, acknowledged: dict[int, int]) -> int:
    """Check that acknowledged records are intact, and that each thread wrote a prefix, once and in order."""
    turns: dict[bytes, int] = defaultdict(int)
    last = 0
    for number, payload in read_records(folder):
        last += 1
        assert number == last
        assert acknowledged.get(number, crc32(payload)) == crc32(payload), f"record {number} is another one"
        who, turn, _ = payload.split(b" ", 2)
        assert int(turn) == turns[who]
        turns[who] += 1
    assert last >= max(acknowledged, default=0), "an acknowledged record is lost"
    return last


def full(folder: Path) -> None:
    """On a small tmpfs that is enlarged later."""
    enter_namespaces()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(folder)], check=True)
    stopped(folder, lambda: subprocess.run(["mount", "-o", "remount,size=4m", str(folder)], check=True))


def limited(folder: Path) -> None:
    """With a file size limit below one record, which is lifted later."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, most))

    stopped(folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)), limit)


def stopped(folder: Path, make_room: Callable[[], object], take_room: Callable[[], object] | None = None) -> None:
    """Append until refused, read the log, free space, and continue; every accepted record must be there."""
    taken: list[bytes] = []

    def append() -> int:
        payload = f"{len(taken)} ".encode() + KIB
        number = log.append(payload)
        taken.append(payload)
        return number

    with closing(WriteAheadLog(folder, segment_bytes=30_000, retry=0.05)) as log:
        assert log.wait(append(), 10)
        if take_room:
            take_room()
        try:
            while True:
                append()
                time.sleep(0.0005)
        except LogStopped as error:
            print("refused:", error)
        time.sleep(0.3)  # some attempts
        print("problem:", log.problem)
        synced, found = log.synced, list(read_records(folder))
        assert 0 < synced < len(taken), (synced, len(taken))
        assert synced <= len(found)
        assert found == list(enumerate(taken, 1))[: len(found)]
        make_room()
        assert log.wait(log.last, 20), log.problem
        for _ in range(50):
            append()
    assert list(read_records(folder)) == list(enumerate(taken, 1))
    with closing(WriteAheadLog(folder)) as log:
        assert log.append(b"again") == len(taken) + 1
    print("problem afterwards:", log.problem)


if __name__ == "__main__":
    way, place = sys.argv[1], Path(sys.argv[2])
    if way == "killed":
        killed(place, int(sys.argv[3]))
    else:
        {"full": full, "limited": limited}[way](place)
