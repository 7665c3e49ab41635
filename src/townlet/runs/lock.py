"""One writer for each run: a lock that the kernel takes back from the dead, and a note of who holds it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from townlet.errors import Mark, TownletError
from townlet.runs import disk

FILE: Final = "lock"
PATIENCE: Final = 0.25  # seconds: `holder` looks by taking a shared lock for an instant
_held: set[Lock] = set()


class Lock:
    """The right to write in a run's folder, as a context manager. Held until released or until the process ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say who holds it. The file stays when it is released: only its lock counts."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk.explained(error, f"cannot lock {self.path.parent}") from error
        try:
            _flock(descriptor, fcntl.LOCK_EX, PATIENCE)
            _note(descriptor, {"pid": os.getpid(), "host": socket.gethostname(), "started": _now()})
        except BlockingIOError:
            os.close(descriptor)
            raise self._refusal() from None
        except OSError as error:
            os.close(descriptor)
            raise disk.explained(error, f"cannot lock {self.path.parent}") from error
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            self._drop()

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self)

    def _refusal(self) -> TownletError:
        who = describe(_read(self.path))
        fix = "wait until it ends, stop it, or begin another run"
        return TownletError(f"another process writes this run: {who}", fix, Mark(str(self.path.parent)))

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(folder: Path) -> dict[str, Any] | None:
    """Who writes in this folder now (pid, host, started), or None. What a dead process noted does not count."""
    path = folder / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        _flock(descriptor, fcntl.LOCK_SH, 0.0)
    except BlockingIOError:
        return _read(path)
    except OSError:
        return None
    else:
        return None
    finally:
        os.close(descriptor)


def describe(who: dict[str, Any]) -> str:
    """A holder in words."""
    if not who:
        return "it has not left its name"
    return f"process {who.get('pid')} on {who.get('host')}, since {who.get('started')}"


def _flock(descriptor: int, kind: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= deadline:
                raise BlockingIOError(error.errno, "locked") from None
        time.sleep(0.01)


def _note(descriptor: int, who: dict[str, Any]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(who).encode(), 0)


def _read(path: Path) -> dict[str, Any]:
    """The note, or nothing when it is just being written."""
    try:
        found = json.loads(disk.read_bounded(path, 4096))
    except (ValueError, TownletError):
        return {}
    return found if isinstance(found, dict) else {}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _forget() -> None:
    """A forked child shares its parent's lock and would keep it beyond the parent's death."""
    for lock in list(_held):
        lock._drop()


os.register_at_fork(after_in_child=_forget)
