"""The decision log: a write-ahead log with group commit.

`append` never waits. A thread writes everything that is queued at once, with one fdatasync, and reports how far the log
is on the disk. Another thread writes the control data about once a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final

from townlet.decide.storage.control import ControlData, ReferenceCheck, open_log
from townlet.decide.storage.segments import RECORD, list_segments
from townlet.errors import TownletError
from townlet.runs import disk
from townlet.runs.lock import Lock

SEGMENT_BYTES: Final = 64 << 20  # bytes, after which a new file begins
MAX_PENDING_BYTES: Final = 64 << 20  # bytes that may wait for the disk
STALL_SECONDS: Final = 3.0  # seconds in which the disk must have taken what it was given
RETRY_SECONDS: Final = 1.0  # seconds between attempts while the disk fails
LOCK_CHECK_SECONDS: Final = 1.0  # seconds between two checks of the lock
CONTROL_SECONDS: Final = 5.0  # seconds between two writes of the control data: each delays one commit by an fsync
LOGGER: Final = logging.getLogger(__name__)


class LogStopped(TownletError):
    """Nothing can be appended now; the text says why."""


class WriteAheadLog:
    """A folder of segments, open for writing. One process writes; `read` needs no leave.

    Records have numbers 1, 2, … in the order of the calls. While the disk fails `problem` says so and nothing more is
    taken; what was taken before waits and is written once the disk works again.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, max_pending_bytes: int = MAX_PENDING_BYTES,
        retry: float = RETRY_SECONDS,
        *, accept_data_loss: bool = False, check: ReferenceCheck | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._most, self._retry = max_pending_bytes, retry
        try:
            disk.make_folder(folder)
        except OSError as error:
            raise disk.describe_error(error, f"cannot make {folder}") from error
        self._lock = Lock(folder)
        self._lock.acquire()
        try:
            opened = open_log(folder, segment_bytes, accept_data_loss, check)
        except BaseException:
            self._lock.release()
            raise
        self.log_id, self._control, self.known, self._tail, self.notices = opened
        for notice in self.notices:
            LOGGER.warning("%s. %s", notice.what, notice.fix)
        self.last = self.synced = self._tail.synced  # the last record that was taken, and that the disk has
        self.problem: str | None = None
        self.control_problem: str | None = None  # why the control data could not be written
        self._waiting: list[bytes] = []  # until the disk has them
        self._since = 0.0  # when the disk was last asked for something, in seconds that never go back
        self._size = 0  # bytes of these
        self._closing = False
        self._misplaced: str | None = None  # why nothing is taken while another folder is at this path
        self._held = 0  # how many hold back what they append until they have all of it
        self._subscribers: tuple[Callable[[int], None], ...] = ()
        self._mutex, self._control_mutex = threading.Lock(), threading.Lock()
        self._arrived, self._moved = threading.Condition(self._mutex), threading.Condition(self._mutex)
        self._closed = threading.Event()
        self._segment = self._tail.segment  # its first record, and its bytes on the disk
        self._serving, self._oldest = (self.known.serving, self.known.gate_only), self.known.oldest
        self.write_control()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        self._keeper = threading.Thread(target=self._keep_control, name="log control", daemon=True)
        self._keeper.start()

    def append(self, payload: bytes) -> int:
        """Take a record, without any waiting; its number. Raises `LogStopped` while nothing can be taken."""
        with self._mutex:
            if self._closing or self.problem:
                raise LogStopped(self.problem or "the log is closed")
            size = RECORD.size + len(payload)
            if self._size + size > self._most:
                self._overrun(size)
            self._waiting.append(payload)
            self._size += size
            self.last += 1
            if not self._held:
                self._arrived.notify()
            return self.last

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What is appended meanwhile goes to the disk in one piece, at the end: it is asked once for all of it."""
        with self._mutex:
            self._held += 1
        try:
            yield
        finally:
            with self._mutex:
                self._held -= 1
                if self._waiting:
                    self._arrived.notify()

    def _overrun(self, size: int) -> None:
        """More comes than the disk can take: nothing more until it has taken something."""
        if size > self._most:
            raise ValueError(f"a record of {size} bytes is more than may ever wait ({self._most})")
        self.problem = f"the disk is too slow: {self._size} bytes wait for it already; less traffic or a faster disk"
        raise LogStopped(self.problem)

    def check_stall(self) -> None:
        """To be called now and then: a disk that does not come back is a problem like one that fails."""
        with self._mutex:
            if (
                self._waiting
                and self.problem is None
                and self._since
                and time.monotonic() - self._since > STALL_SECONDS
            ):
                self.problem = f"the disk has not answered for {STALL_SECONDS:g} s; look at it, or at what else uses it"

    def subscribe(self, callback: Callable[[int], None]) -> None:
        """From now on tell `callback` what `synced` is, whenever it moved, in the thread that writes."""
        with self._mutex:
            self._subscribers = (*self._subscribers, callback)

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Wait until the disk has this record; whether it has."""
        with self._mutex:
            self._moved.wait_for(lambda: self.synced >= number or not self._thread.is_alive(), timeout)
            return self.synced >= number

    def drop_before(self, number: int) -> None:
        """Remove the segments that end before this record; the oldest first, so that no gap can arise."""
        segments = list_segments(self.folder)
        firsts = [segment.first for segment in segments if segment.first <= number]
        self._oldest = max([self._oldest, *firsts])
        self.write_control()  # first: otherwise segments would seem to be missing after a crash
        if self.control_problem:  # also where another folder took the place of this one
            raise TownletError(f"old parts of the log are kept: {self.control_problem}")
        try:
            for segment, following in pairwise(segments):
                if following.first <= number:
                    segment.path.unlink(missing_ok=True)
                    disk.sync_folder(self.folder)  # after each: power loss must not leave a gap
        except OSError as error:
            raise disk.describe_error(error, f"cannot remove old parts of the log in {self.folder}") from error

    def close(self) -> None:
        """Write what waits, and let the folder go. Raises `LogStopped` if the disk did not take all."""
        with self._mutex:
            self._closing = True
            self._arrived.notify()
        self._thread.join()
        with self._mutex:
            self._moved.notify_all()
        if not self._closed.is_set():
            self._closed.set()
            self._keeper.join()
            self.write_control()
        self._control.close()
        self._tail.close()
        self._lock.release()
        if self._waiting:
            lost, self._waiting = len(self._waiting), []
            raise LogStopped(f"{lost} records could not be written: {self.problem}")

    def set_serving(self, number: int, gate_only: bool) -> None:
        """Also store the state of the serving record in the control data."""
        self._serving = number, gate_only
        self.write_control()

    def write_control(self) -> None:
        """Write the control data now. A failure is stored in `control_problem` and retried within a second."""
        with self._control_mutex:
            with self._mutex:
                synced, (segment, size) = self.synced, self._segment
            try:
                self._lock.check()
                self._control.write(ControlData(self.log_id, synced, self._oldest, segment, size, *self._serving))
                self.control_problem = None
            except OSError as error:
                self.control_problem = str(
                    disk.describe_error(error, f"cannot write the control data in {self.folder}")
                )
            except TownletError as error:
                self.control_problem = str(error)

    def check_lock(self) -> None:
        """Take no more records while the path does not name the locked folder."""
        misplaced = None
        try:
            self._lock.check()
        except TownletError as error:
            misplaced = str(error)
        with self._mutex:
            if misplaced or self._misplaced:
                self.problem = misplaced
            self._misplaced = misplaced

    def _keep_control(self) -> None:
        """Check the lock and write the control data now and then, in a separate thread: commits wait for neither.

        Commits in between cannot reach another folder, since they write to an open file of this one.
        """
        due = time.monotonic() + CONTROL_SECONDS
        while not self._closed.wait(LOCK_CHECK_SECONDS):
            self.check_lock()
            written = self._control.written
            if self.control_problem or written is None or (written.synced != self.synced and time.monotonic() >= due):
                self.write_control()
                due = time.monotonic() + CONTROL_SECONDS

    def _run(self) -> None:
        while True:
            with self._mutex:
                while not self._waiting and not self._closing:
                    self._arrived.wait()
                if not self._waiting:
                    return
                records, self._since = self._waiting[:], time.monotonic()
            try:
                if self._tail.is_full:
                    self._lock.check()  # the next segment is created by its path
                count = self._tail.put(records)
            except Exception as error:  # whatever it is, this thread may not die of it
                if not self._failed(error):
                    return
            else:
                self._move(count, RECORD.size * count + sum(map(len, records[:count])))

    def _failed(self, error: Exception) -> bool:
        """Say what is wrong, and wait for the next attempt: whether there is one. The last is made while closing."""
        doing = f"cannot write the log in {self.folder}"
        if isinstance(error, OSError):
            error = disk.describe_error(error, doing)
        wrong = error if isinstance(error, TownletError) else f"{doing}: {error!r}"
        with self._mutex:
            self.problem = str(wrong)
            if self._closing:
                return False
            self._arrived.wait_for(lambda: self._closing, self._retry)
            return True

    def _move(self, count: int, size: int) -> None:
        with self._mutex:
            del self._waiting[:count]
            self._size -= size
            self.synced, self._segment = self._tail.synced, self._tail.segment
            self.problem = self._misplaced
            self._moved.notify_all()
            subscribers = self._subscribers
        for callback in subscribers:
            try:
                callback(self.synced)
            except Exception:
                LOGGER.exception("a subscriber of the log failed")

    def __enter__(self) -> WriteAheadLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LogStopped:
            if error is None:  # else something else is told already
                raise
