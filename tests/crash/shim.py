"""Control of `shim.c`: record file operations of a process, make them fail, and change its clock.

    shim = Shim(root, work)                       # root: the traced folder; work: another folder
    process = subprocess.Popen(command, env=shim.env())
    shim.jump(-3600)                              # set the wall clock of the process back one hour
    shim.fill_disk(); …; shim.heal()              # in between, write, create and mkdir fail with ENOSPC
    shim.fail("sync", errno.EIO, at=3)            # the third fsync or fdatasync from now on

The process itself may do the same with `Shim.attached()`, and note in the trace what was acknowledged with `mark`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("shim.c")
# Kinds of operations, with the numbers of the enumeration in shim.c. `mark` and `create` (an `open` that made the file)
# stand in traces only.
KINDS: Final = {
    "open": 1, "write": 2, "sync": 3, "rename": 4, "close": 5, "unlink": 6, "mkdir": 7, "rmdir": 8, "link": 9,
    "symlink": 10, "truncate": 11, "allocate": 12, "mark": 13, "create": 14,
}  # fmt: skip
NAMES: Final = {number: name for name, number in KINDS.items()}
GROWING: Final = ("open", "write", "mkdir", "allocate", "link", "symlink")  # operations that fail on a full disk
CONTROL: Final = struct.Struct("=qQQiiiiQQ32Q")
RECORD: Final = struct.Struct("=BBHHHIIQq")
CLOCK, ARMED, SEEN, COUNTS = 0, 8, 40, 56  # bytes in the control file at which these begin


class Operation(NamedTuple):
    """One entry of a trace. Paths are below the root; "" is the root itself."""

    kind: str
    error: int  # errno of an injected failure, 0 where the operation succeeded
    inode: int
    offset: int  # of a write; size of a truncation or allocation
    path: str = ""
    other: str = ""  # where a rename or link leads to
    data: bytes = b""


@cache
def missing() -> str | None:
    """Why the shim cannot be used here; None if it can."""
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD is used, which exists on Linux only"
    if compiler() is None:
        return "there is no C compiler (cc or gcc) to build the shim"
    return None


def compiler() -> str | None:
    """The C compiler."""
    return shutil.which("cc") or shutil.which("gcc")


def preload() -> dict[str, str]:
    """The environment for a process whose forks may `attach`; in that process itself the shim does nothing."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("SHIM_")}
    return usual if missing() else {**usual, "LD_PRELOAD": str(library())}


def attach() -> None:
    """Run this fork of a process with `preload` under the shim, if its environment is that of `Shim.env`."""
    if "SHIM_CONTROL" in os.environ:
        ctypes.CDLL(None).shim_start()


@cache
def library() -> Path:
    """The shim, compiled once for each version of its source and kept among temporary files of this user."""
    name = sha256(SOURCE.read_bytes() + sysconfig.get_platform().encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"townlet-shim-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"{name}.so"
    if not built.exists():
        fresh = folder / f"{name}.{os.getpid()}"
        command = [str(compiler()), "-O2", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True)
        fresh.rename(built)
    return built


class Shim:
    """One watched folder, with the control file that the processes share and perhaps a trace."""

    def __init__(self, root: Path, work: Path, traced: bool = False) -> None:
        self.root, self._traced = root.resolve(), traced
        self._control, self.trace_file = work / "shim.control", work / "shim.trace"
        work.mkdir(parents=True, exist_ok=True)
        if not self._control.exists():
            self._control.write_bytes(bytes(CONTROL.size))
        with self._control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), CONTROL.size)

    @classmethod
    def attached(cls) -> Shim:
        """The shim under which this process runs."""
        control = Path(os.environ["SHIM_CONTROL"])
        return cls(Path(os.environ["SHIM_ROOT"]), control.parent, "SHIM_TRACE" in os.environ)

    def env(self) -> dict[str, str]:
        """The environment for a process that is to run under the shim."""
        ours = {"LD_PRELOAD": str(library()), "SHIM_ROOT": str(self.root), "SHIM_CONTROL": str(self._control)}
        return {**os.environ, **ours, **({"SHIM_TRACE": str(self.trace_file)} if self._traced else {})}

    def jump(self, seconds: float) -> None:
        """Move the wall clock of the processes; jumps add up."""
        (now,) = struct.unpack_from("=q", self._memory, CLOCK)
        struct.pack_into("=q", self._memory, CLOCK, now + int(seconds * 1e9))

    def fail(
        self, kinds: str | tuple[str, ...], error: int, at: int = 1, *, lasting: bool = False, short: bool = False,
        growing: bool = False,
    ) -> None:  # fmt: skip
        """Let the `at`-th operation of these kinds from now on fail; `lasting`: and all after it.

        `short`: a write writes half of its bytes first, and the next operation fails, as on a disk that becomes full.
        `growing`: opening what exists and writing over what is there succeed, since they need no room.
        """
        mask = sum(1 << KINDS[kind] for kind in ((kinds,) if isinstance(kinds, str) else kinds))
        self.heal()
        struct.pack_into("=Qiiii", self._memory, ARMED + 8, at, error, lasting, short, growing)
        struct.pack_into("=Q", self._memory, ARMED, mask)

    def fill_disk(self) -> None:
        """From now on nothing can be created, written or enlarged."""
        self.fail(GROWING, errno.ENOSPC, lasting=True, growing=True)

    def heal(self) -> None:
        """Nothing fails any more."""
        struct.pack_into("=Q", self._memory, ARMED, 0)
        struct.pack_into("=QQ", self._memory, SEEN, 0, 0)

    @property
    def failed(self) -> int:
        """Operations that failed since `fail`."""
        return int(struct.unpack_from("=QQ", self._memory, SEEN)[1])

    def counts(self) -> dict[str, int]:
        """Operations of each kind so far."""
        found = struct.unpack_from("=32Q", self._memory, COUNTS)
        return {name: found[number] for number, name in NAMES.items()}

    def mark(self, text: str) -> None:
        """Note in the trace, in a process under the shim, that something has been acknowledged."""
        data = text.encode()
        ctypes.CDLL(None).shim_mark(data, ctypes.c_size_t(len(data)))

    def trace(self) -> Iterator[Operation]:
        """Everything that was done below the root, in order."""
        return read_trace(self.trace_file, self.root)


def read_trace(path: Path, root: Path) -> Iterator[Operation]:
    """The operations of a trace file."""
    data, place = memoryview(path.read_bytes()), 0

    def take(size: int) -> bytes:
        nonlocal place
        place += size
        return bytes(data[place - size : place])

    def below(text: str) -> str:
        return text.removeprefix(str(root)).lstrip("/") if text.startswith(str(root)) else text

    while place < len(data):
        kind, _, first, second, error, _, size, inode, offset = RECORD.unpack(take(RECORD.size))
        path_text, other = below(os.fsdecode(take(first))), below(os.fsdecode(take(second)))
        yield Operation(NAMES[kind], error, inode, offset, path_text, other, take(size))
