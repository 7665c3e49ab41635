"""The rule book: what happens to one row in one step, each rule a small function.

`s` is the row (its values are numbers in the Numba engine and tensors [N] in the tensor engine),
`w` the world's tables. Loops run over meters and cascades, never over rows; nothing here knows a
meter, an affordance or a figure by name. Settings of the curriculum (multiplier, active meters) are
always multiplied in, never branched on.
"""

from __future__ import annotations

from typing import Any

from townlet.town.ops import fill, real, rule, unit, where


@rule
def active(s: Any, m: Any) -> Any:
    """1 while meter m takes part in this row's life, 0 while it is frozen."""
    return real((s.active >> m) & 1)


@rule
def change(s: Any, m: Any, amount: Any) -> None:
    """Add to a meter, inside [0, 1]; a frozen one stays."""
    s.meters[m] = unit(s.meters[m] + amount * active(s, m))


@rule
def move(s: Any, action: Any, w: Any) -> None:
    """1. Go where the action leads; the map's boundary is in the table."""
    s.cell = w.next_cell[action, s.cell]


@rule
def pay_for_action(s: Any, action: Any, w: Any) -> None:
    """2. A move costs even when a wall stops it; WAIT costs less."""
    for m in range(len(s.meters)):
        change(s, m, -w.action_cost[action, m])


@rule
def price_of(s: Any, kind: Any, w: Any) -> Any:
    """What a tick at an affordance costs this row: nothing while its currency is frozen."""
    return w.price[kind] * active(s, w.currency)


@rule
def can_pay(s: Any, kind: Any, w: Any) -> Any:
    """Exact money is enough, also after sums in float32."""
    return s.meters[w.currency] >= price_of(s, kind, w) - w.tolerance


@rule
def happens_at(s: Any, action: Any, here: Any, w: Any) -> Any:
    """Whether an action is an INTERACT that succeeds on this place: it is open and can be paid."""
    welcome = (w.open_at[here, s.hour] == 1) & can_pay(s, here, w)
    return (action >= w.first_interact) & (action < w.wait) & welcome


@rule
def tick_at(s: Any, here: Any) -> Any:
    """Which tick of a session comes next at this place: 1 unless one is under way there."""
    return where(s.using == here, s.progress, 0) + 1


@rule
def interact(s: Any, action: Any, kind_at: Any, town: Any, w: Any) -> None:
    """3. One tick of a session, if the place is open and can be paid; anything else ends the session."""
    s.here = kind_at[town, s.cell]
    tick = tick_at(s, s.here)
    happens = happens_at(s, action, s.here, w)
    last = tick >= w.ticks[s.here]
    row = s.here * 2 + where(last, 1, 0)
    times = real(happens)
    change(s, w.currency, -w.price[s.here] * times)
    for m in range(len(s.meters)):
        change(s, m, w.effect[row, m] * times)
    goes_on = happens & (tick < w.ticks[s.here])
    s.progress = where(goes_on, tick, 0)
    s.using = where(goes_on, s.here, w.none)


@rule
def foretell(s: Any, action: Any, kind_at: Any, town: Any, w: Any) -> Any:
    """What rule 3 will use, told before the step, as the row of `effect` (an INTERACT has no other price, rule 2).

    2a for an inner tick at affordance a, 2a + 1 for the last one of a session, 2A for nothing.
    """
    here = kind_at[town, w.next_cell[action, s.cell]]
    last = tick_at(s, here) >= w.ticks[here]
    return where(happens_at(s, action, here, w), here * 2 + where(last, 1, 0), w.none * 2)


@rule
def decay(s: Any, w: Any) -> None:
    """4. Every need grows with time."""
    for m in range(len(s.meters)):
        change(s, m, -w.decay[m] * s.multiplier)


@rule
def modulate(s: Any, w: Any) -> None:
    """5. A target decays the faster the lower its source."""
    for k in range(len(w.modulation_source)):
        lack = real(1.0) - s.meters[w.modulation_source[k]]
        loss = w.modulation_base[k] + w.modulation_range[k] * lack
        change(s, w.modulation_target[k], -loss * s.multiplier)


@rule
def cascade(s: Any, w: Any) -> None:
    """6. A need under its threshold pulls others down; in order, each reads what the one before left."""
    for k in range(len(w.cascade_source)):
        source = w.cascade_source[k]
        shortage = unit(w.cascade_threshold[k] - s.meters[source])
        change(s, w.cascade_target[k], -w.cascade_slope[k] * shortage * active(s, source))


@rule
def die(s: Any, w: Any) -> Any:
    """7. Whoever has nothing left of a lethal meter is dead."""
    dead = s.meters[w.lethal[0]] < w.tolerance
    for k in range(1, len(w.lethal)):
        dead = dead | (s.meters[w.lethal[k]] < w.tolerance)
    return dead


@rule
def grow_older(s: Any, w: Any) -> None:
    """8. Age + 1, hour + 1."""
    s.age = s.age + 1
    s.hour = where(s.hour + 1 >= w.day, fill(s.hour, 0), s.hour + 1)


@rule
def run_out_of_time(s: Any, dead: Any, w: Any) -> Any:
    """9. Truncation at max_steps; a row that dies on that step is terminated, not truncated."""
    return (s.age >= w.max_steps) & (dead == False)  # noqa: E712  (`not` has no meaning on tensors)


@rule
def allowed(s: Any, action: Any, kind_at: Any, town: Any, w: Any) -> Any:
    """Whether the mask lets an action through: no walking into the edge, no INTERACT where nothing is open."""
    if action < w.first_interact or action >= w.wait:
        return w.passable[action, s.cell] == 1
    kind = kind_at[town, w.next_cell[action, s.cell]]
    welcome = w.open_at[kind, s.hour] == 1
    if w.mask_unaffordable:
        welcome = welcome & can_pay(s, kind, w)
    return welcome
