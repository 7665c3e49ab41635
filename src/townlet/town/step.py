"""One step of one row: rules 1–10 in their order.

Rules 11 and 12 (reset, observation and mask) write to the engine's memory, so each engine calls them itself.
"""

from __future__ import annotations

from townlet.town import rules
from townlet.town.ops import rule
from townlet.town.rewards import previous_potential, reward
from townlet.town.state import Row, Value
from townlet.town.world.tables import Tables


@rule
def step_row(
    s: Row,
    action: Value,
    kind_at: Value,
    cell_of: Value,
    layout_index: Value,
    mix: Value,
    components: Value,
    row: Value,
    w: Tables,
) -> tuple[Value, Value, Value]:
    """Apply rules 1–10 to one row; returns (reward, terminated, truncated)."""
    before = previous_potential(s, w)
    rules.move(s, action, w)  # 1
    rules.pay_for_action(s, action, w)  # 2
    rules.interact(s, action, kind_at, layout_index, w)  # 3
    rules.decay(s, w)  # 4
    rules.modulate(s, w)  # 5
    rules.cascade(s, w)  # 6
    terminated = rules.has_died(s, w)  # 7
    rules.advance_clock(s, w)  # 8
    truncated = rules.is_truncated(s, terminated, w)  # 9
    total = reward(s, before, terminated, truncated, cell_of, layout_index, mix, components, row, w)  # 10
    return total, terminated, truncated
