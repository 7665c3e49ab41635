"""Recipes in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from townlet.envs import extras

Write = Callable[[str, str], Path]


def is_here(title: str) -> bool:
    """Whether what the environment of ENV:VARIANT needs is installed."""
    found = extras.family(title.rpartition(":")[0])
    return found is None or found.installed


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write("my.yaml", text)` puts a file into the folder in which the test then stands."""
    monkeypatch.chdir(tmp_path)

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return put
