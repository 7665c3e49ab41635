"""Serving log: one line per change of the serving version, the pin or gate-only mode, and per note about a version.

Each line has the complete state after the change, its own CRC-32 and that of the line before. If a line is damaged,
missing or truncated, gate-only mode may have been on, so it counts as on until an operator turns it on or off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from pydantic import ValidationError

from townlet.config.models import StrictModel
from townlet.decide.estimate import Estimate
from townlet.decide.storage import SNAPSHOTS, VERSIONS, StorageNotice
from townlet.decide.storage.control import DataLossError, loss_notice, missing_records
from townlet.decide.storage.segments import timestamp
from townlet.errors import TownletError
from townlet.runs import checkpoint, disk

SERVING_LOG: Final = "serving.jsonl"
KEPT_CHANGES: Final = 1000  # the file is rewritten when it holds twice as many
SHOWN_CHANGES: Final = 50  # newest changes in a summary
MAX_BYTES: Final = 64 << 20  # largest file that is read
ChangeKind = Literal["promote", "roll_back", "pin", "unpin", "note", "gate_only", "gate_and_network"]


class ServingChange(StrictModel):
    """A change of the serving version, the pin or gate-only mode, or a note; and the state after it."""

    kind: ChangeKind
    version: int
    reason: str
    at: float  # Unix time
    applied: bool  # False: only recorded, such as a promotion while a version is pinned
    estimate: Estimate | None = None
    serving: int | None = None
    pinned: int | None = None
    replaced_pin: int | None = None  # the version pinned before; found damaged at startup and replaced by `pinned`
    gate_only: bool = False  # whether gate-only mode is on: no network decides
    trail: tuple[int, ...] = ()  # versions that served, the current one last
    number: int = 0  # number of this change: 1, 2, …
    record: int = 0  # the last synced record of the write-ahead log before this change
    fault: str = ""  # why the serving log was not trusted; cleared when an operator turns gate-only mode on or off
    previous_checksum: str = ""  # CRC-32 of the line before; empty in the first line of the file


# Before the first change.
NOTHING_SERVES: Final = ServingChange(kind="note", version=0, reason="", at=0.0, applied=False)


class ServingLogContents(NamedTuple):
    """The changes in a file, and why it cannot be trusted (empty if it can)."""

    changes: tuple[ServingChange, ...]
    fault: str
    damaged: bool  # whether lines are damaged or missing; if not, `fault` was recorded by an earlier start
    lines: int
    checksum: str  # CRC-32 of the last line


class ServingLog:
    """The file of changes. Each line is appended and synced; a long file is replaced by its last lines."""

    keeps_unstored = True

    def __init__(self, path: Path) -> None:
        self._path = path
        for temporary in path.parent.glob(f".{path.name}.*"):  # left by a crash during a replacement
            temporary.unlink()
        contents = read_serving_log(path)
        self.changes, self.fault, self._checksum = contents.changes, contents.fault, contents.checksum
        self.number = self.last.number  # number of the last change known from any source
        self._damaged = contents.damaged  # if damaged, a copy is kept when the file is replaced
        self._lines = None if self._damaged or not path.exists() else contents.lines  # None: the next append rewrites

    @property
    def last(self) -> ServingChange:
        """The change that holds the current state."""
        return self.changes[-1] if self.changes else NOTHING_SERVES

    def distrust(self, fault: str, number: int) -> None:
        """Stop trusting the file: another source contradicts it, and refers to a change of this number."""
        self.fault, self.number = self.fault or fault, max(self.number, number)
        self._damaged, self._lines = self._path.exists(), None

    def refresh(self) -> None:
        """Nothing to do: no other process writes this file."""

    def append(self, make_change: Callable[[], ServingChange]) -> ServingChange:
        """Append a change, numbered. If the disk fails, it is kept in memory and the next append rewrites the file."""
        change = make_change()
        self.number += 1
        previous = self._checksum if self._lines else ""
        change = change.model_copy(update={"number": self.number, "previous_checksum": previous})
        self.changes, self.fault = (*self.changes, change)[-KEPT_CHANGES:], change.fault
        lines = self._lines
        self._lines = None  # until the write succeeds: after a failure the next append rewrites the file
        if lines is None or lines >= 2 * KEPT_CHANGES:
            if self._damaged:
                aside = self._path.with_name(f"serving-damaged-{timestamp()}.jsonl")
                disk.replace_file(aside, disk.read_bounded(self._path, MAX_BYTES))
                self._damaged = False
            self.changes, self._checksum = write_serving_log(self._path, self.changes)
            self._lines = len(self.changes)
            return self.changes[-1]
        line, self._checksum = _encode_line(change)
        with disk.os_errors(f"cannot write {self._path}"), open(self._path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._lines = lines + 1
        return change


def read_serving_log(path: Path) -> ServingLogContents:
    """The last changes of a file, oldest first; damaged lines are omitted and reported in `fault`."""
    if not path.exists():
        return ServingLogContents((), "", False, 0, "")
    *lines, incomplete = disk.read_bounded(path, MAX_BYTES).split(b"\n")
    changes, faults, checksum = list[ServingChange](), list[str](), ""
    for line_number, line in enumerate(lines, 1):
        change = _decode_line(line)
        if change is None:
            faults.append(f"line {line_number} of {path.name} is damaged")
        else:
            changes.append(change)
            if change.previous_checksum != checksum:
                faults.append(f"lines before line {line_number} of {path.name} are missing")
        checksum = line[:8].decode("latin-1")
    if incomplete:
        faults.append(f"the last line of {path.name} ({len(lines) + 1}) is cut off")
    fault = changes[-1].fault if changes else ""
    if faults:
        fault = faults[0]
    return ServingLogContents(tuple(changes[-KEPT_CHANGES:]), fault, bool(faults), len(lines), checksum)


def write_serving_log(path: Path, changes: Sequence[ServingChange]) -> tuple[tuple[ServingChange, ...], str]:
    """Replace the file with these changes; returns them with the checksums that link them, and the last checksum."""
    lines, linked, checksum = list[bytes](), list[ServingChange](), ""
    for change in changes:
        linked.append(change.model_copy(update={"previous_checksum": checksum}))
        line, checksum = _encode_line(linked[-1])
        lines.append(line)
    disk.replace_file(path, b"".join(lines))
    return tuple(linked), checksum


def serving_summary(changes: Sequence[ServingChange], fault: str = "") -> dict[str, Any]:
    """The state after these changes, and the last of them, as JSON; `fault`: why the file cannot be trusted."""
    last = changes[-1] if changes else NOTHING_SERVES
    omitted = {"trail", "previous_checksum"}
    return {
        **last.model_dump(include={"serving", "pinned", "replaced_pin"}),
        "gate_only": bool(fault) or last.gate_only,
        "fault": fault,
        "before": last.trail[-2] if len(last.trail) > 1 else None,
        "history": [change.model_dump(mode="json", exclude=omitted) for change in changes[-SHOWN_CHANGES:]],
    }


def read_versions(versions_folder: Path) -> dict[str, Any]:
    """The summary and all versions in the folder `versions` of a service, which may be running."""
    if not versions_folder.is_dir():
        raise TownletError(f"there is no folder {versions_folder}", "name the folder of a service with --folder")
    valid, damaged = checkpoint.scan(versions_folder)
    errors = {str(checkpoint.step_and_serial(path)[0]): str(error) for path, error in damaged.items()}
    contents = read_serving_log(versions_folder / SERVING_LOG)
    summary = serving_summary(contents.changes, contents.fault)
    return summary | {"versions": [version.info for version in valid], "damaged": errors}


def _encode_line(change: ServingChange) -> tuple[bytes, str]:
    text = change.model_dump_json().encode()
    checksum = f"{crc32(text):08x}"
    return checksum.encode() + b" " + text + b"\n", checksum


def _decode_line(line: bytes) -> ServingChange | None:
    """The change in a line; None if the line is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum == f"{crc32(text):08x}".encode():
        with suppress(ValidationError):
            return ServingChange.model_validate_json(text)
    return None


