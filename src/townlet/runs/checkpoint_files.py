"""The files of a checkpoint: tensors, and a manifest with checksums and a table of every leaf of the state."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file
from torch import Tensor

from townlet.config.models import StrictModel, first_error
from townlet.errors import TownletError
from townlet.runs import disk
from townlet.runs.serialization import parse_json

FORMAT: Final = "townlet-checkpoint"
FORMAT_VERSION: Final = 1
STATE: Final = "state.safetensors"
MANIFEST: Final = "manifest.json"
DIGEST: Final = "manifest.sha256"
MAX_MANIFEST_BYTES: Final = 1 << 20  # a larger file is not read into memory

# name in safetensors → dtype of torch
DTYPES: Final = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U64": torch.uint64, "U32": torch.uint32,
    "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
DTYPE_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
AxisSize = Annotated[int, Field(ge=0, lt=1 << 40)]


class FileRecord(StrictModel):
    """Size and checksum of one file of the checkpoint."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class TensorRecord(StrictModel):
    """A leaf stored in the safetensors file."""

    dtype: str
    shape: list[AxisSize] = Field(max_length=16)


class ValueRecord(StrictModel):
    """A leaf stored as a JSON value."""

    value: Any


class Manifest(StrictModel):
    """Content of manifest.json; `state` keeps the order of the leaves."""

    format: Literal["townlet-checkpoint"]
    version: int
    info: dict[str, Any]
    files: dict[str, FileRecord]
    state: dict[str, TensorRecord | ValueRecord]

    @property
    def tensors(self) -> dict[str, TensorRecord]:
        return {name: leaf for name, leaf in self.state.items() if isinstance(leaf, TensorRecord)}


def manifest_json(leaves: Mapping[str, Any], info: Mapping[str, Any], size: int, sha256: str) -> bytes:
    """The manifest as JSON; `size` and `sha256` are those of the file with the tensors."""
    state = {
        name: {"dtype": DTYPE_NAMES[leaf.dtype], "shape": list(leaf.shape)}
        if isinstance(leaf, torch.Tensor)
        else {"value": leaf}
        for name, leaf in leaves.items()
    }
    files = {STATE: {"bytes": size, "sha256": sha256}}
    manifest = {"format": FORMAT, "version": FORMAT_VERSION, "info": dict(info), "files": files, "state": state}
    text = json.dumps(manifest, allow_nan=False).encode()
    if len(text) > MAX_MANIFEST_BYTES:
        what = f"the numbers and strings of the state take more than {MAX_MANIFEST_BYTES >> 20} MiB"
        raise TownletError(what, "keep long lists as tensors")
    return text


def parse_manifest(text: bytes, path: Path) -> Manifest:
    """The manifest in the current format version; raises TownletError for anything else."""
    content = parse_json(text, path)
    if content.get("format") != FORMAT:
        raise TownletError("this is not a checkpoint of Townlet", "name a checkpoint of a run", path)
    version = content.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        what = f"the checkpoint has format version {str(version)[:20]}, but this Townlet reads {FORMAT_VERSION}"
        raise TownletError(what, "use the release of Townlet that wrote it", path)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        fix = "use another checkpoint; the manifest is damaged or was not written by Townlet"
        raise TownletError(first_error(error.errors(), "manifest"), fix, path) from None
    fix = "use another checkpoint; this one was not written by Townlet"
    if set(manifest.files) != {STATE}:
        listed = ", ".join(sorted(manifest.files))[:80] or "no file"
        raise TownletError(f"the manifest should list only {STATE}, but lists {listed}", fix, path)
    for name, leaf in manifest.tensors.items():
        if leaf.dtype not in DTYPES:
            raise TownletError(f"'{name[:80]}' has the unknown type {leaf.dtype[:20]!r}", fix, path)
    return manifest


def fill(folder: Path, leaves: Mapping[str, Any], info: Mapping[str, Any], on_point: Callable[[str], None]) -> None:
    """Write and fsync a checkpoint's files in a new folder; `on_point` is called after each operation."""
    folder.mkdir()
    on_point("folder made")
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Tensor)}
    try:
        serialize_file({name: tensor_spec(tensor) for name, tensor in tensors.items()}, folder / STATE)
    except SafetensorError as error:  # only its message contains the errno
        number = re.search(r"os error (\d+)", str(error))
        arguments = (int(number[1]), str(error)) if number else (str(error),)
        raise OSError(*arguments) from error
    on_point("state written")
    disk.sync_file(folder / STATE)
    on_point("state synced")
    text = manifest_json(leaves, info, (folder / STATE).stat().st_size, _sha256(folder / STATE))
    disk.write_new(folder / MANIFEST, text)
    on_point("manifest written")
    disk.write_new(folder / DIGEST, _seal(text))
    on_point("digest written")
    disk.sync_folder(folder)
    on_point("folder synced")


