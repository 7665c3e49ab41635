"""One writer per run; the lock of a dead process is free."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from townlet.errors import TownletError
from townlet.runs.lock import LOCK_FILE, Lock, lock_holder


def hold_in_child(folder: Path) -> int:
    """Process id of a child that holds the lock until it is killed."""
    child = os.fork()
    if not child:
        Lock(folder).acquire()
        wait_for_kill()
    deadline = time.monotonic() + 10
    while not lock_holder(folder):
        if time.monotonic() > deadline:
            kill(child)
            pytest.fail("the child does not hold the lock")
        time.sleep(0.005)
    return child


def wait_for_kill() -> None:
    """Wait to be killed; an alarm ends the child if the test fails."""
    signal.alarm(60)
    signal.pause()
    os._exit(0)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_second_writer_learns_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    child = hold_in_child(tmp_path)
    try:
        with pytest.raises(TownletError) as caught:
            Lock(tmp_path).acquire()
        assert f"process {child} on {socket.gethostname()}, since 2" in str(caught.value)
        who = lock_holder(tmp_path)
        assert who is not None
        assert who["pid"] == child
    finally:
        kill(child)


def test_lock_of_a_killed_process_is_acquired(tmp_path: Path) -> None:
    kill(hold_in_child(tmp_path))
    assert (tmp_path / LOCK_FILE).read_text()  # the note of the dead process is still there
    assert lock_holder(tmp_path) is None
    with Lock(tmp_path):
        who = lock_holder(tmp_path)
        assert who is not None
        assert who["pid"] == os.getpid()


def test_stopped_process_keeps_its_lock(tmp_path: Path) -> None:
    child = hold_in_child(tmp_path)
    try:
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(TownletError, match=f"process {child}"):
            Lock(tmp_path).acquire()
    finally:
        kill(child)


def test_one_process_cannot_acquire_the_lock_twice(tmp_path: Path) -> None:
    with Lock(tmp_path), pytest.raises(TownletError, match="another process is writing to this folder"):
        Lock(tmp_path).acquire()
    with Lock(tmp_path):
        pass
    assert lock_holder(tmp_path) is None


def test_orphaned_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    ready, orphan = os.pipe()
    child = os.fork()
    if not child:
        Lock(tmp_path).acquire()
        grandchild = os.fork()
        if not grandchild:
            wait_for_kill()
        os.write(orphan, str(grandchild).encode())
        wait_for_kill()
    grandchild = int(os.read(ready, 20))
    kill(child)
    try:
        with Lock(tmp_path):
            pass
    finally:
        os.kill(grandchild, signal.SIGKILL)
        os.close(ready)
        os.close(orphan)


@pytest.mark.parametrize("note", [b"", b"{", b"[1]", b"\xff" * 9000])
def test_damaged_lock_file_is_harmless(note: bytes, tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(note)
    assert lock_holder(tmp_path) is None
    with Lock(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(note)
        with pytest.raises(TownletError, match="its id is unknown"):
            Lock(tmp_path).acquire()


def test_symbolic_link_as_lock_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "other")
    with pytest.raises(TownletError, match="symbolic link"):
        Lock(tmp_path).acquire()
    assert (tmp_path / "other").read_text() == "precious"
