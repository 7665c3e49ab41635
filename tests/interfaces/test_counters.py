"""Display of large counts."""

from __future__ import annotations

import pytest

from townlet.interfaces.counters import format_count


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (1234, "1.23k"), (99_950, "100k"), (999_499, "999k"),
     (999_500, "1M"), (999_999, "1M"), (20_000_000, "20M"), (999_999_999, "1G"), (2.5, "2.5")],
)  # fmt: skip
def test_large_counts_are_short_and_carry_over(count: float, text: str) -> None:
    assert format_count(count) == text
