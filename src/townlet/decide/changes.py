"""What was decided about serving, and why: one line for every change, with all that holds after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from townlet.config.model import Model
from townlet.decide.estimate import Estimate
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


class Changes:
    """The file of changes. A line is added and synced; now and then the whole is replaced by its last lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        for left in path.parent.glob(f".{path.name}.*"):  # of a crash while it was replaced
            left.unlink()
        lines = _lines(path)
        found = [_parsed(line) for line in lines]
        self.changes = listed(path)
        # Empty or torn lines would stay in the way of those that follow: then the next change writes the file anew.
        self._lines = len(lines) - 1 if lines and all(found[:-1]) and not lines[-1] else None

    @property
    def last(self) -> Change | None:
        """What holds now."""
        return self.changes[-1] if self.changes else None

    def add(self, change: Change) -> None:
        """One change more. When the disk fails it holds in memory, the error is raised, and the next one tries anew."""
        self.changes = (*self.changes, change)[-REMEMBERED:]
        lines, self._lines = self._lines, None
        if lines is None or lines >= 2 * REMEMBERED:
            disk.replace_file(self._path, b"".join(map(_line, self.changes)))
            self._lines = len(self.changes)
            return
        try:
            with open(self._path, "ab") as file:
                file.write(_line(change))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise disk.explained(error, f"cannot write {self._path}") from error
        self._lines = lines + 1

    def hold(self, change: Change) -> None:
        """One change more that is in force whatever the disk says: where that fails, the error tells both."""
        try:
            self.add(change)
        except TownletError as error:
            (mistake,) = error.mistakes
            raise TownletError(f"it is done, but forgotten at a restart: {mistake.what}", mistake.fix) from error


def listed(path: Path) -> tuple[Change, ...]:
    """The last changes, oldest first; lines that a crash tore are left out."""
    found = (_parsed(line) for line in _lines(path))
    return tuple(change for change in found if change is not None)[-REMEMBERED:]


def told(changes: Sequence[Change]) -> dict[str, Any]:
    """What holds after these, and the last of them, as JSON."""
    last = changes[-1] if changes else None
    return {
        "serving": last.serving if last else None,
        "pinned": last.pinned if last else None,
        "instead_of": last.instead_of if last else None,
        "gate_only": last.gate_only if last else False,
        "before": last.trail[-2] if last and len(last.trail) > 1 else None,
        "history": [change.model_dump(mode="json", exclude={"trail"}) for change in changes[-SHOWN:]],
    }


def told_of(folder: Path) -> dict[str, Any]:
    """The same and all versions, for a folder that somebody else may be writing to: it is only read."""
    if not folder.is_dir():
        raise TownletError(f"{folder} has no versions", "name the folder of a service with --folder")
    whole, damaged = checkpoint.survey(folder)
    found = {str(checkpoint.order(path)[0]): str(error) for path, error in damaged.items()}
    return told(listed(folder / FILE)) | {"versions": [one.info for one in whole], "damaged": found}


def _lines(path: Path) -> list[bytes]:
    return disk.read_bounded(path, MAX_BYTES).split(b"\n") if path.exists() else []


def _line(change: Change) -> bytes:
    return change.model_dump_json().encode() + b"\n"


def _parsed(line: bytes) -> Change | None:
    try:
        return Change.model_validate_json(line)
    except ValidationError:
        return None
