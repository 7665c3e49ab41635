"""Run by test_disk.py in a mount namespace: fills a small disk, then remounts it read-only."""

from __future__ import annotations

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


def expect_error(what: str, action: Callable[[], object]) -> None:
    try:
        action()
    except TownletError as error:
        print(f"{what}: {error}")
    else:
        sys.exit(f"{what} was not refused")


def main(place: Path) -> None:
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
