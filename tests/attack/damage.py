"""Damage to files on disk, and the table of its effects: which kind of file, how often harmless, reported or silent."""

from __future__ import annotations

import io
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from townlet.cli.app import main

DIGITS = re.compile(r"\d+")


class Effect(StrEnum):
    """Effect of damage to a file."""

    HARMLESS = "harmless"  # the same state, and every check passes: the bit carries no information
    REPAIRED = "repaired"  # reported by `verify` before the start, same state, and `verify` passes afterwards
    REPORTED = "reported"  # refused with a message, shown as an alarm, or named by `verify` with the state unchanged
    SILENT = "SILENT"  # another state, and no message


class Command(NamedTuple):
    """The result of a command of the program."""

    code: int
    text: str  # stdout and stderr, in one line


def command(*words: str) -> Command:
    """Run `townlet WORDS…` in this process."""
    printed = io.StringIO()
    wide = {**os.environ, "COLUMNS": "2000"}  # so that long lines are not wrapped
    with redirect_stdout(printed), redirect_stderr(printed), patch.dict(os.environ, wide):
        try:
            main(list(words))
            code: object = 0
        except SystemExit as leaving:
            code = leaving.code or 0
    return Command(code if isinstance(code, int) else 1, " ".join(printed.getvalue().split()))


@dataclass(frozen=True)
class Hole:
    """Lost bytes: replaced with zeros or other content."""

    file: str  # relative to the folder
    offset: int
    size: int
    zeros: bool

    def make(self, folder: Path) -> bool:
        """Damage the file; whether any byte changed."""
        path = folder / self.file
        data = bytearray(path.read_bytes())
        end = min(self.offset + self.size, len(data))
        lost = bytes(end - self.offset) if self.zeros else random.Random(self.offset).randbytes(end - self.offset)
        changed = data[self.offset : end] != lost
        data[self.offset : end] = lost
        path.write_bytes(data)
        return changed


@dataclass(frozen=True)
class Flip:
    """One bit of one file, changed."""

    file: str  # relative to the folder
    byte: int
    bit: int

    @property
    def kind(self) -> str:
        """The file without its numbers: `versions/step-#/manifest.json`."""
        return kind_of(self.file)

    def make(self, folder: Path) -> None:
        """Change the bit."""
        path = folder / self.file
        data = bytearray(path.read_bytes())
        data[self.byte] ^= 1 << self.bit
        path.write_bytes(data)


def kind_of(file: str) -> str:
    """The relative path of a file without its numbers."""
    return DIGITS.sub("#", file)


def files_of(folder: Path) -> dict[str, list[str]]:
    """All files with at least one byte, by kind, as relative paths."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            name = path.relative_to(folder).as_posix()
            found.setdefault(kind_of(name), []).append(name)
    return found


def flips(folder: Path, count: int, seed: int) -> Iterator[Flip]:
    """Random bits, evenly over kinds of files: otherwise large files would get all of them."""
    chance, kinds = random.Random(seed), list(files_of(folder).values())
    stride = max(1, len(kinds) // count)
    for number in range(count):
        file = chance.choice(kinds[number * stride % len(kinds)])
        size = (folder / file).stat().st_size
        yield Flip(file, chance.randrange(size), chance.randrange(8))


@dataclass
class Table:
    """Effects by kind of file, and the descriptions of the silent cases."""

    effects: dict[str, Counter[Effect]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def add(self, kind: str, effect: Effect, description: Callable[[], str]) -> None:
        """Count one case."""
        self.effects.setdefault(kind, Counter())[effect] += 1
        if effect is Effect.SILENT:
            self.silent.append(description())

    def __str__(self) -> str:
        width = max((len(kind) for kind in self.effects), default=0)
        lines = [f"{'':{width}}" + "".join(f"{effect:>10}" for effect in Effect)]
        for kind, counts in sorted(self.effects.items()):
            lines.append(f"{kind:{width}}" + "".join(f"{counts[effect]:>10}" for effect in Effect))
        total = sum(self.effects.values(), Counter[Effect]())
        lines.append(f"{'total':{width}}" + "".join(f"{total[effect]:>10}" for effect in Effect))
        return "\n".join(lines)
