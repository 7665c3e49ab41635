"""Why an agent did what it did, and how it came to its end, in sentences that only say what the figures show."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

import numpy as np

from townlet.town.episode_recorder import Recording
from townlet.town.state import OUT_OF_TIME
from townlet.town.world.tables import World

LOW_METER: Final = 0.3  # a need below this is worth a word
MIN_LOSS: Final = 0.01  # of a meter: what took less is not worth a word
MIN_SHARE: Final = 0.5  # of the strongest drain: weaker ones are not told beside it
NEARLY_EQUAL: Final = 0.02  # of the range of values: two actions that differ by less are told as nearly equal


def explain_action(world: World, r: Recording, step: int, outputs: Literal["values", "probabilities"]) -> str:
    """One sentence or two on the action of a step."""
    action, mask, given = int(r.actions[step]), r.mask[step], r.outputs[step]
    name = _action_text(world, r, step)
    possible = np.flatnonzero(mask)
    best = int(possible[given[possible].argmax()])
    need = _lowest_meter_text(world, r, step)
    if outputs == "probabilities":
        if action == best:
            return f"{name}: the likeliest, with a probability of {given[action]:.0%}. {need}"
        likelier = f"{world.actions[best]} was likelier, at {given[best]:.0%}"
        return f"{name}: drawn with a probability of {given[action]:.0%}; {likelier}. {need}"
    if action != best:
        worth = f"{world.actions[best]} was thought better by {given[best] - given[action]:.3g}"
        return f"{name}: exploring; {worth}. {need}"
    others = possible[possible != best]
    if not len(others):
        return f"{name}: nothing else was possible. {need}"
    second = int(others[given[others].argmax()])
    lead = given[best] - given[second]
    near = lead <= NEARLY_EQUAL * max(1e-9, float(np.ptp(given[possible])))
    how = "hardly better than" if near else f"better by {lead:.3g} than"
    return f"{name}: the highest value, {how} {world.actions[second]}. {need}"


def _action_text(world: World, r: Recording, step: int) -> str:
    """The action in words, with the place where it uses one."""
    action = int(r.actions[step])
    if world.size and action == int(world.tables.first_interact):
        there = np.flatnonzero(r.cell_of == r.cell[step])
        return f"uses {affordance_label(world.affordances[int(there[0])])}" if len(there) else "tries to use nothing"
    return world.actions[action]


def _used_affordances(world: World, r: Recording) -> set[int]:
    """The places that were used at least once."""
    first, wait = int(world.tables.first_interact), int(world.tables.wait)
    acts = np.flatnonzero((r.actions >= first) & (r.actions < wait))
    if not world.size:
        return set((r.actions[acts] - first).tolist())
    kinds = {int(cell): kind for kind, cell in enumerate(r.cell_of)}
    return {kinds[int(cell)] for cell in r.cell[acts] if int(cell) in kinds}


def _lowest_meter_text(world: World, r: Recording, step: int) -> str:
    """The lowest need at that moment; money is none, unless it runs out."""
    meters = r.meters[step]
    needs = [m for m, name in enumerate(world.meters) if name != world.spec.currency or meters[m] < LOW_METER]
    lowest = min(needs, key=lambda m: float(meters[m]))
    told = f"{world.meters[lowest]} at {meters[lowest]:.0%}"
    return (
        f"The lowest need is {told}." if meters[lowest] < LOW_METER else f"No need is pressing; the lowest is {told}."
    )


def death_certificate(world: World, r: Recording, cause: str) -> list[str]:
    """How a life ended: what was empty, what had pulled it down, and what was never used."""
    age = int(r.age[-1])
    if cause == OUT_OF_TIME:
        return [f"Lived all {age} steps; the limit ended this life, not a need."]
    told = [f"Died at step {age}: {cause} was empty."]
    told += _cascade_sentences(world, r, world.meters.index(cause))
    restores = np.asarray(world.tables.effect)[1::2][:-1, world.meters.index(cause)] > 0
    cures = [int(a) for a in np.flatnonzero(restores)]
    if cures and not _used_affordances(world, r) & {*cures}:
        names = ", ".join(affordance_label(world.affordances[a]) for a in cures)
        told.append(f"In this life it never used what restores {cause}: {names}.")
    return told


def _cascade_sentences(world: World, r: Recording, meter: int, depth: int = 3) -> list[str]:
    """What pulled this meter down most in this life, what pulled that one down, and so on: by effect, not by time."""
    told: list[str] = []
    seen = {meter}
    for _ in range(depth):
        drains = sorted(_cascade_losses(world, r, meter), reverse=True)
        shown = [drain for drain in drains if drain.lost >= MIN_SHARE * drains[0].lost and drain.source not in seen][:2]
        for drain in shown:
            steps = "1 step" if drain.steps == 1 else f"{drain.steps} steps"
            name, took = world.meters[drain.source], f"took {drain.lost:.0%} of {world.meters[meter]}"
            told.append(f"Low {name} {took}: it was below {drain.bound:.0%} for {steps}.")
        if not shown:
            break
        seen |= {drain.source for drain in shown}
        meter = shown[0].source
    return told


class CascadeLoss(NamedTuple):
    """What one low meter took from another in a whole life."""

    lost: float
    source: int
    bound: float
    steps: int


def _cascade_losses(world: World, r: Recording, meter: int) -> list[CascadeLoss]:
    """All cascades into a meter that were felt."""
    t, found = world.tables, []
    for k in np.flatnonzero(np.asarray(t.cascade_target) == meter):
        source, bound = int(t.cascade_source[k]), float(t.cascade_threshold[k])
        shortage = np.clip(bound - r.meters[:-1, source], 0, None)
        lost = float(t.cascade_slope[k]) * float(shortage.sum())
        if lost >= MIN_LOSS:
            found.append(CascadeLoss(lost, source, bound, int((shortage > 0).sum())))
    return found


def affordance_label(name: str) -> str:
    """As people write it: LuxuryBed is a luxury bed."""
    first, *rest = re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+(?![^A-Z])", name) or [name]
    return " ".join([first, *(word.lower() for word in rest)])
