"""Hostile checkpoints with matching digests are rejected by name, quickly and without side effects."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from time_limit import within
from townlet.errors import TownletError
from townlet.runs.checkpoint import folder_name, load, save, verify
from townlet.runs.checkpoint_files import DIGEST, FORMAT_VERSION, MANIFEST, MAX_MANIFEST_BYTES, STATE

_watch: list[tuple[str, str]] | None = None


def _record_event(event: str, details: tuple[Any, ...]) -> None:
    if _watch is not None and event.startswith(("open", "socket.", "subprocess.", "os.", "exec", "import", "ctypes.")):
        _watch.append((event, str(details[0]) if details else ""))


sys.addaudithook(_record_event)


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """Audit events of files, processes, imports and sockets in this block."""
    global _watch
    seen: list[tuple[str, str]] = []
    _watch = seen
    try:
        yield seen
    finally:
        _watch = None


class ForgedCheckpoint:
    """A checkpoint whose files can be replaced, with digests that match again."""

    def __init__(self, folder: Path) -> None:
        state = {"a": torch.arange(4.0), "b": {"c": torch.tensor(1)}, "n": 3}
        self.path = save(folder, folder_name(1), state, {"env_steps": 1}).path
        self.manifest: dict[str, Any] = json.loads((self.path / MANIFEST).read_text())

    def tensors(self, header: dict[str, Any] | bytes, body: bytes = b"", length: int | None = None) -> None:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        size = len(text) if length is None else length
        data = size.to_bytes(8, "little") + text + body
        (self.path / STATE).write_bytes(data)
        self.manifest["files"][STATE] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def seal(self, text: bytes | None = None) -> None:
        data = json.dumps(self.manifest).encode() if text is None else text
        (self.path / MANIFEST).write_bytes(data)
        (self.path / DIGEST).write_text(f"{hashlib.sha256(data).hexdigest()}  {MANIFEST}\n")

    def _own(self, event: str, what: str) -> bool:
        """Whether an event is about this checkpoint: by path or by an open descriptor."""
        return event in ("open", "os.listdir") and (str(self.path) in what or what.isdigit())

    def refusal(self) -> str:
        messages = []
        for look in (load, verify):
            with within(2.0), watched() as seen, pytest.raises(TownletError) as caught:
                look(self.path)
            assert [(event, what) for event, what in seen if not self._own(event, what)] == []
            messages.append(str(caught.value))
            assert len(messages[-1]) < 500
        assert folder_name(1) in messages[0]
        return messages[0]


@pytest.fixture
def forged(tmp_path: Path) -> ForgedCheckpoint:
    made = ForgedCheckpoint(tmp_path)
    with pytest.raises(TownletError, match="damaged"):  # all lazy imports are done now
        load(tmp_path)
    return made


def test_unmodified_checkpoint_is_accepted(forged: ForgedCheckpoint) -> None:
    forged.seal()
    assert load(forged.path)[0]["a"].tolist() == [0, 1, 2, 3]


A = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
C = {"dtype": "I64", "shape": [], "data_offsets": [16, 24]}
HEADERS: dict[str, tuple[dict[str, Any] | bytes, bytes, int | None]] = {
    "no header": (b"", b"", None),
    "a header longer than the file": (b"{}", b"", 10_000),
    "a header of 2^63 bytes": (b"{}", b"", 2**63),
    "a header of 2^64 - 1 bytes": (b"{}", b"", 2**64 - 1),
    "not JSON": (b"\x80\x04\x95cos\nsystem", b"", None),
    "nested": (b'{"a":' * 100_000, b"", None),
    "brackets": (b"[" * 100_000, b"", None),
    "a tensor of 16 exabytes": ({"a": {**A, "shape": [2**62]}, "b/c": C}, bytes(24), None),
    "a product that overflows": ({"a": {**A, "shape": [2**40, 2**40]}, "b/c": C}, bytes(24), None),
    "a side beyond 64 bits": ({"a": {**A, "shape": [0, 2**63 + 5], "data_offsets": [0, 0]}, "b/c": C}, bytes(24), None),
    "offsets outside": ({"a": {**A, "data_offsets": [2**60, 2**60 + 16]}, "b/c": C}, bytes(24), None),
    "offsets backwards": ({"a": {**A, "data_offsets": [16, 0]}, "b/c": C}, bytes(24), None),
    "tensors that overlap": ({"a": A, "b/c": {**C, "data_offsets": [8, 16]}}, bytes(24), None),
    "bytes after the end": ({"a": A, "b/c": C}, bytes(4096), None),
    "another shape": ({"a": {**A, "shape": [2, 2]}, "b/c": C}, bytes(24), None),
    "another type": ({"a": {**A, "dtype": "I32"}, "b/c": C}, bytes(24), None),
    "an unknown type": ({"a": {**A, "dtype": "PICKLE"}, "b/c": C}, bytes(24), None),
    "a tensor too few": ({"a": A}, bytes(16), None),
    "another name": ({"a": A, "../../c": C}, bytes(24), None),
    "a tensor too many": ({"a": A, "b/c": C, "d": {**C, "data_offsets": [24, 32]}}, bytes(32), None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_tensors_are_rejected(name: str, forged: ForgedCheckpoint) -> None:
    forged.tensors(*HEADERS[name])
    forged.seal()
    assert "is damaged: " in forged.refusal()


TEXTS = {
    "nothing": (b"", "Expecting value"),
    "a list": (b"[]", "not a JSON object"),
    "not UTF-8": (b"\xff\xfe{}", "not UTF-8"),
    "NaN": (b'{"format": NaN}', "NaN is not valid JSON"),
    "Infinity": (b'{"format": -Infinity}', "-Infinity is not valid JSON"),
    "a float beyond reach": (b'{"format": 1e400}', "1e400 is too large"),
    "a whole number beyond reach": (b'{"format": ' + b"9" * 4000 + b"}", "9… is too large"),
    "a key twice": (b'{"format": "townlet-checkpoint", "format": "townlet-checkpoint"}', "twice"),
    "deep lists": (b"[" * 1_000_000, "nested too deeply"),
    "deep objects": (b'{"a":' * 200_000, "nested too deeply"),
    "many small lists": (b"[" + b"[]," * (MAX_MANIFEST_BYTES // 3 - 2) + b"[]]", "not a JSON object"),
    "too long": (b" " * (MAX_MANIFEST_BYTES + 1), "has more than"),
    "another format": (b'{"format": "other", "version": 1}', "not a checkpoint of Townlet"),
    "a pickle": (b"\x80\x04\x95", "not UTF-8"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_manifests_are_rejected(name: str, forged: ForgedCheckpoint) -> None:
    text, why = TEXTS[name]
    forged.seal(text)
    assert why in forged.refusal()


CHANGES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "a later version": (
        ("version",),
        FORMAT_VERSION + 1,
        f"format version {FORMAT_VERSION + 1}, but this Townlet reads",
    ),
    "a version that is text": (("version",), "1", "format version 1, but"),
    "a version that is true": (("version",), True, "format version True"),
    "a path as a file": (("files", "../../etc/passwd"), {"bytes": 1, "sha256": "0" * 64}, "etc/passwd"),
    "an absolute path": (("files", "/dev/zero"), {"bytes": 1, "sha256": "0" * 64}, "/dev/zero"),
    "a strange key": (("run",), "os.system", "Extra inputs"),
    "no table": (("state",), [], "state"),
    "a negative size": (("files", STATE, "bytes"), -1, "greater than or equal to 0"),
    "a digest that is none": (("files", STATE, "sha256"), "x", "pattern"),
    "a shape that is too wide": (("state", "a", "shape"), [2**41], "less than"),
    "a shape that is too deep": (("state", "a", "shape"), [1] * 17, "at most 16"),
    "a shape of text": (("state", "a", "shape"), ["4"], "valid integer"),
    "an unknown type": (("state", "a", "dtype"), "F128", "unknown type"),
    "a value below a value": (("state", "n/deeper"), {"value": 1}, "below a value"),
    "a very long path": (("state", "/".join("x" * 40)), {"value": 1}, "deeper than"),
    "a tensor as a value": (("state", "a"), {"value": 1}, "missing from manifest"),
    "a value as a tensor": (("state", "n"), {"dtype": "F32", "shape": [1]}, "missing from state"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_hostile_entries_are_rejected(name: str, forged: ForgedCheckpoint) -> None:
    path, value, why = CHANGES[name]
    place = forged.manifest
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    forged.seal()
    if "below" in why or "deeper" in why:  # the tree is built when it is read
        with pytest.raises(TownletError, match=why):
            load(forged.path)
    else:
        assert why in forged.refusal()


def test_names_that_look_like_paths_are_only_names(tmp_path: Path) -> None:
    state = {"..": {"..": {"etc": torch.ones(1)}}, "/root": torch.zeros(1), "__class__": torch.zeros(1)}
    found, _ = load(save(tmp_path, folder_name(1), state, {}).path)
    assert found[".."][".."]["etc"].item() == 1
    assert list(found) == ["..", "/root", "__class__"]
