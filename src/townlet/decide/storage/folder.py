"""Opening the folder of a service for writing: it must be its own, private and free of links."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Final

from townlet.decide.storage import LOG, TOKENS
from townlet.errors import TownletError
from townlet.runs import disk

OTHER_USERS: Final = 0o077
logger = logging.getLogger(__name__)


def open_service_folder(folder: Path) -> None:
    """Create the folder of a service, or check an existing one, and close it to other users.

    Its log holds observations and the keys that sign decision ids.
    """
    names = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    if names - {TOKENS} and LOG not in names:
        what = f"{folder} is not the folder of a service: it contains {min(names - {TOKENS})}"
        raise TownletError(what, "choose an empty folder, or a new one, with --folder")
    disk.refuse_links(folder)
    with disk.os_errors(f"cannot open {folder}"):
        disk.make_folder(folder, disk.PRIVATE)
        mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & OTHER_USERS:
        try:
            folder.chmod(mode & ~OTHER_USERS)
            logger.warning("Other users had access to %s. It is private from now on.", folder)
        except OSError:  # another user owns it, as on a mounted volume
            logger.warning("Other users have access to %s. Its owner can change that: chmod 700 %s", folder, folder)
