"""Rules 1–9 of a step, one function each, with their helpers; the number of a rule starts its docstring.

Rules 10 (reward), 11 (start of an episode) and 12 (observation) are in `rewards.py`, `reset.py` and `observe.py`. `s`
is the state of a row and `w` holds the world's tables. A value of the state is a number in the Numba engine and a
tensor [N] in the torch engine. Loops run over meters and links, never over rows. Nothing is hard-coded: meters,
affordances and amounts come from the tables. Settings of the curriculum (multiplier, active meters) are always
multiplied in, never branched on.

`kind_at[layout_index, cell]` is the affordance at a cell, or a number that means none or outside (see `world.tables`).
`layout_index` is the row if every episode shuffles the layout, else 0.
"""

from __future__ import annotations

from townlet.town.ops import clamp01, fill, rule, to_float, where
from townlet.town.state import Row, Value
from townlet.town.world.tables import Tables


@rule
def active_flag(s: Row, m: Value) -> Value:
    """1 if meter m is active in this row, else 0."""
    return to_float((s.active >> m) & 1)


@rule
def change_meter(s: Row, m: Value, amount: Value) -> None:
    """Add to an active meter, clamped to [0, 1]."""
    s.meters[m] = clamp01(s.meters[m] + amount * active_flag(s, m))


@rule
def move(s: Row, action: Value, w: Tables) -> None:
    """1. Move to the cell that the action leads to; the table accounts for the boundary of the map."""
    s.cell = w.next_cell[action, s.cell]


@rule
def pay_for_action(s: Row, action: Value, w: Tables) -> None:
    """2. Charge the cost of a move, even if the boundary stops it, or of WAIT; INTERACT is free."""
    for m in range(len(s.meters)):
        change_meter(s, m, -w.action_cost[action, m])


@rule
def effective_price(s: Row, affordance: Value, w: Tables) -> Value:
    """The price of one tick at an affordance; 0 while the currency is inactive."""
    return w.price[affordance] * active_flag(s, w.currency)


@rule
def can_pay(s: Row, affordance: Value, w: Tables) -> Value:
    """Whether the row can pay for one tick. Having exactly the price is enough, despite float32 rounding."""
    return s.meters[w.currency] >= effective_price(s, affordance, w) - w.tolerance


@rule
def interaction_succeeds(s: Row, action: Value, affordance: Value, w: Tables) -> Value:
    """Whether the action is an INTERACT action and the affordance is open and affordable."""
    available = (w.open_at[affordance, s.hour] == 1) & can_pay(s, affordance, w)
    return (action >= w.first_interact) & (action < w.wait) & available


@rule
def next_tick(s: Row, affordance: Value) -> Value:
    """The number of the next tick at an affordance, counted from 1: 1 unless a session there is in progress."""
    return where(s.using == affordance, s.progress, 0) + 1


@rule
def effect_index(affordance: Value, is_last_tick: Value) -> Value:
    """The index in `w.effect` of a tick at an affordance."""
    return affordance * 2 + where(is_last_tick, 1, 0)


@rule
def interact(s: Row, action: Value, kind_at: Value, layout_index: Value, w: Tables) -> None:
    """3. One tick of a session if the affordance is open and affordable; anything else ends the session."""
    s.here = kind_at[layout_index, s.cell]
    tick = next_tick(s, s.here)
    succeeds = interaction_succeeds(s, action, s.here, w)
    effect = effect_index(s.here, tick >= w.ticks[s.here])
    success_flag = to_float(succeeds)
    change_meter(s, w.currency, -w.price[s.here] * success_flag)
    for m in range(len(s.meters)):
        change_meter(s, m, w.effect[effect, m] * success_flag)
    continues = succeeds & (tick < w.ticks[s.here])
    s.progress = where(continues, tick, 0)
    s.using = where(continues, s.here, w.n_affordances)


@rule
def predict_use(s: Row, action: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """Predict which effect rule 3 will apply, as an index of `w.effect`; exact, since INTERACT is free in rule 2.

    2a for a tick at affordance a other than the last, 2a + 1 for the last, 2A for no use (A affordances).
    """
    affordance = kind_at[layout_index, w.next_cell[action, s.cell]]
    effect = effect_index(affordance, next_tick(s, affordance) >= w.ticks[affordance])
    return where(interaction_succeeds(s, action, affordance, w), effect, w.n_affordances * 2)


@rule
def decay(s: Row, w: Tables) -> None:
    """4. Every meter decays."""
    for m in range(len(s.meters)):
        change_meter(s, m, -w.decay[m] * s.multiplier)


@rule
def modulate(s: Row, w: Tables) -> None:
    """5. Modulated meters decay in addition, faster the lower their source meter is."""
    for k in range(len(w.modulation_source)):
        lack = to_float(1.0) - s.meters[w.modulation_source[k]]
        loss = w.modulation_base[k] + w.modulation_range[k] * lack
        change_meter(s, w.modulation_target[k], -loss * s.multiplier)


@rule
def cascade(s: Row, w: Tables) -> None:
    """6. A meter below its threshold drains others; each cascade reads the result of the previous one."""
    for k in range(len(w.cascade_source)):
        source = w.cascade_source[k]
        shortage = clamp01(w.cascade_threshold[k] - s.meters[source])
        change_meter(s, w.cascade_target[k], -w.cascade_slope[k] * shortage * active_flag(s, source))


@rule
def has_died(s: Row, w: Tables) -> Value:
    """7. Termination: a lethal meter is empty, within the tolerance."""
    dead = s.meters[w.lethal[0]] < w.tolerance
    for k in range(1, len(w.lethal)):
        dead = dead | (s.meters[w.lethal[k]] < w.tolerance)
    return dead


@rule
def advance_clock(s: Row, w: Tables) -> None:
    """8. Advance age and hour by one; the hour returns to 0 at the end of the day."""
    s.age = s.age + 1
    s.hour = where(s.hour + 1 >= w.day, fill(s.hour, 0), s.hour + 1)


@rule
def is_truncated(s: Row, dead: Value, w: Tables) -> Value:
    """9. Truncation at max_steps; a row that dies in that step is terminated, not truncated."""
    return (s.age >= w.max_steps) & (dead == False)  # noqa: E712  (`not` fails on tensors, `~` is arithmetic on numbers)


@rule
def action_is_valid(s: Row, action: Value, kind_at: Value, layout_index: Value, w: Tables) -> Value:
    """Whether the mask allows an action, which is a number in both engines.

    No move into the boundary; no INTERACT at a closed affordance or, with `mask_unaffordable`, at one that the row
    cannot pay for.
    """
    if action < w.first_interact or action >= w.wait:
        return w.passable[action, s.cell] == 1
    affordance = kind_at[layout_index, w.next_cell[action, s.cell]]
    available = w.open_at[affordance, s.hour] == 1
    if w.mask_unaffordable:
        available = available & can_pay(s, affordance, w)
    return available
