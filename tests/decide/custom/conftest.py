"""The file that `townlet decide new` writes, with edits, and the permission to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from townlet.config import user_code
from townlet.decide.domains import DOMAINS, SHIPPED
from townlet.decide.new_domain import EXAMPLE

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def forget_domains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins as a new process: without permission, and without domains of users."""
    monkeypatch.setattr(user_code, "_executed", [])
    monkeypatch.setattr(user_code, "_permitted", False)
    yield
    for name in DOMAINS.keys() - {domain.name for domain in SHIPPED}:
        del DOMAINS[name]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the example with parts replaced, `write(old, new, old, new)`, and permit it to run; returns its path."""
    user_code.permit()

    def write_file(*edits: str, name: str = "my-game") -> str:
        text = EXAMPLE.read_text(encoding="utf-8")
        for old, new in zip(edits[::2], edits[1::2], strict=True):
            assert old in text, old
            text = text.replace(old, new)
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(user_code, "_executed", [])
        return str(path)

    return write_file
