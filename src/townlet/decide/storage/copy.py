"""Copy of a service between storages: all records, snapshots, versions and changes of what serves.

The copy has the id, the numbers and the ids of decisions of the original, so it continues where that one ended. It
appears complete or not at all, and nothing in the original changes.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from townlet.decide.storage import LOG, SNAPSHOTS, TOKENS, VERSIONS
from townlet.decide.storage.backup import copy_tokens, new_folder
from townlet.decide.storage.control import ControlData, ControlFile
from townlet.decide.storage.segments import LogEnd, SegmentEnd, SegmentWriter
from townlet.decide.storage.service_folder import ServiceFolder
from townlet.decide.storage.serving_log import NOTHING_SERVES, SERVING_LOG, write_serving_log
from townlet.decide.storage.stored_service import CHUNK, CopySummary, StoredService, is_url, last_state, open_stored
from townlet.decide.storage.version_folder import VersionFolder
from townlet.errors import TownletError
from townlet.runs import checkpoint


def copy_service(source: str | Path, to: str | Path) -> CopySummary:
    """Copy a service that is not being served to an empty folder or database."""
    with closing(open_stored(source)) as stored, stored.exclusive():
        if (fault := stored.overview()["fault"]) != "":
            what = f"the changes of what serves cannot be trusted: {fault}"
            raise TownletError(what, "start the service there, and turn gate-only mode on or off")
        if is_url(to):
            from townlet.decide.storage.postgres.copy import copy_to_database  # needs an extra

            return copy_to_database(stored, str(to))
        return _copy_to_folder(stored, Path(to))


def _copy_to_folder(stored: StoredService, to: Path) -> CopySummary:
    settings, changes = last_state(stored).settings, stored.changes()
    with new_folder(to) as folder:
        last, oldest = _copy_records(stored, folder / LOG, settings.segment_bytes)
        copied = 0
        for snapshot in stored.snapshots():
            name = checkpoint.folder_name(snapshot.record)
            checkpoint.save(folder / SNAPSHOTS, name, snapshot.state, snapshot.info)
            copied += 1
        archive, versions = VersionFolder(folder / VERSIONS), stored.versions()
        for version in versions:
            archive.save(version, *stored.load_version(version))
        write_serving_log(folder / VERSIONS / SERVING_LOG, changes)
        serving = changes[-1] if changes else NOTHING_SERVES
        control = ControlFile(folder / LOG)
        control.create(
            ControlData(bytes.fromhex(stored.log_id), last, oldest, serving=serving.number, gate_only=serving.gate_only)
        )
        control.close()
        if isinstance(stored, ServiceFolder) and (stored.folder / TOKENS).exists():
            copy_tokens(stored.folder, folder)
    return CopySummary(last, len(versions), copied)


def _copy_records(stored: StoredService, folder: Path, segment_bytes: int) -> tuple[int, int]:
    """Write all records into new segments; returns the numbers of the last and the first one."""
    records = stored.records()
    oldest, first = next(records)
    end = LogEnd(None, SegmentEnd(oldest - 1, 0, 0, b""), oldest)
    writer = SegmentWriter(folder, segment_bytes, bytes.fromhex(stored.log_id), end)
    try:
        remaining = chain([first], (payload for _, payload in records))
        while payloads := list(islice(remaining, CHUNK)):
            while payloads:
                del payloads[: writer.write(payloads)]
    finally:
        writer.close()
    return writer.synced, oldest
