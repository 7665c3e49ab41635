"""One forge for all tests of crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.smith import Forge


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    warm = Forge()
    yield warm
    warm.close()
