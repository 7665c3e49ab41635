"""Settings of all tests: no deadline for examples, and one thread of torch per process, because tests run in parallel.

Processes that tests start inherit the number of threads.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import warm

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
settings.register_profile("quick", deadline=None, max_examples=30)
settings.register_profile("thorough", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.hookimpl(trylast=True)  # after the deselected tests were removed
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests first, so that one worker and one browser run most of them.

    Long tests are sorted by duration, each followed by a short one, because a worker holds one test in advance.
    """
    items.sort(key=lambda item: "chromium" not in getattr(item, "fixturenames", ()))
    if any(map(_minutes, items)):
        order, half = sorted(items, key=_minutes, reverse=True), (len(items) + 1) // 2
        items[::2], items[1::2] = order[:half], order[half:]


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection, which would traverse them again and again."""
    gc.freeze()


def _minutes(item: pytest.Item) -> float:
    mark = item.get_closest_marker("long")
    return float(mark.kwargs.get("minutes", 0)) if mark else 0.0


def pytest_runtest_setup() -> None:
    """One thread of torch, whatever earlier tests set: a forked child would wait forever for its parent's threads."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into an empty folder, which becomes the working directory: `write("my.yaml", text)`."""
    monkeypatch.chdir(tmp_path)

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return put


def pytest_sessionfinish() -> None:
    """End the process that forks commands."""
    warm.close()
