"""Simulated power loss: what may be left of a traced folder on an adversarial but legal file system.

Guaranteed by the disk
- The content and size of a file at a successful fsync or fdatasync survive.
- A new (or removed) name survives once fsync of its folder succeeded; fsync of a file keeps its bytes, not its name.
- A sector of 512 bytes is written completely. A rename is atomic.

Not guaranteed
- Any order. After the last fsync every sector of a file may show any of its later contents, each sector another one;
  the size may be any of the later sizes, so that a file can grow without its bytes (zeros) or keep them unseen.
- In `reordered` mode names survive in any subset; a rename can be there without the creation before it, and the removal
  of a file without the rename of its folder before it. In `ordered` mode they survive up to some moment, as on
  a file system with one journal (ext4, XFS). The product's promise is for the reordered mode.
- That a failed fsync can be repeated: the kernel may have dropped the bytes and then report success (PostgreSQL's
  "fsyncgate"). Only bytes that are written again after the failure are kept by a later fsync. Names and sizes are in
  the journal: a file system that cannot write this becomes read-only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from crash.shim import Operation

SECTOR: Final = 512
BLOCK: Final = 8  # sectors that are often written together
ZEROS: Final = bytes(SECTOR)
Mode = Literal["ordered", "reordered"]


@dataclass(eq=False)
class Inode:
    """A file, folder or link: what programs see (`seen`, `names`), and what the disk is sure to have."""

    kind: Literal["file", "folder", "link"] = "file"
    text: str = ""  # of a link
    names: dict[str, Inode] = field(default_factory=dict)  # in a folder
    sure_names: dict[str, Inode] = field(default_factory=dict)
    homes: set[Inode] = field(default_factory=set)  # folders that it had a name in
    links: int = 0  # hard links, which a rename leaves alone
    seen: bytearray = field(default_factory=bytearray)
    sure: bytearray = field(default_factory=bytearray)
    sure_size: int = 0
    sizes: list[int] = field(default_factory=list)  # later than the sure one
    later: dict[int, list[bytes]] = field(default_factory=dict)  # contents of a sector after the sure one
    dirty: set[int] = field(default_factory=set)  # sectors that the next fsync will keep
    resized: bool = False  # and whether it will keep the size

    def write(self, place: int, data: bytes) -> None:
        """Bytes at a place, with zeros before them where the file was shorter."""
        before, end = len(self.seen), place + len(data)
        if end > before:
            self.seen.extend(bytes(end - before))
            self._resize()
        self.seen[place:end] = data
        self._touch(min(place, before), end)

    def truncate(self, size: int) -> None:
        """Cut or extended by zeros."""
        before = len(self.seen)
        if size < before:
            del self.seen[size:]
        else:
            self.seen.extend(bytes(size - before))
        if size != before:
            self._resize()
            self._touch(min(size, before), max(size, before))

    def _resize(self) -> None:
        self.sizes.append(len(self.seen))
        self.resized = True

    def _touch(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            self.later.setdefault(sector, []).append(self._sector(sector))
            self.dirty.add(sector)

    def _sector(self, number: int) -> bytes:
        return bytes(self.seen[number * SECTOR : (number + 1) * SECTOR]).ljust(SECTOR, b"\0")

    def sync(self) -> None:
        """All that was written since the last attempt is on the disk."""
        for sector in self.dirty:
            _put(self.sure, sector, self._sector(sector))
            del self.later[sector]
        if self.resized:
            self.sure_size, self.sizes = len(self.seen), []
        self.dirty, self.resized = set(), False

    def fail_sync(self) -> None:
        """The kernel takes the bytes for written; the disk may have any of them. The size is in the journal."""
        self.dirty = set()

    def left(self, chance: random.Random) -> bytes:
        """The bytes of a file after the power was lost."""
        data, style = bytearray(self.sure), chance.choice(("lost", "kept", "blocks", "sectors", "sectors"))
        whole: dict[int, bool] = {}
        for sector, contents in self.later.items():
            if style == "kept" or (style == "blocks" and whole.setdefault(sector // BLOCK, chance.random() < 0.5)):
                _put(data, sector, contents[-1])
            elif style == "sectors" and (pick := chance.randrange(-1, len(contents))) >= 0:
                _put(data, sector, contents[pick])
        latest = self.sizes[-1] if self.sizes else self.sure_size
        size = {"lost": self.sure_size, "kept": latest}.get(style)
        if size is None:
            size = chance.choice((latest, latest, self.sure_size, *self.sizes))
        return bytes(data[:size]).ljust(size, b"\0")


def _put(data: bytearray, sector: int, content: bytes) -> None:
    start = sector * SECTOR
    if len(data) < start:
        data.extend(bytes(start - len(data)))
    data[start : start + SECTOR] = content


@dataclass(eq=False)
class Change:
    """One atomic change of names: entries that are replaced or removed."""

    entries: list[tuple[Inode, str, Inode | None]]
    moved: Inode | None = None  # by a rename, so that its other name goes
    waiting: set[Inode] = field(default_factory=set)  # folders that must be synced before it is sure

    def __post_init__(self) -> None:
        self.waiting = {folder for folder, _, _ in self.entries}


class Disk:
    """A folder and everything in it, as operations change it; `left` draws what a power loss leaves."""

    def __init__(self, root: int) -> None:
        self.root = Inode("folder")
        self._numbers = {root: self.root}
        self._changes: list[Change] = []  # those that are not sure, and sure ones after them

    def apply(self, done: Operation) -> None:
        """One operation of a trace. Marks change nothing, and neither do failures other than that of an fsync."""
        inode = self._numbers.get(done.inode)
        if done.error:
            if done.kind == "sync" and inode is not None:
                inode.fail_sync()
            return
        match done.kind:
            case "create" | "mkdir":
                self._add(done, Inode("folder" if done.kind == "mkdir" else "file"), done.path)
            case "symlink":
                self._add(done, Inode("link", done.path), done.other)
            case "open":
                self._open(done, inode)
            case "link":
                self._link(done)
            case "rename":
                self._rename(done)
            case "unlink" | "rmdir":
                folder, name = self._place(done.path)
                self._change(Change([(folder, name, None)]))
            case "write":
                assert inode is not None
                inode.write(done.offset, done.data)
            case "truncate":
                assert inode is not None
                inode.truncate(done.offset)
            case "allocate":
                assert inode is not None
                inode.truncate(max(done.offset, len(inode.seen)))
            case "sync":
                assert inode is not None
                self._sync(inode)

    def _place(self, path: str) -> tuple[Inode, str]:
        """The folder that a path lies in, and its name there."""
        folder, parts = self.root, PurePosixPath(path).parts
        for part in parts[:-1]:
            folder = folder.names[part]
        return folder, parts[-1]

    def _add(self, done: Operation, fresh: Inode, path: str) -> None:
        folder, name = self._place(path)
        self._numbers[done.inode] = fresh
        self._change(Change([(folder, name, fresh)]))

    def _open(self, done: Operation, inode: Inode | None) -> None:
        """A known file under a new name has been renamed by a system call that the shim does not see."""
        if inode is None or inode is self.root or not done.path:
            return
        folder, name = self._place(done.path)
        if folder.names.get(name) is not inode:
            (old,) = ((home, n) for home in inode.homes for n, found in home.names.items() if found is inode)
            self._change(Change([(*old, None), (folder, name, inode)], inode))

    def _link(self, done: Operation) -> None:
        (folder, name), inode = self._place(done.other), self._numbers[done.inode]
        inode.links += 1
        self._change(Change([(folder, name, inode)]))

    def _rename(self, done: Operation) -> None:
        (folder, name), (to_folder, to_name) = self._place(done.path), self._place(done.other)
        inode = folder.names[name]
        self._change(Change([(folder, name, None), (to_folder, to_name, inode)], inode))

    def _change(self, change: Change) -> None:
        for folder, name, inode in change.entries:
            _name(folder.names, name, inode)
            if inode is not None:
                inode.homes.add(folder)
        self._changes.append(change)

    def _sync(self, inode: Inode) -> None:
        if inode.kind != "folder":
            return inode.sync()
        for change in self._changes:
            change.waiting.discard(inode)
        while self._changes and not self._changes[0].waiting:
            change = self._changes.pop(0)
            for folder, name, found in change.entries:
                _name(folder.sure_names, name, found)

    def left(self, chance: random.Random, mode: Mode) -> dict[str, bytes | str | None]:
        """What a power loss leaves: path → bytes of a file, text of a link, or None for a folder."""
        often, until = chance.choice((0.0, 0.5, 0.9, chance.random())), chance.randint(0, len(self._changes))
        names: dict[Inode, dict[str, Inode]] = {}
        for place, change in enumerate(self._changes):
            kept = place < until if mode == "ordered" else chance.random() < often
            if kept or not change.waiting:
                _apply(names, change)
        return dict(_walk(self.root, "", names, chance))


def _name(names: dict[str, Inode], name: str, inode: Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _apply(names: dict[Inode, dict[str, Inode]], change: Change) -> None:
    """To names that are copied from the sure ones when they are first needed."""

    def of(folder: Inode) -> dict[str, Inode]:
        return names.setdefault(folder, dict(folder.sure_names))

    moved = change.moved
    if moved is not None and not moved.links:  # a rename before it may be lost: nothing has two names by that
        for home in moved.homes:
            for name in [name for name, found in of(home).items() if found is moved]:
                del of(home)[name]
    for folder, name, inode in change.entries:
        _name(of(folder), name, inode)


def _walk(
    folder: Inode, path: str, names: dict[Inode, dict[str, Inode]], chance: random.Random
) -> Iterator[tuple[str, bytes | str | None]]:
    for name, inode in names.get(folder, folder.sure_names).items():
        below = f"{path}/{name}" if path else name
        if inode.kind == "folder":
            yield below, None
            yield from _walk(inode, below, names, chance)
        else:
            yield below, inode.text if inode.kind == "link" else inode.left(chance)


@dataclass(frozen=True)
class Crash:
    """The moment of a power loss, what had been acknowledged until then, and what is left."""

    place: int  # operations before it
    acknowledged: list[str]
    tree: dict[str, bytes | str | None]

    def restore(self, folder: Path) -> None:
        """Write what is left into a new folder."""
        folder.mkdir(parents=True)
        for path, found in self.tree.items():
            if found is None:
                (folder / path).mkdir()
            elif isinstance(found, bytes):
                (folder / path).write_bytes(found)
                (folder / path).chmod(0o600)  # as a token file demands
            else:
                (folder / path).symlink_to(found)


def crashes(operations: Sequence[Operation], root: int, count: int, seed: int, mode: Mode) -> Iterator[Crash]:
    """Power losses at random moments of a trace, a third of them right after something was acknowledged."""
    chance = random.Random(f"{seed} {mode}")
    marks = [place + 1 for place, done in enumerate(operations) if done.kind == "mark"]
    places = [
        chance.choice(marks) if marks and number % 3 == 0 else chance.randint(0, len(operations))
        for number in range(count)
    ]
    disk, acknowledged, done = Disk(root), list[str](), 0
    for place in sorted(places):
        for operation in operations[done:place]:
            disk.apply(operation)
            if operation.kind == "mark":
                acknowledged.append(operation.data.decode())
        done = place
        yield Crash(place, list(acknowledged), disk.left(chance, mode))
