"""The serving record: one line per change of the serving version, with the whole state after it.

Each line carries its CRC-32 and that of the line before. A damaged, missing or cut-off line means that the kill switch
may have been on: only the gate decides until an operator switches again, which writes a new record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from pydantic import ValidationError

from townlet.config.model import Model
from townlet.decide.estimate import Estimate
from townlet.decide.storage.tail import timestamp
from townlet.errors import TownletError
from townlet.runs import checkpoint, disk

FILE: Final = "serving.jsonl"
REMEMBERED: Final = 1000  # changes; the file holds up to twice as many before it is written anew
SHOWN: Final = 50  # changes that people are told of
MAX_BYTES: Final = 64 << 20
Kind = Literal["promote", "roll_back", "pin", "unpin", "note", "gate_only", "gate_and_network"]


class Change(Model):
    """What was decided about serving, and what holds since then."""

    kind: Kind
    version: int
    reason: str
    at: float  # seconds since 1970
    served: bool  # False: only noted, as is everything while another version is pinned
    estimate: Estimate | None = None
    serving: int | None = None
    pinned: int | None = None
    instead_of: int | None = None  # what an operator had pinned, where that was not whole at a start
    gate_only: bool = False  # no network is asked
    trail: tuple[int, ...] = ()  # versions that served, the one that does at the end
    number: int = 0  # of this change: 1, 2, …
    record: int = 0  # of the log, the last one on the disk before this change
    fault: str = ""  # why the record could not be trusted, until an operator switches
    previous: str = ""  # CRC-32 of the line before; empty in the first line of the file


class ServingRecord(NamedTuple):
    """The changes that a file holds, and why it cannot be trusted (empty if it can)."""

    changes: tuple[Change, ...]
    fault: str
    damaged: bool  # whether lines are damaged or missing: a fault may also have been recorded earlier
    lines: int
    check: str  # CRC-32 of the last line


class Changes:
    """The file of changes. A line is added and synced; now and then the whole is replaced by its last lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for left in path.parent.glob(f".{path.name}.*"):  # of a crash while it was replaced
            left.unlink()
        found = read_record(path)
        self.changes, self.fault, self._check = found.changes, found.fault, found.check
        self.number = self.changes[-1].number if self.changes else 0  # of the last change known from any source
        self._damaged = found.damaged  # a copy is kept before it is replaced
        self._lines = None if self._damaged or not path.exists() else found.lines  # None: the next change rewrites it

    @property
    def last(self) -> Change | None:
        """What holds now."""
        return self.changes[-1] if self.changes else None

    def distrust(self, fault: str, number: int) -> None:
        """Stop trusting the file: another source contradicts it, and knows a change of this number."""
        self.fault, self.number = self.fault or fault, max(self.number, number)
        self._damaged, self._lines = self._path.exists(), None

    def add(self, change: Change) -> Change:
        """One change more. When the disk fails it holds in memory, the error is raised, and the next one tries anew."""
        self.number += 1
        change = change.model_copy(update={"number": self.number, "previous": self._check if self._lines else ""})
        self.changes, self.fault = (*self.changes, change)[-REMEMBERED:], change.fault
        lines, self._lines = self._lines, None
        if lines is None or lines >= 2 * REMEMBERED:
            self._replace()
            return self.changes[-1]
        line, self._check = _line(change)
        try:
            with open(self._path, "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise disk.explained(error, f"cannot write {self._path}") from error
        self._lines = lines + 1
        return change

    def _replace(self) -> None:
        """Rewrite the file; a copy of a damaged one is kept beside it."""
        if self._damaged:
            aside = self._path.with_name(f"serving-damaged-{timestamp()}.jsonl")
            disk.replace_file(aside, disk.read_bounded(self._path, MAX_BYTES))
            self._damaged = False
        self.changes, self._check = write_record(self._path, self.changes)
        self._lines = len(self.changes)

    def hold(self, change: Change) -> Change:
        """One change more that is in force whatever the disk says: where that fails, the error tells both."""
        try:
            return self.add(change)
        except TownletError as error:
            (mistake,) = error.mistakes
            what = f"done, but not stored, so that after a restart the gate decides alone: {mistake.what}"
            raise TownletError(what, mistake.fix) from error


def read_record(path: Path) -> ServingRecord:
    """The last changes of a file, oldest first; damaged lines are left out and named."""
    if not path.exists():
        return ServingRecord((), "", False, 0, "")
    *lines, rest = disk.read_bounded(path, MAX_BYTES).split(b"\n")
    changes, faults, check = list[Change](), list[str](), ""
    for number, line in enumerate(lines, 1):
        change = _parsed(line)
        if change is None:
            faults.append(f"line {number} of {path.name} is damaged")
        elif change.previous != check and not faults:
            faults.append(f"lines before line {number} of {path.name} are missing")
        if change is not None:
            changes.append(change)
        check = line[:8].decode("latin-1")
    if rest:
        faults.append(f"the last line of {path.name} ({len(lines) + 1}) is cut off")
    fault = faults[0] if faults else changes[-1].fault if changes else ""
    return ServingRecord(tuple(changes[-REMEMBERED:]), fault, bool(faults), len(lines), check)


def write_record(path: Path, changes: Sequence[Change]) -> tuple[tuple[Change, ...], str]:
    """Replace the file with these changes; returns them with their links, and the CRC-32 of the last line."""
    lines, linked, check = list[bytes](), list[Change](), ""
    for change in changes:
        linked.append(change.model_copy(update={"previous": check}))
        line, check = _line(linked[-1])
        lines.append(line)
    disk.replace_file(path, b"".join(lines))
    return tuple(linked), check


def listed(path: Path) -> tuple[Change, ...]:
    """The last changes, oldest first."""
    return read_record(path).changes


def told(changes: Sequence[Change], fault: str = "") -> dict[str, Any]:
    """The state after these changes, and the last of them, as JSON; `fault`: why the record cannot be trusted."""
    last = changes[-1] if changes else None
    return {
        "serving": last.serving if last else None,
        "pinned": last.pinned if last else None,
        "instead_of": last.instead_of if last else None,
        "gate_only": bool(fault) or (last.gate_only if last else False),
        "fault": fault,
        "before": last.trail[-2] if last and len(last.trail) > 1 else None,
        "history": [change.model_dump(mode="json", exclude={"trail", "previous"}) for change in changes[-SHOWN:]],
    }


def told_of(folder: Path) -> dict[str, Any]:
    """The same and all versions, for a folder that somebody else may be writing to: it is only read."""
    if not folder.is_dir():
        raise TownletError(f"{folder} has no versions", "name the folder of a service with --folder")
    whole, damaged = checkpoint.survey(folder)
    found = {str(checkpoint.order(path)[0]): str(error) for path, error in damaged.items()}
    record = read_record(folder / FILE)
    return told(record.changes, record.fault) | {"versions": [one.info for one in whole], "damaged": found}


def _line(change: Change) -> tuple[bytes, str]:
    """A change as a line of the file, and its checksum."""
    text = change.model_dump_json().encode()
    check = f"{crc32(text):08x}"
    return check.encode() + b" " + text + b"\n", check


def _parsed(line: bytes) -> Change | None:
    check, _, text = line.partition(b" ")
    if check != f"{crc32(text):08x}".encode():
        return None
    try:
        return Change.model_validate_json(text)
    except ValidationError:
        return None
