"""Rule 10, the reward: named strategies, summed with the world's weights and the row's mix."""

from __future__ import annotations

from townlet.town.ops import real, rule, unit, where
from townlet.town.rules import active_flag
from townlet.town.state import Row, Value
from townlet.town.world.tables import REWARDS, Tables

# The order of `REWARDS`.
MILESTONE, SURVIVAL, VITALITY, POTENTIAL, METER_BONUS, PROXIMITY = range(len(REWARDS))


@rule
def milestone(s: Row, dead: Value, w: Tables) -> Value:
    """A bonus at round ages, a penalty for death."""
    small = real(s.age % w.milestone_every == 0) * w.milestone_bonus
    big = real(s.age % w.milestone_big_every == 0) * w.milestone_big_bonus
    return where(dead, w.milestone_death, small + big)


@rule
def survival(s: Row, ended: Value, w: Tables) -> Value:
    """At the end: age minus the lifetime of an agent that only walks, which is max_steps if walking never kills."""
    rate = w.survival_decay * s.multiplier + w.survival_move
    baseline = real(1.0) / where(rate > real(0.0), rate, w.age_share)
    return real(ended) * (real(s.age) - baseline)


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
    return total / where(count > real(0.0), count, real(1.0))


@rule
def previous_potential(s: Row, w: Tables) -> Value:
    """Φ before the step, if a strategy needs it."""
    before = real(0.0)
    if w.uses_potential:
        before = potential(s, w)
    return before


@rule
def potential_shaping(s: Row, before: Value, dead: Value, w: Tables) -> Value:
    """γΦ(s′) − Φ(s), with Φ = 0 after death (Ng, Harada, Russell 1999)."""
    return w.potential_gamma * where(dead, real(0.0), potential(s, w)) - before


@rule
def meter_bonus(s: Row, w: Tables) -> Value:
    """A bonus for each full meter, a penalty for each empty one."""
    total = real(0.0) * s.meters[0]
    for m in range(len(s.meters)):
        bonus = real(s.meters[m] > w.bonus_above[m] + w.tolerance) * w.bonus_reward[m]
        penalty = real(s.meters[m] < w.bonus_below[m] - w.tolerance) * w.bonus_penalty[m]
        total = total + active_flag(s, m) * (bonus - penalty)
    return total


@rule
def distance_to_restorer(s: Row, m: Value, cell_of: Value, town: Value, w: Tables) -> Value:
    """Distance to the nearest affordance that raises meter m most, as a share of the longest; 1 if there is none."""
    share = real(1.0) + real(0.0) * s.meters[m]
    for a in range(w.n_affordances):
        if w.restores[m][a] == 1:
            steps = real(w.distance[s.cell, cell_of[town, a]]) * w.proximity_reach
            share = where(steps < share, steps, share)
    return share


@rule
def proximity(s: Row, cell_of: Value, town: Value, w: Tables) -> Value:
    """A reward for being near the affordance that restores the lowest meter, while that meter is low."""
    lowest = real(2.0) + real(0.0) * s.meters[0]
    share = lowest
    for m in range(len(s.meters)):
        lower = (active_flag(s, m) > real(0.5)) & (s.meters[m] < lowest - w.tolerance)
        share = where(lower, distance_to_restorer(s, m, cell_of, town, w), share)
        lowest = where(lower, s.meters[m], lowest)
    pays = real(lowest < w.proximity_below - w.tolerance)
    return pays * (real(1.0) - unit(lowest)) * (real(1.0) - unit(share)) * w.proximity_scale


@rule
def reward(
    s: Row, before: Value, dead: Value, truncated: Value, cell_of: Value, town: Value, mix: Value, components: Value,
    row: Value, w: Tables,
) -> Value:  # fmt: skip
    """10. Write each strategy's share to components[row] and return their sum."""
    total = real(0.0)
    for k in range(len(w.reward_kind)):
        kind = w.reward_kind[k]
        value = real(0.0)
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
            value = proximity(s, cell_of, town, w)
        share = value * (w.reward_weight[k] * mix[row, k])
        components[row, k] = share
        total = total + share
    return total
