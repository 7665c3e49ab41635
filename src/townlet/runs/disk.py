"""Durable file operations: atomic writes, fsync, bounded reads, and messages for disk errors."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from townlet.errors import TownletError

# errno → (what is wrong, what to do)
ERRNO_MESSAGES: Final = {
    errno.ENOSPC: ("the disk is full", "free some space there"),
    errno.EDQUOT: ("the disk quota is used up", "free some space there"),
    errno.EFBIG: ("a file may not grow that large here", "raise the limit on file sizes (ulimit -f)"),
    errno.EROFS: ("the disk is read-only", "mount it writable, or choose another folder"),
    errno.EACCES: ("permission is denied", "change the owner or the permissions of the folder"),
    errno.EPERM: ("permission is denied", "change the owner or the permissions of the folder"),
    errno.EIO: ("the disk reports an error", "check the health of the disk before continuing"),
    errno.ENOENT: ("it does not exist", "check whether it was moved or removed"),
    errno.EEXIST: ("a file of that name already exists", "move it, or choose another folder"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "name a folder"),
    errno.ELOOP: ("it is a symbolic link", "put the file itself there"),
}
PRIVATE: Final = 0o700  # mode of a folder that only its owner can enter, whatever the modes of the files in it
# Weights & Biases creates these links, and replaces them without following them.
WANDB_LINKS: Final = re.compile(r"wandb/(latest-run|debug\.log|debug-internal\.log|[^/]+/logs/debug-core\.log)")


def describe_error(error: OSError, failure: str, then: str = "") -> TownletError:
    """An OSError as a TownletError: what failed, why, and what to do; `then` is added to the remedy."""
    number = error.errno or 0
    what, fix = ERRNO_MESSAGES.get(number, (os.strerror(number) if number else str(error), "check the disk"))
    return TownletError(f"{failure}: {what}", f"{fix}, {then}" if then else fix)


@contextmanager
def os_errors(failure: str, then: str = "") -> Iterator[None]:
    """Raise an OSError as a TownletError; see `describe_error`."""
    try:
        yield
    except OSError as error:
        raise describe_error(error, failure, then) from error


def sync_folder(path: Path) -> None:
    """Fsync a folder, so that its names survive a power loss."""
    sync_file(path, os.O_DIRECTORY)


def sync_file(path: Path, flags: int = 0) -> None:
    """Fsync a file, so that its bytes survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rewrite_file(path: Path) -> None:
    """Rewrite a file with its own bytes and fsync it.

    After a failed fsync the page cache may hold bytes that never reached the disk, yet the next fsync succeeds.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        offset = 0
        while data := os.pread(descriptor, 1 << 20, offset):
            offset += os.pwrite(descriptor, data, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents unless they exist, and fsync their names.

    The name of an existing folder is fsynced too: a process that was killed after creating it may not have done so.
    """
    if path.is_dir():
        with suppress(PermissionError):  # this user cannot have created a folder in a parent without permission
            sync_folder(path.parent)
        return
    if not path.parent.is_dir():
        make_folder(path.parent)
    path.mkdir(mode, exist_ok=True)
    try:
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            path.rmdir()  # otherwise the next call would assume that its name is durable
        raise


def refuse_links(folder: Path) -> None:
    """Raise an error if something below a folder is neither a file nor a folder: a link may lead out of it.

    The folder itself may be a link. Call this before using a folder that may come from elsewhere.
    """
    folders, others = [str(folder)], list[str]()
    with os_errors(f"cannot read {folder}"):
        while folders:
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        others.append(entry.path)
    for path in map(Path, others):
        name = path.relative_to(folder).as_posix()
        linked = path.is_symlink()
        if os.path.lexists(path) and not (linked and WANDB_LINKS.fullmatch(name)):  # it may have just been removed
            kind = "symbolic link" if linked else "pipe, socket or device"
            fix = "remove it, or put the file or folder itself there; only the whole folder may be a link"
            raise TownletError(f"{name} is a {kind}, which could lead out of the folder", fix, folder)


def remove_tree(path: Path) -> None:
    """Remove a folder with everything in it, as far as the disk allows."""
    with suppress(OSError):  # `ignore_errors` does not cover a failing close
        shutil.rmtree(path, ignore_errors=True)


def write_new(path: Path, data: bytes) -> None:
    """Write and fsync a file that must not exist yet. Its name is durable once the folder is fsynced."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers and crashes see the old bytes or the new ones, never a mixture."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write_new(temporary, data)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise describe_error(error, f"cannot write {path}") from error


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; links, pipes and devices are not opened."""
    with os_errors(f"cannot read {path}"):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise TownletError(f"{path.name} is not a plain file", "put the file itself there", path)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        fix = "restore it from a backup; it is damaged or was not written by Townlet"
        raise TownletError(f"{path.name} has more than {limit} bytes", fix, path)
    return data
