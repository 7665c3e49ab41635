"""Child processes of this interpreter.

They do not import modules from the working folder, which may come from elsewhere and hold a file such as numpy.py.
Python puts it first on `sys.path` of `python -m` and `python -c`, which is how multiprocessing starts its processes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# A process that has run Numba kernels cannot fork safely. A fork server can; it imports the modules once for all.
START_METHOD: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
SAFE_PATH: Final = "PYTHONSAFEPATH"


def townlet_command(*arguments: str) -> list[str]:
    """The command that runs `townlet` in another process."""
    return [sys.executable, "-P", "-m", "townlet", *arguments]


@contextmanager
def starting(preloaded: list[str]) -> Iterator[None]:
    """Context in which `multiprocessing` may start processes; a fork server imports the modules `preloaded`."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    multiprocessing.set_forkserver_preload(preloaded)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def kill_all() -> None:
    """Kill the processes that `multiprocessing` has started, even those that hang."""
    for process in multiprocessing.active_children():
        process.kill()
