"""Rule 10, the reward: named strategies, summed with the world's weights and the row's mix."""

from __future__ import annotations

from typing import Any, Final

from townlet.town.ops import real, rule, unit, where
from townlet.town.rules import active
from townlet.town.world.tables import REWARD_KIND

MILESTONE: Final = REWARD_KIND["milestone"]
SURVIVAL: Final = REWARD_KIND["survival"]
VITALITY: Final = REWARD_KIND["vitality"]
POTENTIAL: Final = REWARD_KIND["potential"]
METER_BONUS: Final = REWARD_KIND["meter_bonus"]
PROXIMITY: Final = REWARD_KIND["proximity"]


@rule
def milestone(s: Any, dead: Any, w: Any) -> Any:
    """A bonus at round ages, a punishment for death."""
    small = real(s.age % w.milestone_every == 0) * w.milestone_bonus
    big = real(s.age % w.milestone_big_every == 0) * w.milestone_big_bonus
    return where(dead, w.milestone_death, small + big)


@rule
def survival(s: Any, ended: Any, w: Any) -> Any:
    """At the end: the age, less what walking alone would have given; the whole episode where that never kills."""
    rate = w.survival_decay * s.multiplier + w.survival_move
    baseline = real(1.0) / where(rate > real(0.0), rate, w.age_share)
    return real(ended) * (real(s.age) - baseline)


@rule
def vitality(s: Any, w: Any) -> Any:
    """The product of some meters."""
    product = s.meters[w.vitality[0]]
    for k in range(1, len(w.vitality)):
        product = product * s.meters[w.vitality[k]]
    return product


@rule
def outlook(s: Any, w: Any) -> Any:
    """Φ, the mean of the active meters; 0 for a row whose settings leave none."""
    total = active(s, 0) * s.meters[0]
    count = active(s, 0)
    for m in range(1, len(s.meters)):
        total = total + active(s, m) * s.meters[m]
        count = count + active(s, m)
    return total / where(count > real(0.0), count, real(1.0))


@rule
def potential(s: Any, before: Any, dead: Any, w: Any) -> Any:
    """γΦ(s′) − Φ(s), with Φ = 0 for the dead (Ng, Harada, Russell 1999)."""
    return w.potential_gamma * where(dead, real(0.0), outlook(s, w)) - before


@rule
def meter_bonus(s: Any, w: Any) -> Any:
    """Pay for each full meter, take for each empty one."""
    total = real(0.0) * s.meters[0]
    for m in range(len(s.meters)):
        bonus = real(s.meters[m] > w.bonus_above[m] + w.tolerance) * w.bonus_reward[m]
        penalty = real(s.meters[m] < w.bonus_below[m] - w.tolerance) * w.bonus_penalty[m]
        total = total + active(s, m) * (bonus - penalty)
    return total


@rule
def way_to_cure(s: Any, m: Any, cell_of: Any, town: Any, w: Any) -> Any:
    """Distance / longest distance to the nearest place that raises meter m most; 1 when there is none."""
    share = real(1.0) + real(0.0) * s.meters[m]
    for a in range(w.none):
        if w.cures[m][a] == 1:
            steps = real(w.steps_between[s.cell, cell_of[town, a]]) * w.proximity_reach
            share = where(steps < share, steps, share)
    return share


@rule
def proximity(s: Any, cell_of: Any, town: Any, w: Any) -> Any:
    """Pay for being near the cure of the lowest meter, while that is low."""
    lowest = real(2.0) + real(0.0) * s.meters[0]
    share = lowest
    for m in range(len(s.meters)):
        lower = (active(s, m) > real(0.5)) & (s.meters[m] < lowest - w.tolerance)
        share = where(lower, way_to_cure(s, m, cell_of, town, w), share)
        lowest = where(lower, s.meters[m], lowest)
    pays = real(lowest < w.proximity_below - w.tolerance)
    return pays * (real(1.0) - unit(lowest)) * (real(1.0) - unit(share)) * w.proximity_scale


@rule
def hope(s: Any, w: Any) -> Any:
    """Φ before the step, where a strategy needs it."""
    before = real(0.0)
    if w.looks_back:
        before = outlook(s, w)
    return before


@rule
def reward(
    s: Any, before: Any, dead: Any, late: Any, cell_of: Any, town: Any, mix: Any, components: Any, row: Any, w: Any
) -> Any:
    """10. Each strategy's share into components[row], and their sum."""
    total = real(0.0)
    for k in range(len(w.reward_kind)):
        kind = w.reward_kind[k]
        value = real(0.0)
        if kind == MILESTONE:
            value = milestone(s, dead, w)
        elif kind == SURVIVAL:
            value = survival(s, dead | late, w)
        elif kind == VITALITY:
            value = vitality(s, w)
        elif kind == POTENTIAL:
            value = potential(s, before, dead, w)
        elif kind == METER_BONUS:
            value = meter_bonus(s, w)
        elif kind == PROXIMITY:
            value = proximity(s, cell_of, town, w)
        share = value * (w.reward_weight[k] * mix[row, k])
        components[row, k] = share
        total = total + share
    return total
