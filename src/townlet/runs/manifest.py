"""What a checkpoint says about itself: format, files with their sha256, and a table of every leaf of the state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import Field, ValidationError

from townlet.config.model import Model
from townlet.errors import Mark, TownletError
from townlet.runs.strict_json import parse

FORMAT: Final = "townlet-checkpoint"
VERSION: Final = 1
STATE: Final = "state.safetensors"
MANIFEST: Final = "manifest.json"
DIGEST: Final = "manifest.sha256"
MAX_BYTES: Final = 1 << 20  # of a manifest; a larger one would cost memory before it is known to be ours

# As safetensors spells them, and as torch does.
DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
SPELLING: Final = {dtype: name for name, dtype in DTYPES.items()}
Side = Annotated[int, Field(ge=0, lt=1 << 40)]


class FileRecord(Model):
    """One file of the checkpoint."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class TensorRecord(Model):
    """A leaf that lies in the safetensors file."""

    dtype: str
    shape: list[Side] = Field(max_length=16)


class ValueRecord(Model):
    """A leaf that is its JSON value."""

    value: Any


class Manifest(Model):
    """The current format. `state` keeps the order in which the parts named their leaves."""

    format: Literal["townlet-checkpoint"]
    version: int
    info: dict[str, Any]
    files: dict[str, FileRecord]
    state: dict[str, TensorRecord | ValueRecord]

    @property
    def tensors(self) -> dict[str, TensorRecord]:
        """The leaves that lie in the safetensors file."""
        return {name: leaf for name, leaf in self.state.items() if isinstance(leaf, TensorRecord)}


# A reader for each format that was ever released: it gives the current form.
READERS: Final[dict[int, Callable[[dict[str, Any]], Manifest]]] = {1: Manifest.model_validate}


def text_of(leaves: Mapping[str, Any], info: Mapping[str, Any], size: int, sha256: str) -> bytes:
    """The manifest of a state whose tensors are already on disk, as JSON."""
    state = {
        name: {"dtype": SPELLING[leaf.dtype], "shape": list(leaf.shape)}
        if isinstance(leaf, torch.Tensor)
        else {"value": leaf}
        for name, leaf in leaves.items()
    }
    files = {STATE: {"bytes": size, "sha256": sha256}}
    whole = {"format": FORMAT, "version": VERSION, "info": dict(info), "files": files, "state": state}
    text = json.dumps(whole, allow_nan=False).encode()
    if len(text) > MAX_BYTES:
        raise TownletError(
            f"the numbers and texts of the state take more than {MAX_BYTES >> 20} MiB", "keep long lists as tensors"
        )
    return text


def manifest_of(text: bytes, path: Path) -> Manifest:
    """The manifest in any format that was ever released; anything else is refused with its reason."""
    where = Mark(str(path))
    found = parse(text, path)
    if found.get("format") != FORMAT:
        raise TownletError("this is not a checkpoint of Townlet", "name a checkpoint of a run", where)
    version = found.get("version")
    reader = READERS.get(version) if isinstance(version, int) and not isinstance(version, bool) else None
    if reader is None:
        known = ", ".join(map(str, READERS))
        what = f"the checkpoint has format version {str(version)[:20]} and this Townlet reads {known}"
        raise TownletError(what, "use the release of Townlet that wrote it", where)
    try:
        manifest = reader(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:120]
        raise TownletError(f"{place}: {first['msg']}", "the manifest is damaged or foreign", where) from None
    if set(manifest.files) != {STATE}:
        strange = sorted({STATE} ^ set(manifest.files))[0]
        raise TownletError(f"the manifest should list {STATE} alone, not {strange[:80]!r}", "it is foreign", where)
    for name, leaf in manifest.tensors.items():
        if leaf.dtype not in DTYPES:
            raise TownletError(f"'{name[:80]}' has the unknown type {leaf.dtype[:20]!r}", "it is foreign", where)
    return manifest
