"""Memory, settings and chart of the hive domain."""

from __future__ import annotations

import numpy as np

from townlet.decide.domains.hive import DOMAIN


def test_state_update_leaves_the_old_state_unchanged() -> None:
    fresh = DOMAIN.initial_territory_state()
    then = DOMAIN.territory_state_after(fresh, 400 + 7, 12.5)
    assert (fresh["spawned"] == -1e18).all()
    assert then["spawned"][7] == 12.5
    assert np.flatnonzero(then["spawned"] != fresh["spawned"]).tolist() == [7]


def test_decisions_are_charted_as_a_map() -> None:
    counts = np.zeros(800, np.int64)
    counts[[21, 421, 5]] = 2, 3, 1
    chart = DOMAIN.action_chart(counts)
    assert np.array(chart["values"]).shape == (20, 20)
    assert (chart["values"][1][1], chart["values"][0][5]) == (5, 1)
    assert chart["types"] == {"energy": 3, "combat": 3}
