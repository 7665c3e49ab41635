"""Checkpoints. Each is complete or rejected with a reason; loading reads tensors and JSON and executes no code.

A checkpoint is a folder `step-000001234567` with `state.safetensors`, `manifest.json` and `manifest.sha256`. It is
written under a temporary name, fsynced, and renamed: the rename is the commit. There is no separate pointer that could
disagree with the disk: the latest checkpoint is the one with the highest step, the best the one with the highest
`score` in its manifest.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs import checkpoint_files, disk
from townlet.runs.checkpoint_files import Manifest
from townlet.runs.serialization import flatten, json_value, unflatten

NAME_PATTERN: Final = re.compile(r"step-(\d{12,18})(?:\.(\d{1,6}))?")
NEW_PREFIX, REMOVED_PREFIX = ".new-", ".gone-"  # of folders that are being written or removed

# Stages of saving and pruning, in order; a crash after each leaves a different state on disk.
COMMIT_POINTS: Final = (
    "begun", "folder made", "state written", "state synced", "manifest written", "digest written", "folder synced",
    "renamed", "committed", "replaced checkpoint renamed", "replaced checkpoint removed", "pruning begun",
    "pruned checkpoint renamed", "pruned checkpoint removed", "pruning ended",
)  # fmt: skip


def on_point(point: str) -> None:
    """Called at each of COMMIT_POINTS; crash tests replace it."""


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint and the info in its manifest (env_steps, updates, hashes, score, …)."""

    path: Path
    info: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def env_steps(self) -> int:
        return step_and_serial(self.path)[0]


def folder_name(env_steps: int) -> str:
    return f"step-{env_steps:012d}"


def step_and_serial(path: Path | str) -> tuple[int, int]:
    """(env_steps, serial) of a checkpoint's path or name; saving the same step again increments the serial."""
    name = path.name if isinstance(path, Path) else path
    match = NAME_PATTERN.fullmatch(name)
    if not match:
        raise TownletError(f"'{name}' is not the name of a checkpoint", "names look like step-000001234567")
    return int(match[1]), int(match[2] or 0)


def paths(folder: Path) -> list[Path]:
    """Folders of all committed checkpoints, oldest first, without leftovers of a crash."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if NAME_PATTERN.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    return sorted((folder / name for name in names), key=step_and_serial)


def latest(folder: Path) -> Checkpoint | None:
    """The latest checkpoint, or None. Read-only, so safe for viewers during a commit."""
    folders = paths(folder)
    return Checkpoint(folders[-1], _manifest(folders[-1]).info) if folders else None


def scan(folder: Path) -> tuple[list[Checkpoint], dict[Path, TownletError]]:
    """All checkpoints with a valid manifest, oldest first, and the errors of the others."""
    intact, damaged = [], {}
    for path in paths(folder):
        try:
            intact.append(Checkpoint(path, _manifest(path).info))
        except TownletError as error:
            if path.is_dir():  # otherwise a training process has just removed it
                damaged[path] = error
    return intact, damaged


def best(folder: Path) -> Checkpoint | None:
    """The checkpoint with the highest `score`, the earliest on ties; None without scores. Damaged ones are skipped."""
    return best_of(scan(folder)[0])


def save(folder: Path, name: str, state: State, info: Mapping[str, Any]) -> Checkpoint:
    """Write a checkpoint atomically. If that fails, older checkpoints are untouched and the error gives the cause."""
    leaves, info = flatten(state), {name: json_value(value, name) for name, value in info.items()}
    checkpoint_files.check_types(leaves)
    env_steps, _ = step_and_serial(name)  # raises for invalid names before touching the disk
    on_point("begun")
    partial, older = folder / f"{NEW_PREFIX}{secrets.token_hex(8)}", paths(folder)
    replaced = [path for path in older if step_and_serial(path)[0] == env_steps]
    if replaced:  # a new name: a crash between the two renames of a replacement would leave no checkpoint
        name = f"{folder_name(env_steps)}.{step_and_serial(replaced[-1])[1] + 1}"
    try:
        disk.make_folder(folder)
        remove_leftovers(folder)
        checkpoint_files.fill(partial, leaves, info, on_point)
        target = folder / name
        os.rename(partial, target)
        on_point("renamed")
        _sync_name(target)
        on_point("committed")
    except OSError as error:
        then = f"then resume from {older[-1].name}" if older else "then start again"
        raise disk.describe_error(error, f"cannot write the checkpoint {name} in {folder}", then) from error
    finally:
        disk.remove_tree(partial)
    remove(folder, [path.name for path in replaced], "replaced")
    return Checkpoint(target, info)


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """State and info of a checkpoint; leaves are CPU tensors and JSON values.

    First the files (names, types, sizes, digests) and every leaf are checked against the manifest.
    """
    manifest = _manifest(path)
    leaves = checkpoint_files.load(path, manifest)
    try:
        return unflatten(leaves), manifest.info
    except TownletError as error:
        raise checkpoint_files.damaged(path, error.diagnostics[0].what) from None


def verify(path: Path) -> Checkpoint:
    """Check every byte of a checkpoint without loading its tensors into memory."""
    manifest = _manifest(path)
    checkpoint_files.check(path, manifest)
    return Checkpoint(path, manifest.info)


def require_info(checkpoint: Checkpoint, **expected: Any) -> None:
    """Raise an error unless the checkpoint's info has these values: it may belong to another world or agent."""
    for name, value in expected.items():
        if (found := checkpoint.info.get(name)) != value:
            what = f"the checkpoint {checkpoint.name} has {name} {str(found)[:80]}, but this run has {str(value)[:80]}"
            raise TownletError(what, "resume it with the recipe it was trained with", checkpoint.path)


