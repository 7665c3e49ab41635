"""One writer per folder: a kernel lock on the folder itself, and a note that names the process which holds the lock.

The lock is flock(2) on a descriptor of the folder: the kernel releases it when the process ends, and removing the note
(the file `lock`) changes nothing. Where a file system cannot lock folders (NFS), the file is locked instead.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from townlet.errors import TownletError
from townlet.runs import disk

LOCK_FILE: Final = "lock"  # holds pid, host and start of the writer
TIMEOUT: Final = 0.25  # seconds; `lock_holder` takes a shared lock for an instant, which must not fail `acquire`
UNSUPPORTED_ERRNOS: Final = (errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK)
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_held: set[Lock] = set()


class Lock:
    """Exclusive write lock on a folder, as a context manager. Held until released or until the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK_FILE
        self._descriptors: list[int] = []  # of the folder and of the file `lock`
        self._identity: dict[Path, tuple[int, int]] = {}  # device and inode of the locked paths

    def acquire(self) -> None:
        """Take the lock, or raise an error that names its holder."""
        opened: list[int] = []
        try:
            opened.append(os.open(self.folder, FOLDER_FLAGS))
            opened.append(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            folder, note = opened
            locked = [folder]
            try:
                _flock(folder, fcntl.LOCK_EX, TIMEOUT)
            except OSError as error:
                if error.errno not in UNSUPPORTED_ERRNOS:
                    raise
                locked = [folder, note]  # the file system cannot lock folders: lock the file instead
            _flock(note, fcntl.LOCK_EX, TIMEOUT)  # older releases lock only this file
            with suppress(OSError):  # on a full disk the lock is valid without its note
                started = datetime.now(UTC).isoformat(timespec="seconds")
                holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
                os.ftruncate(note, 0)
                os.pwrite(note, json.dumps(holder).encode(), 0)
        except OSError as error:
            for descriptor in opened:
                _close(descriptor)
            if isinstance(error, BlockingIOError):
                raise self._refusal() from None
            raise disk.describe_error(error, f"cannot lock {self.folder}") from error
        self._descriptors = opened
        self._identity = dict(zip((self.folder, self.path), map(_identity, map(os.fstat, locked)), strict=False))
        _held.add(self)

    def check(self) -> None:
        """Raise unless the path still names the locked folder; call it before each commit (one stat, about 3 µs).

        Without it, a writer whose folder was moved away would write into the folder that took its place.
        """
        if not self._descriptors:
            raise TownletError("the lock of this folder is not held", "open the folder again", self.folder)
        for path, locked in self._identity.items():
            try:
                found = _identity(os.stat(path))
            except FileNotFoundError:
                raise self._lost("the folder or its lock was moved or removed while this process wrote there") from None
            except OSError as error:
                raise disk.describe_error(error, f"cannot reach {path}") from error
            if found != locked:
                raise self._lost("the folder was replaced by another one while this process wrote there")

    def release(self) -> None:
        """Release the lock; does nothing when it is not held."""
        for note in self._descriptors[1:]:
            with suppress(OSError):  # without a lock the note has no meaning
                os.ftruncate(note, 0)
        self._drop()

    def _drop(self) -> None:
        for descriptor in self._descriptors:
            _close(descriptor)
        self._descriptors, self._identity = [], {}
        _held.discard(self)

    def _refusal(self) -> TownletError:
        holder = "its id is unknown"
        if note := _read_note(self.path):
            holder = f"process {note.get('pid')} on {note.get('host')}, since {note.get('started')}"
        fix = "wait until it ends, or stop it"
        return TownletError(f"another process is writing to this folder: {holder}", fix, self.folder)

    def _lost(self, what: str) -> TownletError:
        fix = "nothing more is written; move the folder back to this path, or continue at its new path"
        return TownletError(what, fix, self.folder)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock_holder(folder: Path) -> dict[str, Any] | None:
    """The process that writes in this folder (pid, host, started; empty if there is no note), or None."""
    path = folder / LOCK_FILE
    if _locked(folder, FOLDER_FLAGS) or _locked(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC):
        return _read_note(path)
    return None


def _locked(path: Path, flags: int) -> bool:
    """Whether another descriptor holds an exclusive lock on this file or folder."""
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        _flock(descriptor, fcntl.LOCK_SH, 0.0)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _flock(descriptor: int, kind: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
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


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _read_note(path: Path) -> dict[str, Any]:
    """The note in the file `lock`; empty if it is missing or being written."""
    try:
        found = json.loads(disk.read_bounded(path, 4096))
    except (ValueError, TownletError):
        return {}
    return found if isinstance(found, dict) else {}


def _close(descriptor: int) -> None:
    """Close a descriptor, which releases its lock even if the disk reports an error."""
    with suppress(OSError):
        os.close(descriptor)


def _drop_in_child() -> None:
    """Close inherited locks in a forked child, which would otherwise hold them after its parent has released them."""
    for lock in list(_held):
        lock._drop()


os.register_at_fork(after_in_child=_drop_in_child)
