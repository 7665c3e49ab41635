"""The folder of a service, for reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from townlet.decide.events import Event
from townlet.decide.recovery import LogFolder
from townlet.decide.storage import LOG, SNAPSHOTS, VERSIONS
from townlet.decide.storage.backup import read_control
from townlet.decide.storage.control import DataLossError, missing_records
from townlet.decide.storage.segments import find_log_end, list_segments, read_records
from townlet.decide.storage.serving_log import (
    SERVING_LOG,
    LogReference,
    ServingChange,
    log_references,
    read_serving_log,
    read_versions,
)
from townlet.decide.storage.snapshots import Snapshot, is_usable
from townlet.decide.storage.verify import verify
from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint
from townlet.runs.lock import Lock
from townlet.runs.verify import IntegrityReport


class ServiceFolder:
    """A service in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def events(self, after: int = 0) -> Iterator[Event]:
        """All events after a record."""
        self._require_log()
        return LogFolder(self.folder / LOG).events(after)

    def _require_log(self) -> None:
        if not (self.folder / LOG).is_dir() or not list_segments(self.folder / LOG):
            raise TownletError(f"{self.folder} has no decision log", "name the folder of a service with --folder")

    @property
    def log_id(self) -> str:
        """Identifies the log."""
        return read_control(self.folder).log_id.hex()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of the folder; refuses a log that lacks records."""
        self._require_log()
        with Lock(self.folder / LOG):
            last = find_log_end(self.folder / LOG).end.last
            known = [LogReference(read_control(self.folder).synced, "its control file", self.folder)]
            newest = max([*known, *log_references(self.folder)])
            if newest.record > last:
                raise DataLossError(missing_records(last, newest.record, newest.source), self.folder)
            yield

    def records(self) -> Iterator[tuple[int, bytes]]:
        """All stored records, with their numbers."""
        return read_records(self.folder / LOG)

    def base(self) -> Snapshot | None:
        """The snapshot where replay starts if earlier records have been removed; None if none have been."""
        self._require_log()
        first = list_segments(self.folder / LOG)[0].first
        if first == 1:
            return None
        for snapshot in self.snapshots():
            if snapshot.record >= first - 1:
                return snapshot
        what = f"the log begins with record {first}, but no intact snapshot covers the records before it"
        raise TownletError(what, "restore a backup", self.folder)

    def snapshots(self) -> Iterator[Snapshot]:
        """All snapshots that can be used, oldest first."""
        for path in checkpoint.paths(self.folder / SNAPSHOTS):
            with suppress(TownletError):  # a damaged one is not needed
                state, info = checkpoint.load(path)
                if is_usable(info, self.log_id):
                    yield Snapshot(int(info["record"]), state, info)

    def versions(self) -> list[int]:
        """All stored versions, oldest first."""
        return [checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(self.folder / VERSIONS)]

    def load_version(self, version: int) -> tuple[State, dict[str, Any]]:
        """State and info of a stored version; every byte is checked."""
        return checkpoint.load(self.folder / VERSIONS / checkpoint.folder_name(version))

    def changes(self) -> Sequence[ServingChange]:
        """The last changes of what serves, oldest first."""
        return read_serving_log(self.folder / VERSIONS / SERVING_LOG).changes

    def overview(self) -> dict[str, Any]:
        """What serves, the last changes, and all stored versions, as JSON."""
        return read_versions(self.folder / VERSIONS)

    def verify(self) -> IntegrityReport:
        """Check everything that is stored."""
        return verify(self.folder)

    def close(self) -> None:
        """Nothing is open."""