def open_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint whose folder holds exactly its three files."""
    with disk.os_errors(f"cannot read the checkpoint {folder}"):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise damaged(folder, "it is not a folder")
        present = set(os.listdir(folder))
    for name in (DIGEST, MANIFEST, STATE):
        if name not in present:
            raise damaged(folder, f"{name} is missing")
    if unexpected := sorted(present - {DIGEST, MANIFEST, STATE}):
        raise damaged(folder, f"an unexpected file {unexpected[0][:80]!r} is in it")
    text = disk.read_bounded(folder / MANIFEST, MAX_MANIFEST_BYTES)
    if disk.read_bounded(folder / DIGEST, 1024) != _seal(text):
        raise damaged(folder, f"{MANIFEST} does not match its sha256 in {DIGEST}")
    return parse_manifest(text, folder / MANIFEST)


def check(folder: Path, manifest: Manifest) -> None:
    """Raise an error if the state file differs from the manifest, without loading it into memory."""
    with _checked_state(folder, manifest):
        pass


def load(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Load every leaf in the manifest's order, after the checks."""
    with _checked_state(folder, manifest) as file:
        try:
            return {
                name: file.get_tensor(name) if isinstance(leaf, TensorRecord) else leaf.value
                for name, leaf in manifest.state.items()
            }
        except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
            raise damaged(folder, f"{STATE} cannot be read ({str(error)[:120]})") from None


def damaged(folder: Path, why: str) -> TownletError:
    fix = "use another checkpoint, or remove this one to resume from the one before"
    return TownletError(f"the checkpoint {folder.name} is damaged: {why}", fix, folder)


def tensor_spec(tensor: Tensor) -> TensorSpec:
    """The memory of a tensor; two leaves may share it, which `save_file` of safetensors refuses."""
    kind = str(tensor.dtype).removeprefix("torch.")
    size = tensor.numel() * tensor.element_size()
    return TensorSpec(dtype=kind, shape=list(tensor.shape), data_ptr=tensor.data_ptr(), data_len=size)


def _seal(text: bytes) -> bytes:
    """The checksum in the format of `sha256sum`, which can check it too."""
    return f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()


def _sha256(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _checked_state(folder: Path, manifest: Manifest) -> Iterator[Any]:
    """The opened state file, once its bytes, names, types and shapes match the manifest; no tensor is loaded."""
    record, path = manifest.files[STATE], folder / STATE
    with disk.os_errors(f"cannot read the checkpoint {folder}"):
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise damaged(folder, f"{STATE} is not a plain file")
        if found.st_size != record.bytes:
            raise damaged(folder, f"{STATE} has {found.st_size} bytes but should have {record.bytes}")
        if _sha256(path) != record.sha256:
            raise damaged(folder, f"{STATE} does not match its sha256")
    try:
        opened = safe_open(path, framework="pt")
    except (SafetensorError, OSError, RuntimeError) as error:
        raise damaged(folder, f"{STATE} cannot be read ({str(error)[:120]})") from None
    with opened as file:
        wanted, present = manifest.tensors, set(file.keys())
        if different := sorted(present ^ set(wanted)):
            place = STATE if different[0] in wanted else MANIFEST
            raise damaged(folder, f"the tensor '{different[0][:80]}' is missing from {place}")
        for name, tensor in wanted.items():
            part = file.get_slice(name)
            if (part.get_dtype(), part.get_shape()) != (tensor.dtype, tensor.shape):
                raise damaged(folder, f"the tensor '{name[:80]}' is not of the type and shape in {MANIFEST}")
        yield file


def check_types(leaves: Mapping[str, Any]) -> None:
    """Raise an error for tensors of a type that safetensors cannot store."""
    for name, leaf in leaves.items():
        if isinstance(leaf, Tensor) and leaf.dtype not in DTYPE_NAMES:
            known = ", ".join(str(kind).removeprefix("torch.") for kind in DTYPE_NAMES)
            raise TownletError(f"the part '{name}' of the state has the type {leaf.dtype}", f"use one of {known}")
