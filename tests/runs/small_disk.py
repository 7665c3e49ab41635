"""Run by test_disk.py: fills a small disk in a mount namespace of its own, then remounts it read-only."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from townlet.errors import TownletError
from townlet.runs.checkpoint import folder_name, latest, load, save
from townlet.runs.folder import Run
from townlet.runs.lock import Lock
from townlet.runs.metrics_store import MetricsStore

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000


def expect_error(what: str, action: Callable[[], object]) -> None:
    try:
        action()
    except TownletError as error:
        print(f"{what}: {error}")
    else:
        sys.exit(f"{what} was not refused")


def enter_namespaces() -> None:
    """Become root in new user and mount namespaces, as `unshare -rm` does."""
    ids = {"uid_map": os.getuid(), "gid_map": os.getgid()}
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    for name, own in ids.items():
        Path("/proc/self", name).write_text(f"0 {own} 1")


def main(place: Path) -> None:
    enter_namespaces()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=True)
    folder, big = place / "checkpoints", {"x": torch.zeros(1_000_000)}
    save(folder, folder_name(1), {"x": torch.ones(10)}, {})
    store = MetricsStore(place / "metrics.db")
    store.add("updates", {"env_steps": 1, "name": "loss", "value": 0.5})
    store.flush()
    expect_error("checkpoint", lambda: save(folder, folder_name(2), big, {}))
    assert [path.name for path in folder.iterdir()] == [folder_name(1)]
    store.add("updates", {"env_steps": 2, "name": ["loss"] * 19_000, "value": 0.5})
    expect_error("metrics", store.flush)
    assert store._fetch("SELECT count(*) FROM updates") == [(1,)]
    expect_error("closing", store.close)  # the rows are still pending
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    expect_error("read-only checkpoint", lambda: save(folder, folder_name(2), {}, {}))
    expect_error("read-only run", lambda: Run.create(place, "town", "dqn", "", "", {}))
    expect_error("read-only lock", lambda: Lock(place).acquire())
    found = latest(folder)
    assert found is not None
    assert load(found.path)[0]["x"].tolist() == [1] * 10


if __name__ == "__main__":
    main(Path(sys.argv[1]))
