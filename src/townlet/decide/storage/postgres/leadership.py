"""Election of the learner: one process leads, all others that may learn are standbys.

The leader holds an advisory lock of its session, and renews its lease. A standby that finds the lease expired ends the
session of the leader, for example because that process was paused. Each new leader increases the epoch, so whatever
the former one still tries to write is refused.
"""

from __future__ import annotations

import logging
from typing import Final

from townlet.decide.storage.availability import StorageUnavailable
from townlet.decide.storage.postgres.database import Database

LEADER_LOCK: Final = 0x6C65616465720001  # "leader"
LEASE_SECONDS: Final = 8.0  # after which a leader that does not renew is replaced
RENEW_SECONDS: Final = 1.0
logger = logging.getLogger(__name__)

# Ends the session of a leader whose lease has expired; its lock is free as soon as the session has ended.
END_EXPIRED: Final = f"""
    SELECT pg_terminate_backend(pid) FROM leader JOIN pg_stat_activity ON pid = backend
    WHERE renewed < now() - interval '{LEASE_SECONDS} seconds' AND application_name = 'townlet leader'"""
BECOME_LEADER: Final = """
    UPDATE leader SET epoch = epoch + 1, process = %s, backend = pg_backend_pid(), renewed = now() RETURNING epoch"""
RENEW: Final = "UPDATE leader SET renewed = now() WHERE epoch = %s"


class Election:
    """This process's part in the election; used by one thread."""

    def __init__(self, url: str, process: str) -> None:
        self._database, self._process = Database(url, "leader"), process
        self.epoch: int | None = None  # while this process leads

    def stand(self) -> int | None:
        """Try to become the leader; returns the epoch of its leadership, or None. Raises `StorageUnavailable`."""
        with self._database.transaction() as connection:
            connection.execute(END_EXPIRED)
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", [LEADER_LOCK]).fetchone()
            if not (row and row[0]):
                return None
            elected = connection.execute(BECOME_LEADER, [self._process]).fetchone()
            assert elected is not None
        self.epoch = int(elected[0])
        return self.epoch

    def renew(self) -> bool:
        """Renew the lease; False if another process leads, or if the session with its lock has ended."""
        try:
            with self._database.transaction() as connection:
                renewed = connection.execute(RENEW, [self.epoch]).rowcount == 1
        except StorageUnavailable:
            renewed = False
        if not renewed:
            self.resign()
        return renewed

    def resign(self) -> None:
        """Give up leading, so that a standby takes over at once."""
        self.epoch = None
        self._database.close()
