"""Rule 10, the reward: a sum of named components, weighted by the world and by the row's `reward_mix`."""

from __future__ import annotations

from townlet.town.ops import clamp01, rule, to_float, where
from townlet.town.rules import active_flag
from townlet.town.state import Row, Value
from townlet.town.world.tables import REWARDS, Tables

# The order of `REWARDS`.
MILESTONE, SURVIVAL, VITALITY, POTENTIAL, METER_BONUS, PROXIMITY = range(len(REWARDS))


@rule
def milestone(s: Row, dead: Value, w: Tables) -> Value:
    """Bonuses every `milestone_every` and every `milestone_big_every` steps; on death `milestone_death` instead."""
    age = s.age - w.milestone_shift
    small = to_float(age % w.milestone_every == 0) * w.milestone_bonus
    big = to_float(age % w.milestone_big_every == 0) * w.milestone_big_bonus
    return where(dead, w.milestone_death, small + big)


@rule
def survival(s: Row, ended: Value, w: Tables) -> Value:
    """At the end of an episode: age minus a fixed number of steps, or those in which walking empties a full meter."""
    rate = w.survival_decay * s.multiplier + w.survival_move
    walks = rate > to_float(0.0)
    baseline = where(walks, to_float(1.0) / where(walks, rate, to_float(1.0)), w.survival_baseline)
    return to_float(ended) * (to_float(s.age) - baseline)


@rule
def vitality(s: Row, w: Tables) -> Value:
    """The product of some meters."""
    product = s.meters[w.vitality[0]]
    for k in range(1, len(w.vitality)):
        product = product * s.meters[w.vitality[k]]
    return product


@rule
def potential(s: Row, w: Tables) -> Value:
    """Φ(s), the mean of the active meters; 0 for a row without any."""
    total = active_flag(s, 0) * s.meters[0]
    count = active_flag(s, 0)
    for m in range(1, len(s.meters)):
        total = total + active_flag(s, m) * s.meters[m]
        count = count + active_flag(s, m)
    return total / where(count > to_float(0.0), count, to_float(1.0))


@rule
def previous_potential(s: Row, w: Tables) -> Value:
    """Φ before the step; 0 if the world has no potential-based shaping."""
    before = to_float(0.0)
    if w.uses_potential:
        before = potential(s, w)
    return before


@rule
def potential_shaping(s: Row, before: Value, dead: Value, w: Tables) -> Value:
    """γΦ(s′) − Φ(s), with Φ = 0 after death (Ng, Harada, Russell 1999)."""
    return w.potential_gamma * where(dead, to_float(0.0), potential(s, w)) - before


@rule
def meter_bonus(s: Row, w: Tables) -> Value:
    """A bonus for each active meter above its upper limit, a penalty for each below its lower limit."""
    total = to_float(0.0) * s.meters[0]  # 0 in every row
    for m in range(len(s.meters)):
        bonus = to_float(s.meters[m] > w.bonus_above[m] + w.tolerance) * w.bonus_reward[m]
        penalty = to_float(s.meters[m] < w.bonus_below[m] - w.tolerance) * w.bonus_penalty[m]
        total = total + active_flag(s, m) * (bonus - penalty)
    return total


@rule
def distance_to_restorer(s: Row, m: Value, cell_of: Value, layout_index: Value, w: Tables) -> Value:
    """Distance to the nearest affordance that raises meter m most, divided by the longest distance; 1 if none does."""
    nearest = to_float(1.0) + to_float(0.0) * s.meters[m]  # 1 in every row
    for a in range(w.n_affordances):
        if w.restores[m][a] == 1:
            distance = to_float(w.distance[s.cell, cell_of[layout_index, a]]) * w.distance_scale
            nearest = where(distance < nearest, distance, nearest)
    return nearest


@rule
def proximity(s: Row, cell_of: Value, layout_index: Value, w: Tables) -> Value:
    """A reward for being near the affordance that restores the lowest meter, while that meter is low."""
    lowest = to_float(2.0) + to_float(0.0) * s.meters[0]  # above every meter, in every row
    distance = lowest
    for m in range(len(s.meters)):
        lower = (active_flag(s, m) > to_float(0.5)) & (s.meters[m] < lowest - w.tolerance)
        distance = where(lower, distance_to_restorer(s, m, cell_of, layout_index, w), distance)
        lowest = where(lower, s.meters[m], lowest)
    is_low = to_float(lowest < w.proximity_below - w.tolerance)
    return is_low * (to_float(1.0) - clamp01(lowest)) * (to_float(1.0) - clamp01(distance)) * w.proximity_scale


@rule
def reward(
    s: Row, before: Value, dead: Value, truncated: Value, cell_of: Value, layout_index: Value, mix: Value,
    components: Value, row: Value, w: Tables,
) -> Value:  # fmt: skip
    """10. Write the weighted components of the reward to components[row] and return their sum."""
    total = to_float(0.0)
    for k in range(len(w.reward_kind)):
        kind = w.reward_kind[k]
        value = to_float(0.0)
        if kind == MILESTONE:
            value = milestone(s, dead, w)
        elif kind == SURVIVAL:
            value = survival(s, dead | truncated, w)
        elif kind == VITALITY:
            value = vitality(s, w)
        elif kind == POTENTIAL:
            value = potential_shaping(s, before, dead, w)
        elif kind == METER_BONUS:
            value = meter_bonus(s, w)
        elif kind == PROXIMITY:
            value = proximity(s, cell_of, layout_index, w)
        component = value * (w.reward_weight[k] * mix[row, k])
        components[row, k] = component
        total = total + component
    return total
