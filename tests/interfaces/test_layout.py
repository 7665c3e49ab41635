"""Blocks of an observation are found by name."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.town.world.load import load


def test_blocks_lie_one_after_the_other() -> None:
    layout = ObservationLayout.of(("window", (5, 5), 0.0, 1.0), ("clock", (2,), -1.0, 1.0))
    assert [(b.start, b.size, b.low) for b in layout] == [(0, 25, 0.0), (25, 2, -1.0)]
    assert layout.size == 27
    assert "clock" in layout
    assert "meters" not in layout


def test_view_has_the_shape_of_the_block() -> None:
    layout = ObservationLayout.of(("window", (5, 5), 0.0, 1.0), ("meters", (8,), 0.0, 1.0))
    obs: NDArray[np.float32] = np.arange(2 * 33, dtype=np.float32).reshape(2, 33)
    assert layout.view(obs, "window").shape == (2, 5, 5)
    np.testing.assert_array_equal(layout.view(obs, "meters")[1], np.arange(58, 66))


def test_unknown_block_names_the_nearest() -> None:
    with pytest.raises(TownletError, match="did you mean 'meters'"):
        load("town").layout.block("meter")
