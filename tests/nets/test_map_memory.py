"""Map memory: last known positions, cleared at episode starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nets.layouts import law
from townlet import load_world
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.body import build_body
from townlet.nets.layers import initialize
from townlet.nets.map_memory import MapEncoder, MapMemory
from townlet.nets.spec import MapMemorySpec

SPEC = MapMemorySpec(hidden=(8,))
KINDS, SIDE, MAP = 3, 5, 9
LAYOUT = ObservationLayout.of(
    ("window_typed", (SIDE, SIDE, KINDS + 1), 0.0, 1.0),
    ("position", (2,), 0.0, 1.0, "values", (MAP, MAP)),
    ("meters", (2,), 0.0, 1.0),
)


def look(x: int, y: int, things: dict[int, tuple[int, int]]) -> torch.Tensor:
    """Observation [1, D] of an agent at (x, y) of a square map with things at these cells."""
    window = torch.zeros(SIDE, SIDE, KINDS + 1)
    window[..., KINDS] = 1.0
    for kind, (tx, ty) in things.items():
        dx, dy = tx - x + SIDE // 2, ty - y + SIDE // 2
        if 0 <= dx < SIDE and 0 <= dy < SIDE:
            window[dy, dx] = 0.0
            window[dy, dx, kind] = 1.0
    return torch.cat([window.flatten(), torch.tensor([x / (MAP - 1), y / (MAP - 1)]), torch.ones(2)]).unsqueeze(0)


def by_kind(features: torch.Tensor) -> list[list[float]]:
    """Features of each kind: direction along x and y, proximity, and whether it is known."""
    return features[0, : KINDS * 4].view(KINDS, 4).tolist()


def bearings(offsets: dict[int, tuple[int, int]]) -> list[Any]:
    """The same by hand, from the offsets of the known kinds in cells."""
    found = [[0.0] * 4 for _ in range(KINDS)]
    for kind, (dx, dy) in offsets.items():
        close = 1 / (1 + abs(dx) + abs(dy))
        found[kind] = [((dx > 0) - (dx < 0)) * close, ((dy > 0) - (dy < 0)) * close, close, 1.0]
    return [pytest.approx(each) for each in found]


def test_things_out_of_sight_are_remembered() -> None:
    encoder = MapEncoder(SPEC, LAYOUT)
    memory = MapMemory(encoder)
    things = {0: (1, 1), 2: (8, 8)}
    features, hidden = memory(encoder(look(2, 2, things)), torch.zeros(1, memory.hidden_size))
    assert by_kind(features) == bearings({0: (-1, -1)})
    for x in range(3, 8):
        features, hidden = memory(encoder(look(x, 2, things)), hidden)
        assert by_kind(features) == bearings({0: (1 - x, -1)})
    features, hidden = memory(encoder(look(7, 7, things)), hidden)
    assert by_kind(features) == bearings({0: (-6, -6), 2: (1, 1)})


def test_map_memory_is_empty_at_an_episode_start() -> None:
    encoder = MapEncoder(SPEC, LAYOUT)
    memory = MapMemory(encoder)
    _, hidden = memory(encoder(look(2, 2, {0: (1, 1)})), torch.zeros(1, memory.hidden_size))
    features, _ = memory(encoder(look(8, 8, {})), hidden, torch.tensor([True]))
    assert by_kind(features) == bearings({})


def test_unexplored_sides_are_marked() -> None:
    """On a map of 9×9 from (2, 2) a window of 5×5 shows the corner of 25 cells."""
    encoder = MapEncoder(SPEC, LAYOUT)
    memory = MapMemory(encoder)
    unseen = slice(KINDS * 4, KINDS * 4 + 4)  # left, up, right, down
    features, hidden = memory(encoder(look(2, 2, {})), torch.zeros(1, memory.hidden_size))
    assert (features[0, unseen] * 81).tolist() == pytest.approx([2 * 4, 2 * 4, 2 * 4 + 4 * 9, 2 * 4 + 4 * 9])
    for x in range(3, 7):
        features, hidden = memory(encoder(look(x, 2, {})), hidden)
    assert (features[0, unseen] * 81).tolist() == pytest.approx([6 * 4, 0, 2 * 4, 4 * 9])  # the upper 5 rows are known


@law
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 4), st.floats(0, 0.5))
def test_sequence_equals_single_steps(seed: int, steps: int, rows: int, share: float) -> None:
    chance = torch.Generator().manual_seed(seed)
    body = build_body(SPEC, LAYOUT)
    initialize(body, torch.Generator().manual_seed(1))
    obs = torch.zeros(steps, rows, LAYOUT.size)
    for t in range(steps):
        for row in range(rows):
            x, y, *cells = torch.randint(0, 9, (2 + 2 * KINDS,), generator=chance).tolist()
            obs[t, row] = look(x, y, {k: (cells[2 * k], cells[2 * k + 1]) for k in range(KINDS)})
    fresh = torch.rand(steps, rows, generator=chance) < share
    hidden = torch.rand(rows, body.hidden_size, generator=chance)
    whole, after = body(obs, hidden, fresh)
    for t in range(steps):
        single, hidden = body(obs[t], hidden, fresh[t])
        torch.testing.assert_close(whole[t], single)
    torch.testing.assert_close(after, hidden)
    torch.testing.assert_close(
        body.advance_hidden(obs, torch.zeros_like(hidden), fresh), body(obs, hidden * 0, fresh)[1]
    )


def test_map_memory_accepts_the_foggy_town_and_rejects_the_standard_town() -> None:
    assert build_body(MapMemorySpec(), load_world("town-foggy").layout).hidden_size == 15 * 5 + 8 * 8
    with pytest.raises(TownletError, match="window_typed"):
        build_body(MapMemorySpec(), load_world("town").layout)
    with pytest.raises(TownletError, match="as many axes as the map"):
        build_body(
            MapMemorySpec(), ObservationLayout.of(("window_typed", (5, 5, 4), 0.0, 1.0), ("position", (2,), 0.0, 1.0))
        )
