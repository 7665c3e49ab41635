"""One fork server for all tests of crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.training_process import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    started = ForkServer()
    yield started
    started.close()
