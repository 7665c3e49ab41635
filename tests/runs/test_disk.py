"""A full, read-only or limited disk: a clear message, the old checkpoint intact, nothing half written."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warm
from townlet.errors import TownletError
from townlet.runs.checkpoint import folder_name, load, save
from townlet.runs.disk import read_bounded, replace_file

SCRIPT = Path(__file__).with_name("small_disk.py")


def may_mount() -> bool:
    """Whether this user may mount a file system in a private namespace."""
    if not shutil.which("unshare"):
        return False
    probe = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$1"', "sh", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs permission to mount a tmpfs in a namespace")
def test_full_and_read_only_disks_are_reported_and_keep_existing_files(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = warm.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []  # the disk was mounted in that process only
    messages = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "the disk is full; free some space there, then resume from step-000000000001" in messages["checkpoint"]
    assert "the disk is full" in messages["metrics"]
    for name in ("read-only checkpoint", "read-only run", "read-only lock"):
        assert "the disk is read-only" in messages[name]


def test_file_size_limit_is_reported_and_keeps_existing_files(tmp_path: Path) -> None:
    save(tmp_path, folder_name(1), {"x": torch.ones(3)}, {})
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            save(tmp_path, folder_name(2), {"x": torch.zeros(1_000_000)}, {})
        except TownletError as error:
            os._exit(7 if "may not grow" in str(error) and "ulimit" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert [path.name for path in tmp_path.iterdir()] == [folder_name(1)]
    assert load(tmp_path / folder_name(1))[0]["x"].tolist() == [1, 1, 1]


def test_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meta.json"
    replace_file(path, b"old")

    def failing(descriptor: int) -> None:
        raise OSError(28, "injected")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(TownletError, match=r"meta\.json: the disk is full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_regular_files_of_a_known_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(TownletError, match="more than 4 bytes"):
        read_bounded(path, 4)
    with pytest.raises(TownletError, match="not a plain file"):
        read_bounded(tmp_path, 5)
    with pytest.raises(TownletError, match="does not exist"):
        read_bounded(tmp_path / "none", 5)
