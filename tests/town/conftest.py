"""A small world as text, one item per line, for tests that change one of them."""

from __future__ import annotations

import pytest

SMALL = """\
max_steps: 50
map:
  size: [4, 3]
  boundary: clamp
clock: {temporal: true, day: 10}
currency: money
lethal: [energy]
meters:
  - {name: energy, decay: .01, move: .01, wait: .001}
  - {name: money, start: .5}
  - {name: joy, decay: .01}
modulations:
  - {source: joy, target: energy, base: .001, range: .001}
cascades:
  - {source: joy, target: energy, strength: .01}
affordances:
  - {name: Bed, cell: [0, 0], price: .01, hours: [2, 8], each_tick: {energy: .3}}
  - {name: Job, cell: [3, 2], ticks: 2, each_tick: {money: .1}, at_end: {joy: -.1}}
observation:
  - {name: window, size: 3}
  - meters
  - clock
rewards:
  - milestone
  - survival
"""


@pytest.fixture
def small() -> str:
    return SMALL
