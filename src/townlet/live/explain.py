"""Plain-English explanations of actions and deaths, derived only from recorded numbers."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from townlet.live.messages import OutputKind
from townlet.town.episode_recorder import Recording
from townlet.town.state import OUT_OF_TIME
from townlet.town.world.tables import World

LOW_METER: Final = 0.3  # meters below this are worth mentioning
MIN_LOSS: Final = 0.01  # share of a meter; smaller losses are not mentioned
MIN_SHARE: Final = 0.5  # share of the largest loss; smaller losses are not mentioned beside it
MAX_DEPTH: Final = 3  # maximum length of a chain of cascades
SMALL_LEAD: Final = 0.02  # share of the range of values up to which the favorite is hardly ahead
LARGE_LEAD: Final = 0.2  # share of the range of values from which the favorite is well ahead


def explain_action(world: World, r: Recording, step: int, output_kind: OutputKind) -> str:
    """Why the action of a step was chosen, in one or two sentences."""
    action, mask, scores = int(r.actions[step]), r.mask[step], r.outputs[step]
    name, need = world.actions[action], _lowest_meter_text(world, r, step)
    if world.size and action == int(world.tables.first_interact):
        here = np.flatnonzero(r.cell_of == r.cell[step]).tolist()
        name = f"uses {affordance_label(world.affordances[here[0]])}" if here else "tries to use an empty cell"
    if output_kind == "none":
        return f"{name}. {need}"
    allowed = np.flatnonzero(mask)
    best = int(allowed[scores[allowed].argmax()])
    if output_kind == "probabilities":
        if action == best:
            return f"{name}: the most likely action, with a probability of {scores[action]:.0%}. {need}"
        likelier = f"{world.actions[best]} was more likely, at {scores[best]:.0%}"
        return f"{name}: sampled with a probability of {scores[action]:.0%}; {likelier}. {need}"
    if action != best:
        return f"{name}: trying something else; its favorite was “{world.actions[best]}”. {need}"
    others = allowed[allowed != best]
    if not len(others):
        return f"{name}: nothing else was possible. {need}"
    second = int(others[scores[others].argmax()])
    lead = float(scores[best] - scores[second]) / max(1e-9, float(np.ptp(scores[allowed])))
    ahead = "hardly ahead" if lead <= SMALL_LEAD else "well ahead" if lead >= LARGE_LEAD else "ahead"
    return f"{name}: its favorite, {ahead} of “{world.actions[second]}”. {need}"


def _lowest_meter_text(world: World, r: Recording, step: int) -> str:
    """A sentence about the lowest meter at a step; the currency counts only when it runs low."""
    meters = r.meters[step]
    candidates = [m for m, name in enumerate(world.meters) if name != world.spec.currency or meters[m] < LOW_METER]
    lowest = min(candidates, key=lambda m: float(meters[m]))
    text = "The lowest meter is" if meters[lowest] < LOW_METER else "No meter is low; the lowest is"
    return f"{text} {world.meters[lowest]} at {meters[lowest]:.0%}."


def death_certificate(world: World, r: Recording, cause: str) -> list[str]:
    """How an episode ended: the empty meter, the cascades that drained it, and the affordances never used."""
    age = int(r.age[-1])
    if cause == OUT_OF_TIME:
        return [f"Survived all {age} steps; the step limit ended the episode."]
    meter = world.meters.index(cause)
    sentences = [f"Died at step {age}: {cause} was empty.", *_cascade_sentences(world, r, meter)]
    # `effect` has two rows per affordance: an earlier tick and the last tick. The final pair stands for no affordance.
    effects_of_last_tick = np.asarray(world.tables.effect)[1::2][:-1]  # [A, M]
    restorers = set(np.flatnonzero(effects_of_last_tick[:, meter] > 0).tolist())
    first, wait = int(world.tables.first_interact), int(world.tables.wait)
    steps = np.flatnonzero((r.actions >= first) & (r.actions < wait))
    used = set((r.actions[steps] - first).tolist())
    if world.size:
        used = set(np.flatnonzero(np.isin(r.cell_of, r.cell[steps])).tolist())
    if restorers and not used & restorers:
        names = ", ".join(affordance_label(world.affordances[a]) for a in sorted(restorers))
        sentences.append(f"It never used anything that restores {cause}: {names}.")
    return sentences


def _cascade_sentences(world: World, r: Recording, meter: int) -> list[str]:
    """Which meters drained this one most, then which drained the worst of those, and so on."""
    t, seen = world.tables, {meter}
    sentences: list[str] = []
    for _ in range(MAX_DEPTH):
        losses = []  # one per cascade into the meter
        for k in np.flatnonzero(np.asarray(t.cascade_target) == meter):
            source, threshold = int(t.cascade_source[k]), float(t.cascade_threshold[k])
            shortage = np.clip(threshold - r.meters[:-1, source], 0, None)
            lost = float(t.cascade_slope[k]) * float(shortage.sum())
            if lost >= MIN_LOSS:
                losses.append((lost, source, threshold, int((shortage > 0).sum())))
        losses.sort(reverse=True)
        largest = [loss for loss in losses if loss[0] >= MIN_SHARE * losses[0][0] and loss[1] not in seen][:2]
        if not largest:
            break
        for lost, source, threshold, count in largest:
            steps = "1 step" if count == 1 else f"{count} steps"
            cause = f"{world.meters[source].capitalize()} below {threshold:.0%} for {steps}"
            sentences.append(f"{cause} cost {lost:.0%} of {world.meters[meter]}.")
            seen.add(source)
        meter = largest[0][1]
    return sentences


def affordance_label(name: str) -> str:
    """CamelCase as words: LuxuryBed → Luxury bed."""
    first, *rest = re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+(?![^A-Z])", name) or [name]
    return " ".join([first, *(word.lower() for word in rest)])
