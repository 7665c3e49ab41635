"""Consistent copy of a service folder, even while the service runs.

Any intact prefix of the log is a state of the service. Snapshots are copied first, then the log, then the serving
changes and versions that were written before the last copied record. So the copied log covers all references.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from townlet.decide.storage import LOG, SNAPSHOTS, TOKENS, VERSIONS, control, serving_log
from townlet.decide.storage.segments import find_segment_end, list_segments, read_segment, with_stops
from townlet.errors import TownletError
from townlet.runs import checkpoint, disk

ATTEMPTS: Final = 5  # a running service may remove versions during the copy


class BackupSummary(NamedTuple):
    """Contents of a copy."""

    records: int
    versions: int
    snapshots: int


def backup(folder: Path, to: Path) -> BackupSummary:
    """Copy a service to a new folder, which appears complete or not at all."""
    disk.refuse_links(folder)
    if not (folder / LOG).is_dir():
        raise TownletError(f"{folder} has no decision log", "name the folder of a service", folder)
    with new_folder(to) as temporary:
        return _copy(folder, temporary)


@contextmanager
def new_folder(to: Path) -> Iterator[Path]:
    """A temporary folder with the folders of a service, which becomes `to` at the end of the block."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TownletError(f"{to} exists and is not empty", "name a new folder for the copy", to)
    temporary = to.parent / f".{to.name}.{secrets.token_hex(4)}"
    try:
        disk.make_folder(to.parent)
        os.mkdir(temporary, disk.PRIVATE)
        for name in (LOG, VERSIONS, SNAPSHOTS):
            os.mkdir(temporary / name)
        yield temporary
        for path, _, files in os.walk(temporary, topdown=False):
            for name in files:
                disk.sync_file(Path(path, name))
            disk.sync_folder(Path(path))
        os.rename(temporary, to)
        disk.sync_folder(to.parent)
    except OSError as error:
        raise disk.describe_error(error, f"cannot copy to {to}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_control(folder: Path) -> control.ControlData:
    """What the control file of a service says about its log."""
    for _ in range(ATTEMPTS):  # a running service may be writing one slot
        slots = control.read_slots(folder / LOG / control.CONTROL_FILE) or ()
        if valid := [slot for slot in slots if slot is not None]:
            return max(valid)[1]
    what = f"the control file of {folder} is missing or damaged"
    raise TownletError(what, "run `townlet decide verify` to see what can be used", folder)


def _copy(folder: Path, target: Path) -> BackupSummary:
    original = read_control(folder)
    snapshots = _copy_checkpoints(folder, target, SNAPSHOTS)
    last, oldest = _copy_log(folder / LOG, target / LOG, original)
    for _ in range(ATTEMPTS):  # the serving version may be replaced and removed in between
        serving, number, gate_only = _copy_serving(folder, target, last)
        versions = _copy_checkpoints(folder, target, VERSIONS, last)
        if serving is None or serving in versions:
            break
    newest = max(serving_log.log_references(target), default=None)
    if newest and newest.record > last:  # the original lacks records; a copy must not hide that
        raise control.DataLossError(control.missing_records(last, newest.record, newest.source), folder)
    control_file = control.ControlFile(target / LOG)
    control_file.create(original._replace(synced=last, oldest=oldest, serving=number, gate_only=gate_only))
    control_file.close()
    if (folder / TOKENS).exists():
        copy_tokens(folder, target)
    return BackupSummary(last, len(versions), len(snapshots))


def _copy_serving(folder: Path, target: Path, last: int) -> tuple[int | None, int, bool]:
    """Copy the changes up to a record; returns the serving version, the last change number, and `gate_only`."""
    path, copy = folder / VERSIONS / serving_log.SERVING_LOG, target / VERSIONS / serving_log.SERVING_LOG
    contents = serving_log.read_serving_log(path)
    changes = [change for change in contents.changes if change.record <= last]
    if contents.damaged:  # copied unchanged: the next start reports the damage
        disk.replace_file(copy, disk.read_bounded(path, serving_log.MAX_BYTES))
    if contents.damaged or not changes:
        return None, 0, False
    serving_log.write_serving_log(copy, changes)
    return changes[-1].serving, changes[-1].number, changes[-1].gate_only


def _copy_checkpoints(folder: Path, target: Path, name: str, last: int | None = None) -> set[int]:
    """Copy snapshots, or the versions up to record `last`, and check each copy; returns their numbers."""
    copied = {checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(target / name)}
    for path in checkpoint.paths(folder / name):
        copy, number = target / name / path.name, checkpoint.step_and_serial(path)[0]
        if number in copied:
            continue
        try:
            shutil.copytree(path, copy)
            record = checkpoint.verify(copy).info.get("record", 0)
        except (OSError, TownletError):
            shutil.rmtree(copy, ignore_errors=True)
            if path.is_dir():  # otherwise the running service has just removed it
                raise
        else:
            if last is None or record <= last:
                copied.add(number)
            else:
                shutil.rmtree(copy)
    return copied


def _copy_log(folder: Path, target: Path, original: control.ControlData) -> tuple[int, int]:
    """Copy the valid records of every segment; returns the numbers of the last and the first one."""
    segments, last, oldest = list_segments(folder), 0, 1
    for segment, stop in with_stops(segments):
        if not segment.path.exists() and not last:
            continue  # retention has just removed it
        data = read_segment(segment)
        end = find_segment_end(segment, data, stop)
        if end.offset:  # otherwise the header of the segment is just being written
            _write(target / segment.path.name, data[: end.offset])
        oldest = oldest if last else segment.first
        last = end.last
    if last < original.synced:
        raise control.DataLossError(control.missing_records(last, original.synced, "its control file"), folder)
    return last, oldest


def copy_tokens(folder: Path, target: Path) -> None:
    """Copy the tokens of a service."""
    _write(target / TOKENS, disk.read_bounded(folder / TOKENS, 1 << 20))


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