def prune(folder: Path, keep_every: int = 0) -> None:
    """Remove all checkpoints but the last, the best, the damaged, and the first of every `keep_every` env_steps.

    A damaged one may have been the best and be worth repairing. With `keep_every` 0, none are kept at intervals.
    """
    on_point("pruning begun")
    folders, (intact, damaged) = paths(folder), scan(folder)
    keep = {*folders[-1:], *damaged}
    if best_scored := best_of(intact):
        keep.add(best_scored.path)
    intervals = set()
    for path in folders if keep_every > 0 else []:
        if (interval := step_and_serial(path)[0] // keep_every) and interval not in intervals:
            intervals.add(interval)
            keep.add(path)
    remove(folder, [path.name for path in folders if path not in keep])
    on_point("pruning ended")


def rewind(folder: Path, env_steps: int) -> None:
    """Remove the checkpoints after `env_steps`: a run that resumes there writes new ones."""
    remove(folder, [path.name for path in reversed(paths(folder)) if step_and_serial(path)[0] > env_steps])


def remove(folder: Path, names: Sequence[str], why: str = "pruned") -> None:
    """Remove checkpoints: rename each, then delete their files.

    The new names are fsynced first: otherwise a power loss could restore a checkpoint without its files.
    """
    hidden_paths = {folder / name: folder / f"{REMOVED_PREFIX}{secrets.token_hex(8)}" for name in names}
    with disk.os_errors(f"cannot remove old checkpoints in {folder}"):
        for path, hidden in hidden_paths.items():
            os.rename(path, hidden)
            on_point(f"{why} checkpoint renamed")
        if hidden_paths:
            disk.sync_folder(folder)
    for hidden in hidden_paths.values():
        disk.remove_tree(hidden)
        on_point(f"{why} checkpoint removed")


def remove_leftovers(folder: Path) -> None:
    """Delete checkpoints that a crash left partly written or partly removed. Only the writer may call this."""
    if not folder.is_dir():
        return
    leftovers = [entry for entry in os.scandir(folder) if entry.name.startswith((NEW_PREFIX, REMOVED_PREFIX))]
    if leftovers:
        disk.sync_folder(folder)  # as in `remove`
    for entry in leftovers:
        if entry.is_dir(follow_symlinks=False):
            disk.remove_tree(Path(entry.path))
        else:
            os.unlink(entry.path)


def best_of(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The checkpoint with the highest `score`, the earliest on ties."""
    scored = [checkpoint for checkpoint in checkpoints if isinstance(checkpoint.info.get("score"), int | float)]
    return max(scored, key=lambda c: (c.info["score"], -c.env_steps), default=None)


def _manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint; raises TownletError if its folder was renamed."""
    manifest = checkpoint_files.open_manifest(path)
    saved_at = manifest.info.get("env_steps")
    if saved_at is not None and NAME_PATTERN.fullmatch(path.name) and saved_at != step_and_serial(path)[0]:
        what = f"the checkpoint {path.name} was renamed: it was saved at step {str(saved_at)[:20]}"
        fix = f"restore the name {folder_name(saved_at)}" if type(saved_at) is int else "remove it: its step is invalid"
        raise TownletError(what, fix, path)
    return manifest


def _sync_name(path: Path) -> None:
    """Make the name of a new checkpoint durable; if that fails, the checkpoint becomes a leftover to remove."""
    try:
        disk.sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            os.rename(path, path.with_name(f"{REMOVED_PREFIX}{secrets.token_hex(8)}"))
        raise
