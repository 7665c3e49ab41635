"""Write-ahead log with group commit.

`append` never blocks. One thread writes all queued records together, with one fdatasync, and reports the last synced
record; another writes the control file every few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from townlet.decide.service_loop import ServiceLoop
from townlet.decide.storage.control import ControlData, ReferenceCheck, open_log
from townlet.decide.storage.segments import RECORD, list_segments, with_stops
from townlet.errors import TownletError
from townlet.runs import disk
from townlet.runs.lock import Lock

SEGMENT_BYTES: Final = 64 << 20  # size at which the next segment begins
MAX_PENDING_BYTES: Final = 64 << 20  # limit on records that are not synced yet
STALL_SECONDS: Final = 3.0  # a write that takes longer counts as a failure
RETRY_SECONDS: Final = 1.0  # pause between attempts while the disk fails
LOCK_CHECK_SECONDS: Final = 1.0  # between two checks of the lock
CONTROL_SECONDS: Final = 5.0  # between two writes of the control file, each of which delays a commit by an fsync
logger = logging.getLogger(__name__)


class LogStopped(TownletError):
    """Nothing can be appended at the moment; the message gives the reason."""


class WriteAheadLog:
    """A folder of segments, open for writing by one process. Readers need no lock.

    Records are numbered 1, 2, … in the order in which they are appended. While the disk fails, `problem` describes the
    failure and `append` raises; records accepted earlier stay in memory and are written once the disk works again.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, max_pending_bytes: int = MAX_PENDING_BYTES,
        retry: float = RETRY_SECONDS, *, accept_data_loss: bool = False, check: ReferenceCheck | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._max_pending_bytes, self._retry = max_pending_bytes, retry
        with disk.os_errors(f"cannot make {folder}"):
            disk.make_folder(folder)
        self._lock = Lock(folder)
        self._lock.acquire()
        try:
            self._control_file, self.control_at_start, self._writer, self.notices = open_log(
                folder, segment_bytes, accept_data_loss, check
            )
        except BaseException:
            self._lock.release()
            raise
        self.log_id = self.control_at_start.log_id
        for notice in self.notices:
            logger.warning("%s. %s", notice.what, notice.fix)
        self.last = self.synced = self._writer.synced  # the last accepted and the last synced record
        self.problem: str | None = None
        self.control_problem: str | None = None  # why the control file could not be written
        self._pending: list[bytes] = []  # accepted, but not synced
        self._pending_bytes = 0
        self._write_started = 0.0  # monotonic time
        self._closing = False
        self._misplaced: str | None = None  # error message while the path does not name the locked folder
        self._open_batches = 0
        self._oldest, self._next_segment = self.control_at_start.oldest, False
        self.on_commit: Callable[[int], object] = lambda synced: None  # called in the commit thread after every commit
        self._mutex, self._control_mutex = threading.Lock(), threading.Lock()
        self._appended, self._committed = threading.Condition(self._mutex), threading.Condition(self._mutex)
        self._closed = threading.Event()
        self._segment = self._writer.segment  # first record and synced bytes of the current segment
        self._serving = self.control_at_start.serving, self.control_at_start.gate_only
        self.write_control()
        self._control_due = time.monotonic() + CONTROL_SECONDS
        self._commit_thread = threading.Thread(target=self._commit_loop, name="log", daemon=True)
        self._commit_thread.start()
        # In a thread of its own, so that commits never wait. Commits cannot reach another folder in between, since they
        # write to an open file of this one.
        self.control_loop = ServiceLoop("log_control", self._check_control, LOCK_CHECK_SECONDS)
        self.control_loop.start()

    def append(self, payload: bytes) -> int:
        """Queue a record without blocking; returns its number. Raises `LogStopped` while the log is stopped."""
        with self._mutex:
            if self._closing or self.problem:
                raise LogStopped(self.problem or "the log is closed")
            size = RECORD.size + len(payload)
            if size > self._max_pending_bytes:
                limit = f"the limit of pending bytes ({self._max_pending_bytes})"
                raise ValueError(f"a record of {size} bytes exceeds {limit}")
            if self._pending_bytes + size > self._max_pending_bytes:
                pending = f"{self._pending_bytes} bytes are already waiting to be written"
                self.problem = f"the disk is too slow: {pending}; reduce the traffic or use a faster disk"
                raise LogStopped(self.problem)
            self._pending.append(payload)
            self._pending_bytes += size
            self.last += 1
            if not self._open_batches:
                self._appended.notify()
            return self.last

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Commit all records appended inside the block together, at its end."""
        with self._mutex:
            self._open_batches += 1
        try:
            yield
        finally:
            with self._mutex:
                self._open_batches -= 1
                if self._pending:
                    self._appended.notify()

    def check_stall(self) -> None:
        """Treat a write that does not return as a failure; called periodically."""
        with self._mutex:
            started = self._write_started
            if self._pending and self.problem is None and started and time.monotonic() - started > STALL_SECONDS:
                self.problem = f"the disk has not answered for {STALL_SECONDS:g} s; check it and what else uses it"

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Wait until this record is synced; returns whether it is."""
        with self._mutex:
            self._committed.wait_for(lambda: self.synced >= number or not self._commit_thread.is_alive(), timeout)
            return self.synced >= number

    def close(self) -> None:
        """Write pending records and release the folder. Raises `LogStopped` if some could not be written."""
        with self._mutex:
            self._closing = True
            self._appended.notify()
        self._commit_thread.join()
        with self._mutex:
            self._committed.notify_all()
        if not self._closed.is_set():
            self._closed.set()
            self.control_loop.stop()
            self.write_control()
        self._control_file.close()
        self._writer.close()
        self._lock.release()
        if self._pending:
            lost, self._pending = len(self._pending), []
            raise LogStopped(f"{lost} records could not be written: {self.problem}")

    @property
    def oldest(self) -> int:
        """The first record that is kept."""
        return self._oldest

    def begin_segment(self) -> None:
        """Write the next record into a new segment."""
        self._next_segment = True

    def remove_before(self, record: int) -> None:
        """Remove the segments whose records all have numbers up to this one, which a durable snapshot covers."""
        segments = with_stops(list_segments(self.folder))
        removed = [(segment.path, stop) for segment, stop in segments if stop is not None and stop <= record + 1]
        if not removed:
            return
        self._oldest = removed[-1][1]
        self.write_control()  # first: without it, missing segments are a loss of data
        if self.control_problem is None:
            with disk.os_errors(f"cannot remove old segments in {self.folder}"):
                for path, _ in removed:  # the oldest one first, so that a crash leaves no gap
                    path.unlink()
                    disk.sync_folder(self.folder)

    def set_serving(self, number: int, gate_only: bool) -> None:
        """Store the state of the serving log in the control file as well."""
        self._serving = number, gate_only
        self.write_control()

    def write_control(self) -> None:
        """Write the control file now. A failure is stored in `control_problem` and retried within a second."""
        with self._control_mutex:
            with self._mutex:
                synced, (segment, size) = self.synced, self._segment
            control = ControlData(self.log_id, synced, self._oldest, segment, size, *self._serving)
            try:
                self._lock.check()
                with disk.os_errors(f"cannot write the control file in {self.folder}"):
                    self._control_file.write(control)
                self.control_problem = None
            except TownletError as error:
                self.control_problem = str(error)

    def check_lock(self) -> None:
        """Stop the log while its path does not name the locked folder."""
        misplaced = None
        try:
            self._lock.check()
        except TownletError as error:
            misplaced = str(error)
        with self._mutex:
            if misplaced or self._misplaced:
                self.problem = misplaced
            self._misplaced = misplaced

    def _check_control(self) -> None:
        """Check the lock, and write the control file if it is due."""
        self.check_lock()
        written, due = self._control_file.written, time.monotonic() >= self._control_due
        if self.control_problem or written is None or (due and written.synced != self.synced):
            self.write_control()
            self._control_due = time.monotonic() + CONTROL_SECONDS

    def _commit_loop(self) -> None:
        while True:
            with self._mutex:
                while not self._pending and not self._closing:
                    self._appended.wait()
                if not self._pending:
                    return
                payloads, self._write_started = self._pending[:], time.monotonic()
            try:
                if self._next_segment:
                    self._next_segment = False
                    self._writer.close()
                if self._writer.is_full:
                    self._lock.check()  # the next segment is created by its path
                count = self._writer.write(payloads)
            except Exception as error:  # the commit thread must survive any error
                if not self._wait_for_retry(error):
                    return
            else:
                self._finish_commit(count, RECORD.size * count + sum(map(len, payloads[:count])))

    def _wait_for_retry(self, error: Exception) -> bool:
        """Publish the problem and wait for the next attempt; False if there is none, because the log is closing."""
        action = f"cannot write the log in {self.folder}"
        if isinstance(error, OSError):
            error = disk.describe_error(error, action)
        problem = error if isinstance(error, TownletError) else f"{action}: {error!r}"
        with self._mutex:
            self.problem = str(problem)
            if self._closing:
                return False
            self._appended.wait_for(lambda: self._closing, self._retry)
            return True

    def _finish_commit(self, count: int, size: int) -> None:
        with self._mutex:
            del self._pending[:count]
            self._pending_bytes -= size
            self.synced, self._segment = self._writer.synced, self._writer.segment
            self.problem = self._misplaced
            self._committed.notify_all()
        try:
            self.on_commit(self.synced)
        except Exception:  # the commit thread must survive any error
            logger.exception("a callback of the log failed")
