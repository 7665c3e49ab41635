"""Why an agent did what it did, and how it came to its end, in sentences that only say what the figures show."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from townlet.sim.causes import TIME
from townlet.sim.tape import Recording
from townlet.world.tables import World

LOW: Final = 0.3  # a need below this is worth a word
CLOSE: Final = 0.02  # of the range of values: two actions that differ by less are told as nearly equal


def why(world: World, r: Recording, step: int, outputs: Literal["values", "probabilities"]) -> str:
    """One sentence or two on the action of a step."""
    action, mask, given = int(r.actions[step]), r.mask[step], r.outputs[step]
    name = _act(world, r, step)
    possible = np.flatnonzero(mask)
    best = int(possible[given[possible].argmax()])
    need = _need(world, r, step)
    if outputs == "probabilities":
        said = f"{name}: drawn with a probability of {given[action]:.0%}"
        more = "" if action == best else f"; {world.actions[best]} was likelier, at {given[best]:.0%}"
        return f"{said}{more}. {need}"
    if action != best:
        worth = f"{world.actions[best]} was thought better by {given[best] - given[action]:.3g}"
        return f"{name}: exploring; {worth}. {need}"
    others = possible[possible != best]
    if not len(others):
        return f"{name}: nothing else was possible. {need}"
    second = int(others[given[others].argmax()])
    lead = given[best] - given[second]
    near = lead <= CLOSE * max(1e-9, float(np.ptp(given[possible])))
    how = "hardly better than" if near else f"better by {lead:.3g} than"
    return f"{name}: the highest value, {how} {world.actions[second]}. {need}"


def _act(world: World, r: Recording, step: int) -> str:
    """The action in words, with the place where it uses one."""
    action = int(r.actions[step])
    if world.size and action == int(world.tables.first_interact):
        there = np.flatnonzero(r.cell_of == r.cell[step])
        return f"uses {world.affordances[int(there[0])]}" if len(there) else "tries to use nothing"
    return world.actions[action]


def _used(world: World, r: Recording) -> set[int]:
    """The places that were used at least once."""
    first, wait = int(world.tables.first_interact), int(world.tables.wait)
    acts = np.flatnonzero((r.actions >= first) & (r.actions < wait))
    if not world.size:
        return set((r.actions[acts] - first).tolist())
    kinds = {int(cell): kind for kind, cell in enumerate(r.cell_of)}
    return {kinds[int(cell)] for cell in r.cell[acts] if int(cell) in kinds}


def _need(world: World, r: Recording, step: int) -> str:
    """The lowest need at that moment."""
    meters = r.meters[step]
    lowest = int(meters.argmin())
    if meters[lowest] >= LOW:
        return f"No need is pressing; the lowest is {world.meters[lowest]} at {meters[lowest]:.0%}."
    return f"The lowest need is {world.meters[lowest]} at {meters[lowest]:.0%}."


def certificate(world: World, r: Recording, cause: str) -> list[str]:
    """How a life ended: what was empty, what had pulled it down, and what was never used."""
    age = int(r.age[-1])
    if cause == TIME:
        return [f"Lived all {age} steps; the limit ended this life, not a need."]
    told = [f"Died at step {age}: {cause} was empty."]
    told += _pulls(world, r, world.meters.index(cause))
    restores = np.asarray(world.tables.effect)[1::2][:-1, world.meters.index(cause)] > 0
    cures = [world.affordances[a] for a in np.flatnonzero(restores)]
    used = {world.affordances[a] for a in _used(world, r)}
    unused = [name for name in cures if name not in used]
    if cures and len(unused) == len(cures):
        told.append(f"In this life it never used what restores {cause}: {', '.join(cures)}.")
    return told


def _pulls(world: World, r: Recording, meter: int, depth: int = 3) -> list[str]:
    """Which other needs were so low that they pulled this one down, and for how many steps."""
    t, told, seen = world.tables, [], {meter}
    for _ in range(depth):
        into = [k for k in range(len(t.cascade_source)) if int(t.cascade_target[k]) == meter]
        low = {k: int((r.meters[:, int(t.cascade_source[k])] < t.cascade_threshold[k]).sum()) for k in into}
        worst = max(low, key=lambda k: low[k], default=None)
        if worst is None or not low[worst] or int(t.cascade_source[worst]) in seen:
            break
        source = int(t.cascade_source[worst])
        name, bound = world.meters[source], float(t.cascade_threshold[worst])
        steps = "1 step" if low[worst] == 1 else f"{low[worst]} steps"
        told.append(f"For {steps} {name} was below {bound:.0%}, which pulls {world.meters[meter]} down.")
        seen.add(source)
        meter = source
    return told
