"""Memory checks before large allocations: Linux overcommits and later kills the process that uses the memory."""

from __future__ import annotations

import os
import resource
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from townlet.errors import TownletError

MIN_CHECKED: Final = 64 << 20  # bytes; smaller allocations are not checked
ADDRESS_SPACE, RESIDENT = 0, 1  # fields of /proc/self/statm
UNLIMITED: Final = 1 << 62
GIGABYTE: Final = 1e9
CGROUP: Final = Path("/sys/fs/cgroup")
ALLOCATION_ERRORS: Final = ("can't allocate memory", "not enough memory", "out of memory", "unable to allocate")
FIX: Final = "lower rows, agent.n_steps, agent.replay or network.hidden, or close other programs"

_reserved: dict[int, int] = {}  # bytes of large buffers that are alive, by the id of their owner
_baseline: list[int] = []  # resident bytes of this process before the first of them; empty until then


def reserve(owner: object, size: int, what: str, fix: str) -> None:
    """Check that `size` bytes are available for buffers of `owner`, and reserve them for its lifetime.

    Pages of a buffer become resident only when they are written, so reserved bytes that are not resident yet do not
    count as available.
    """
    if size < MIN_CHECKED:
        return
    resident = _memory_size(RESIDENT)
    if not _baseline:
        _baseline.append(resident)
    require(size, what, fix, pending=max(0, sum(_reserved.values()) + _baseline[0] - resident))
    _reserved[id(owner)] = _reserved.get(id(owner), 0) + size
    weakref.finalize(owner, _reserved.pop, id(owner), None)


def require(size: int, what: str, fix: str, pending: int = 0) -> None:
    """Check that `size` bytes are available, besides `pending` bytes that are reserved but not resident yet."""
    if size < MIN_CHECKED:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    address_space = UNLIMITED if limit == resource.RLIM_INFINITY else limit - _memory_size(ADDRESS_SPACE)
    free = min(available() - pending, address_space)
    if size > free:
        amounts = f"{size / GIGABYTE:,.1f} GB of memory, but only {max(free, 0) / GIGABYTE:,.1f} GB are free"
        raise TownletError(f"{what} needs {amounts}", fix)


def available() -> int:
    """Bytes of memory that this process can still use, within the machine and its control groups."""
    return min([_available_on_machine(), *(_available_in_cgroup(folder) for folder in _cgroup_folders())])


def memory_error(error: BaseException) -> TownletError | None:
    """The error to show to the user if an allocation failed; None for every other error."""
    text = str(error)
    from_torch = isinstance(error, RuntimeError) and any(part in text.lower() for part in ALLOCATION_ERRORS)
    if from_torch or isinstance(error, MemoryError):
        what = text.partition("\n")[0][:200].rstrip(".")
        return TownletError(f"not enough memory: {what}" if what else "not enough memory", FIX)
    return None


def _available_on_machine() -> int:
    """Bytes available on the machine; all of its memory if that is unknown."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return UNLIMITED


def _cgroup_folders() -> list[Path]:
    """Folders of this process's control group and its parents."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                root = CGROUP if not controllers else CGROUP / "memory"
                group = root / path.lstrip("/")
                return [root, *(folder for folder in (group, *group.parents) if root in folder.parents)]
    return []


def _available_in_cgroup(folder: Path) -> int:
    """Bytes that a control group may still use; cached files count as available."""
    for limit, usage, cached in (
        ("memory.max", "memory.current", "inactive_file "),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        with suppress(OSError, ValueError, StopIteration):
            maximum = int((folder / limit).read_text())  # "max", which means no limit, raises ValueError
            lines = (folder / "memory.stat").read_text().splitlines()
            reclaimable = next(int(line.split()[1]) for line in lines if line.startswith(cached))
            return maximum - int((folder / usage).read_text()) + reclaimable
    return UNLIMITED


def _memory_size(field: int) -> int:
    """A size of this process in bytes, from a field of statm; 0 if unknown."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()
    return 0
