"""The rule book, rules 1–9: what happens to one row in one step, one small function per rule.

`s` is the row and `w` the world's tables; every value is a number in the Numba engine and a tensor [N] in the tensor
engine. Loops run over meters and links, never over rows. No rule depends on a particular meter, affordance or number.
Settings of the curriculum (multiplier, active meters) are always multiplied in, never branched on.
"""

from __future__ import annotations

from townlet.town.ops import fill, real, rule, unit, where
from townlet.town.state import Row, Value
from townlet.town.world.tables import Tables


@rule
def active_flag(s: Row, m: Value) -> Value:
    """1 if meter m is active in this row, 0 if it is frozen."""
    return real((s.active >> m) & 1)


@rule
def change_meter(s: Row, m: Value, amount: Value) -> None:
    """Add to an active meter, clamped to [0, 1]."""
    s.meters[m] = unit(s.meters[m] + amount * active_flag(s, m))


@rule
def move(s: Row, action: Value, w: Tables) -> None:
    """1. Move to the cell the action leads to; the table includes the map's boundary."""
    s.cell = w.next_cell[action, s.cell]


@rule
def pay_for_action(s: Row, action: Value, w: Tables) -> None:
    """2. A move costs even if a wall stops it; WAIT costs less."""
    for m in range(len(s.meters)):
        change_meter(s, m, -w.action_cost[action, m])


@rule
def effective_price(s: Row, kind: Value, w: Tables) -> Value:
    """The price of a tick at an affordance; 0 while the currency is frozen."""
    return w.price[kind] * active_flag(s, w.currency)


@rule
def can_pay(s: Row, kind: Value, w: Tables) -> Value:
    """Whether the row can pay; the exact price suffices despite float32 rounding."""
    return s.meters[w.currency] >= effective_price(s, kind, w) - w.tolerance


@rule
def interaction_succeeds(s: Row, action: Value, here: Value, w: Tables) -> Value:
    """Whether the action is INTERACT and the affordance here is open and affordable."""
    available = (w.open_at[here, s.hour] == 1) & can_pay(s, here, w)
    return (action >= w.first_interact) & (action < w.wait) & available


@rule
def next_tick(s: Row, here: Value) -> Value:
    """The number of the next tick here: 1 unless a session is in progress."""
    return where(s.using == here, s.progress, 0) + 1


@rule
def interact(s: Row, action: Value, kind_at: Value, town: Value, w: Tables) -> None:
    """3. One tick of a session if the affordance is open and affordable; anything else ends the session."""
    s.here = kind_at[town, s.cell]
    tick = next_tick(s, s.here)
    succeeds = interaction_succeeds(s, action, s.here, w)
    last = tick >= w.ticks[s.here]
    row = s.here * 2 + where(last, 1, 0)
    times = real(succeeds)
    change_meter(s, w.currency, -w.price[s.here] * times)
    for m in range(len(s.meters)):
        change_meter(s, m, w.effect[row, m] * times)
    continues = succeeds & (tick < w.ticks[s.here])
    s.progress = where(continues, tick, 0)
    s.using = where(continues, s.here, w.n_affordances)


@rule
def predict_use(s: Row, action: Value, kind_at: Value, town: Value, w: Tables) -> Value:
    """The effect row that rule 3 will apply, known before the step (rule 2 does not charge for INTERACT).

    2a for an inner tick at affordance a, 2a + 1 for the last tick of a session, 2A for no use.
    """
    here = kind_at[town, w.next_cell[action, s.cell]]
    last = next_tick(s, here) >= w.ticks[here]
    return where(interaction_succeeds(s, action, here, w), here * 2 + where(last, 1, 0), w.n_affordances * 2)


@rule
def decay(s: Row, w: Tables) -> None:
    """4. Every meter decays."""
    for m in range(len(s.meters)):
        change_meter(s, m, -w.decay[m] * s.multiplier)


@rule
def modulate(s: Row, w: Tables) -> None:
    """5. The lower its source, the faster a modulated meter decays."""
    for k in range(len(w.modulation_source)):
        lack = real(1.0) - s.meters[w.modulation_source[k]]
        loss = w.modulation_base[k] + w.modulation_range[k] * lack
        change_meter(s, w.modulation_target[k], -loss * s.multiplier)


@rule
def cascade(s: Row, w: Tables) -> None:
    """6. A meter below its threshold drains others; each cascade reads the result of the previous one."""
    for k in range(len(w.cascade_source)):
        source = w.cascade_source[k]
        shortage = unit(w.cascade_threshold[k] - s.meters[source])
        change_meter(s, w.cascade_target[k], -w.cascade_slope[k] * shortage * active_flag(s, source))


@rule
def has_died(s: Row, w: Tables) -> Value:
    """7. Termination: a lethal meter is empty."""
    dead = s.meters[w.lethal[0]] < w.tolerance
    for k in range(1, len(w.lethal)):
        dead = dead | (s.meters[w.lethal[k]] < w.tolerance)
    return dead


@rule
def advance_clock(s: Row, w: Tables) -> None:
    """8. Age + 1, hour + 1."""
    s.age = s.age + 1
    s.hour = where(s.hour + 1 >= w.day, fill(s.hour, 0), s.hour + 1)


@rule
def is_truncated(s: Row, dead: Value, w: Tables) -> Value:
    """9. Truncation at max_steps; a row that dies in that step is terminated, not truncated."""
    return (s.age >= w.max_steps) & (dead == False)  # noqa: E712  (`not` has no meaning on tensors)


@rule
def action_is_valid(s: Row, action: Value, kind_at: Value, town: Value, w: Tables) -> Value:
    """The mask: no move into the edge, no INTERACT where nothing is open."""
    if action < w.first_interact or action >= w.wait:
        return w.passable[action, s.cell] == 1
    kind = kind_at[town, w.next_cell[action, s.cell]]
    available = w.open_at[kind, s.hour] == 1
    if w.mask_unaffordable:
        available = available & can_pay(s, kind, w)
    return available
