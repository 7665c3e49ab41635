"""A consistent copy of a service's folder, also while the service runs.

Any whole prefix of the log is a state of the service. Snapshots are copied first and the log next; then the changes and
versions that were written before the last copied record, so that the copied log covers everything that they refer to.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from townlet.decide.storage import LOG, SNAPSHOTS, TOKENS, VERSIONS, control, serving_log
from townlet.decide.storage.control import ControlData, ControlFile, DataLossError, missing_records
from townlet.decide.storage.segments import find_segment_end, list_segments, read_segment
from townlet.decide.storage.serving_log import log_references
from townlet.errors import SourceLocation, TownletError
from townlet.runs import checkpoint, disk

ATTEMPTS: Final = 5  # a running service may remove versions during the copy


class BackupSummary(NamedTuple):
    """Contents of a copy."""

    records: int
    versions: int
    snapshots: int


def backup(folder: Path, to: Path) -> BackupSummary:
    """Copy a service to a new folder, which appears complete or not at all."""
    if not (folder / LOG).is_dir():
        raise TownletError(f"{folder} has no decision log", "name the folder of a service", SourceLocation(str(folder)))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TownletError(f"{to} exists and is not empty", "name a new folder for the copy", SourceLocation(str(to)))
    fresh = to.parent / f".{to.name}.{secrets.token_hex(4)}"
    try:
        disk.make_folder(to.parent)
        os.mkdir(fresh)
        copied = _copy(folder, fresh)
        _sync(fresh)
        os.rename(fresh, to)
        disk.sync_folder(to.parent)
    except OSError as error:
        raise disk.describe_error(error, f"cannot copy {folder} to {to}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return copied


def _copy(folder: Path, fresh: Path) -> BackupSummary:
    for name in (LOG, VERSIONS, SNAPSHOTS):
        os.mkdir(fresh / name)
    known = _known(folder)
    copied = _copy_checkpoints(folder, fresh, SNAPSHOTS)
    last, oldest = _copy_log(folder / LOG, fresh / LOG, known)
    for _ in range(ATTEMPTS):  # the version that serves may be replaced and removed in between
        serving, number, gate_only = _copy_serving(folder, fresh, last)
        versions = _copy_checkpoints(folder, fresh, VERSIONS, last)
        if serving is None or serving in versions:
            break
    newest = max(log_references(fresh), default=None)
    if newest and newest.record > last:  # the original lacks records; a copy must not hide that
        raise DataLossError(missing_records(last, newest.record, newest.source), folder)
    control_file = ControlFile(fresh / LOG)
    control_file.create(known._replace(synced=last, oldest=oldest, serving=number, gate_only=gate_only))
    control_file.close()
    if (folder / TOKENS).exists():
        _write(fresh / TOKENS, disk.read_bounded(folder / TOKENS, 1 << 20), 0o600)
    return BackupSummary(last, len(versions), len(copied))


def _copy_serving(folder: Path, fresh: Path, last: int) -> tuple[int | None, int, bool]:
    """Copy the changes up to a record; returns the version that serves, the last number, and the kill switch."""
    path, target = folder / VERSIONS / serving_log.SERVING_LOG, fresh / VERSIONS / serving_log.SERVING_LOG
    record = serving_log.read_serving_log(path)
    if record.damaged:
        disk.replace_file(
            target, disk.read_bounded(path, serving_log.MAX_BYTES)
        )  # unchanged: a start reports the damage
        return None, 0, False
    kept = [change for change in record.changes if change.record <= last]
    if not kept:
        return None, 0, False
    serving_log.write_serving_log(target, kept)
    return kept[-1].serving, kept[-1].number, kept[-1].gate_only


def _known(folder: Path) -> ControlData:
    """The control data of the original; a service without them must be started or restored first."""
    for _ in range(ATTEMPTS):  # a running service may be writing one slot
        slots = control.read_slots(folder / LOG / control.CONTROL_FILE)
        whole = [slot for slot in slots or () if slot is not None]
        if whole:
            return max(whole)[1]
    what = f"the control data of {folder} are missing or damaged"
    raise TownletError(what, "run `townlet decide verify` to see what can be used", SourceLocation(str(folder)))


def _copy_checkpoints(folder: Path, fresh: Path, name: str, last: int | None = None) -> set[int]:
    """Copy snapshots, or the versions up to record `last`, and check each copy; returns the numbers of those copied."""
    copied = {checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(fresh / name)}
    for path in checkpoint.paths(folder / name):
        target, number = fresh / name / path.name, checkpoint.step_and_serial(path)[0]
        if number in copied:
            continue
        try:
            shutil.copytree(path, target)
            record = checkpoint.verify(target).info.get("record", 0)
        except (OSError, TownletError):
            shutil.rmtree(target, ignore_errors=True)
            if path.is_dir():  # else the running service has just removed it
                raise
        else:
            if last is None or record <= last:
                copied.add(number)
            else:
                shutil.rmtree(target)
    return copied


def _copy_log(folder: Path, fresh: Path, known: ControlData) -> tuple[int, int]:
    """Copy the whole records of every segment; the numbers of the last and the first one."""
    segments, last = list_segments(folder), 0
    for place, segment in enumerate(segments):
        data, following = read_segment(segment), segments[place + 1 : place + 2]
        end = find_segment_end(segment, data, following[0].first if following else None)
        if end.place:  # else its header is just being written
            _write(fresh / segment.path.name, data[: end.place])
        last = end.last
    if last < known.synced:
        raise DataLossError(missing_records(last, known.synced, "its control data"), folder)
    return last, segments[0].first if segments else 1


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)


def _sync(folder: Path) -> None:
    """Make all files and names in a folder durable, the innermost first."""
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            disk.sync_file(Path(path, name))
        disk.sync_folder(Path(path))
