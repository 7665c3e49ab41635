"""Compilation of loops with Numba; the machine code is cached on disk."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

# Numba's cache notices edits only in the file of a kernel itself, so its folder is named after a hash of all sources
# that the kernels of the town inline. Other kernels call no functions of other files.
TOWN_SOURCES: Final = (
    "ops.py", "rules.py", "rewards.py", "reset.py", "observe.py", "step.py", "state.py", "world/icons.py",
    "world/schema.py", "world/tables.py", "engines/numba_kernel.py", "engines/numba_lowering.py",
)  # fmt: skip


@cache
def cache_folder() -> Path:
    """The folder of compiled kernels: under TOWNLET_CACHE, else the user's cache folder, else a temporary one."""
    digest = hashlib.sha256(f"{version('numba')} {platform.python_version()}".encode())
    for source in TOWN_SOURCES:
        digest.update((Path(__file__).parent / "town" / source).read_bytes())
    configured = os.environ.get("TOWNLET_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "townlet"
    fallback = Path(tempfile.gettempdir()) / f"townlet-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    for root in [Path(configured)] if configured else [home, fallback]:
        folder = root / f"numba-{digest.hexdigest()[:16]}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        # Compiled code is executed, so other users must not be able to write to its folder.
        owned = not hasattr(os, "getuid") or (root.stat().st_uid == os.getuid() and not root.is_symlink())
        if owned and os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="townlet-numba-"))


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled by Numba at its first call or loaded from the cache; it runs without the GIL."""
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


@cache
def jit_if_available(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by Numba, or the function itself if Numba is not installed; imports Numba lazily."""
    return kernel(function) if find_spec("numba") else function
