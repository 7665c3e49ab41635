"""The files of one checkpoint: written in order, and read only when every byte is as it was written."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file
from torch import Tensor

from townlet.errors import Mark, TownletError
from townlet.runs import disk
from townlet.runs.manifest import (
    DIGEST,
    MANIFEST,
    MAX_BYTES,
    SPELLING,
    STATE,
    Manifest,
    TensorRecord,
    manifest_of,
    text_of,
)


def fill(folder: Path, leaves: Mapping[str, Any], info: Mapping[str, Any], at: Callable[[str], None]) -> None:
    """Write and fsync a checkpoint's files in a new folder; `at` is told of every step."""
    folder.mkdir()
    at("folder made")
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    try:
        serialize_file({name: _spec(tensor) for name, tensor in tensors.items()}, folder / STATE)
    except SafetensorError as error:
        raise _os_error(error) from error
    at("state written")
    disk.sync_file(folder / STATE)
    at("state synced")
    text = text_of(leaves, info, (folder / STATE).stat().st_size, _sha256(folder / STATE))
    disk.write_new(folder / MANIFEST, text)
    at("manifest written")
    disk.write_new(folder / DIGEST, _seal(text))
    at("digest written")
    disk.sync_folder(folder)
    at("folder synced")


def open_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint, once the folder holds its three files and nothing else."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise damaged(folder, "it is not a folder")
        present = set(os.listdir(folder))
    except OSError as error:
        raise disk.explained(error, f"cannot read the checkpoint {folder}") from error
    for name in (DIGEST, MANIFEST, STATE):
        if name not in present:
            raise damaged(folder, f"{name} is missing")
    if strange := sorted(present - {DIGEST, MANIFEST, STATE}):
        raise damaged(folder, f"a foreign file {strange[0][:80]!r} lies in it")
    text = disk.read_bounded(folder / MANIFEST, MAX_BYTES)
    if disk.read_bounded(folder / DIGEST, 1024) != _seal(text):
        raise damaged(folder, f"{MANIFEST} does not match its sha256 in {DIGEST}")
    return manifest_of(text, folder / MANIFEST)


def check(folder: Path, manifest: Manifest) -> None:
    """Refuse a state file that is not byte for byte what the manifest says, without taking it into memory."""
    _check_bytes(folder, manifest)
    with _opened(folder) as file:
        _check_tensors(folder, manifest, file)


def load(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Every leaf in the manifest's order, after the checks."""
    _check_bytes(folder, manifest)
    with _opened(folder) as file:
        _check_tensors(folder, manifest, file)
        try:
            return {
                name: file.get_tensor(name) if isinstance(leaf, TensorRecord) else leaf.value
                for name, leaf in manifest.state.items()
            }
        except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
            raise damaged(folder, f"{STATE} cannot be read ({str(error)[:120]})") from None


def damaged(folder: Path, why: str) -> TownletError:
    """The refusal of a checkpoint, by name."""
    fix = "use another checkpoint, or remove this one to go on from the one before"
    return TownletError(f"the checkpoint {folder.name} is damaged or foreign: {why}", fix, Mark(str(folder)))


def _spec(tensor: Tensor) -> TensorSpec:
    """Where a tensor lies in memory. Unlike `save_file` this allows two leaves to share it."""
    kind = str(tensor.dtype).removeprefix("torch.")
    size = tensor.numel() * tensor.element_size()
    return TensorSpec(dtype=kind, shape=list(tensor.shape), data_ptr=tensor.data_ptr(), data_len=size)


def _seal(text: bytes) -> bytes:
    """As `sha256sum` writes it, so that `sha256sum -c` can check it too."""
    return f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()


def _sha256(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_bytes(folder: Path, manifest: Manifest) -> None:
    record, path = manifest.files[STATE], folder / STATE
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise damaged(folder, f"{STATE} is not a plain file")
        if found.st_size != record.bytes:
            raise damaged(folder, f"{STATE} has {found.st_size} bytes and should have {record.bytes}")
        if _sha256(path) != record.sha256:
            raise damaged(folder, f"{STATE} does not match its sha256")
    except OSError as error:
        raise disk.explained(error, f"cannot read the checkpoint {folder}") from error


def _opened(folder: Path) -> Any:
    try:
        return safe_open(folder / STATE, framework="pt")
    except (SafetensorError, OSError, RuntimeError) as error:
        raise damaged(folder, f"{STATE} cannot be read ({str(error)[:120]})") from None


def _check_tensors(folder: Path, manifest: Manifest, file: Any) -> None:
    """Compare names, types and shapes with the manifest, before any memory is taken for them."""
    wanted, present = manifest.tensors, set(file.keys())
    if different := sorted(present ^ set(wanted)):
        place = STATE if different[0] in wanted else MANIFEST
        raise damaged(folder, f"the tensor '{different[0][:80]}' is missing in {place}")
    for name, record in wanted.items():
        part = file.get_slice(name)
        if (part.get_dtype(), part.get_shape()) != (record.dtype, record.shape):
            raise damaged(folder, f"the tensor '{name[:80]}' is not of the type and shape in {MANIFEST}")


def _os_error(error: SafetensorError) -> OSError:
    """safetensors tells an error of the disk only in words."""
    found = re.search(r"os error (\d+)", str(error))
    return OSError(int(found[1]), str(error)) if found else OSError(str(error))


def check_types(leaves: Mapping[str, Any]) -> None:
    """Refuse tensors of a type that no file could keep."""
    for name, leaf in leaves.items():
        if isinstance(leaf, Tensor) and leaf.dtype not in SPELLING:
            known = ", ".join(str(kind).removeprefix("torch.") for kind in SPELLING)
            raise TownletError(f"the part '{name}' of the state has the type {leaf.dtype}", f"use one of {known}")
