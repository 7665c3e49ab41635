"""File descriptors of a server: the limit of the process raised, and shares of it for each kind of connection."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final, NamedTuple

ENOUGH: Final = 1 << 16  # descriptors that are asked for; the hard limit may allow fewer
RESERVE: Final = 64  # kept free for the log, versions, checkpoints and databases
BACKLOG: Final = 2048  # connections that may wait in the kernel to be accepted
REQUESTS: Final = 1024  # HTTP connections at once
REMEDY: Final = "raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit) and start again"


class Descriptors(NamedTuple):
    """How the descriptors of a process are shared out, so that connections never use up those of files."""

    limit: int  # of the process
    backlog: int  # connections that the kernel may accept ahead: the loop takes all of them in one turn
    requests: int  # HTTP connections
    sockets: int  # WebSockets

    @property
    def served(self) -> int:
        """WebSockets for the application; the others are being refused, with a reason that takes a moment to send."""
        return self.sockets - self.sockets // 16


def shares(limit: int, used: int) -> Descriptors:
    """Shares of `limit` descriptors, of which `used` are open already."""
    room = max(limit - used - RESERVE, 16)
    backlog, requests = min(BACKLOG, room // 8), min(REQUESTS, room // 8)
    return Descriptors(limit, backlog, requests, room - backlog - requests)


def raise_limit(enough: int = ENOUGH) -> Descriptors:
    """Raise the soft limit of open files as far as is useful and allowed, and share it out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # some systems allow less than they say: the soft limit holds then
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return shares(enough if soft == resource.RLIM_INFINITY else soft, _open())


def _open() -> int:
    """Descriptors that this process has open."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return RESERVE