class LogReference(NamedTuple):
    """A reference from a file to a record of the write-ahead log."""

    record: int
    source: str  # the file, as named in messages
    path: Path


def log_references(folder: Path) -> Iterator[LogReference]:
    """References in a service folder to records of the write-ahead log: snapshots, versions, serving changes."""
    for part in (SNAPSHOTS, VERSIONS):
        valid, _ = checkpoint.scan(folder / part)
        for entry in valid:
            if isinstance(record := entry.info.get("record"), int):
                yield LogReference(record, f"{part}/{entry.name}", entry.path)
    path = folder / VERSIONS / SERVING_LOG
    for change in read_serving_log(path).changes:
        yield LogReference(change.record, f"{VERSIONS}/{SERVING_LOG} (change {change.number})", path)


def check_references(folder: Path, last_record: int, accept_data_loss: bool) -> list[StorageNotice]:
    """Refuse a log that lacks records that other files refer to; with `accept_data_loss`, move those files aside."""
    beyond = [reference for reference in log_references(folder) if reference.record > last_record]
    if not beyond:
        return []
    newest = max(beyond)
    what = missing_records(last_record, newest.record, newest.source)
    if not accept_data_loss:
        raise DataLossError(what, folder)
    aside = folder / f"set-aside-{timestamp()}"
    for path in {reference.path for reference in beyond}:
        target = aside / path.relative_to(folder)
        disk.make_folder(target.parent)
        if path.name != SERVING_LOG:
            os.rename(path, target)
        else:  # only the later changes are removed; a damaged file is not changed
            disk.replace_file(target, path.read_bytes())
            contents = read_serving_log(path)
            if not contents.damaged:
                write_serving_log(path, [change for change in contents.changes if change.record <= last_record])
        disk.sync_folder(target.parent)
        disk.sync_folder(path.parent)
    notice = loss_notice(what)
    return [notice._replace(fix=f"{notice.fix} Later snapshots, versions and changes are in {aside.name}.")]
