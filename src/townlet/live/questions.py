"""Answers to "why not …?": what would follow from another action, estimated by rollouts from the same state.

From the watched timestep, many copies of the town take the questioned action, or go to the questioned affordance and
use it, and then follow the agent's own policy. The fraction that survives the next HORIZON steps is compared with that
of copies in which the agent does what it did. Only differences beyond twice their standard error count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from townlet.agents.agent import Interrupt, no_interrupt
from townlet.errors import TownletError, did_you_mean
from townlet.live.counterfactuals import HORIZON, ROLLOUTS, Option, OwnPolicy, Plan, Rollouts, Situation
from townlet.live.explain import affordance_label
from townlet.live.protocol import Ask, QuestionAnswer
from townlet.town.planner import PlannerPlayer, Player
from townlet.town.world.tables import TOLERANCE, World

ERRORS: Final = 2.0  # standard errors beyond which a difference is one
MIN_GAP: Final = 1.0  # steps; smaller differences between mean lifetimes are not mentioned
Kind = Literal["policy", "random", "planner", "human"]  # of an `AgentChoice`


def answer(
    situation: Situation, player: Player, request: Ask, kind: Kind = "policy", check_interrupt: Interrupt = no_interrupt
) -> QuestionAnswer:
    """Compare what the agent does with the questioned action or affordance."""
    world = situation.world
    rollouts = Rollouts(situation, player, check_interrupt)
    if request.affordance is not None:
        plan, noun = _go_and_use(situation, request.affordance), _with_article(request.affordance)
    else:
        action = request.action if request.action is not None else situation.taken
        if action is None or not action < len(world.actions):
            raise TownletError("this action does not exist", "choose one of the listed actions")
        plan, noun = _take(situation, action), _verb(situation, action)
    own = rollouts.option(_take(situation, situation.taken))
    same = plan.label == own.label
    options = [own] if same else [own, rollouts.option(plan)]
    sentences = _comparison(options, kind)
    if isinstance(player, OwnPolicy):
        sentences.append(player.habit)
    elif kind == "human":
        sentences.append("In the trials the planner takes your place after that.")
    sentences += _valuation(situation, request.action)
    if kind != "planner":
        sentences.append(_planner(situation))
    return QuestionAnswer(
        number=request.number, question=f"{'Why' if same else 'Why not'} {noun} at step {situation.age}?",
        sentences=sentences, options=[option.as_json() for option in options],
    )  # fmt: skip


def _take(situation: Situation, action: int | None) -> Plan:
    """One action, or None for the one that the agent chooses."""
    if action is None:
        return Plan("its own choice", "", [])
    note = ""
    if not situation.mask[action]:
        used = _used(situation, action)
        unaffordable = "" if used is None else _unaffordable(situation, used)
        note = unaffordable or "This action has no effect here."
    return Plan(_verb(situation, action), f"{_past(situation, action)} now", [action], note)


def _go_and_use(situation: Situation, name: str) -> Plan:
    """Go to an affordance and use it for one complete session."""
    world = situation.world
    if name not in world.affordances:
        raise TownletError(f"there is no {name} here", did_you_mean(name, world.affordances))
    t, k, planner = world.tables, world.affordances.index(name), PlannerPlayer(world)
    r, at = situation.recording, situation.timestep
    actions: list[int] = []
    use = int(t.first_interact) + k
    if world.size:
        cell, goal, use = int(r.cell[at]), int(r.cell_of[k]), int(t.first_interact)
        while cell != goal:
            actions.append(int(planner.towards(np.array([cell]), np.array([goal]))[0]))
            cell = int(t.next_cell[actions[-1], cell])
    walked, place = len(actions), _with_article(name)
    actions += [use] * int(t.ticks[k])
    hour = (int(r.hour[at]) + walked) % int(t.day)
    closed = "" if t.open_at[k, hour] else f"It is closed at that time, {hour:02d}:00."
    note = " ".join(filter(None, (_unaffordable(situation, k), closed)))
    if walked:
        label, condition = f"go to {place} ({_steps(walked)}) and use it", f"went to {place} first ({_steps(walked)})"
    else:
        label, condition = f"use {place}", f"used {place} first"
    return Plan(label, condition, actions[:HORIZON], note)


def _unaffordable(situation: Situation, k: int) -> str:
    """What an affordance costs and what the agent has, if that is not enough; else an empty text."""
    world, t = situation.world, situation.world.tables
    if world.spec.currency is None:
        return ""
    money = float(situation.recording.meters[situation.timestep, t.currency])
    if money + TOLERANCE >= t.price[k]:
        return ""
    price = float(t.price[k]) * int(t.ticks[k])
    place = _with_article(world.affordances[k]).capitalize()
    return f"{place} costs {_amount(price, world)}, the agent has {_amount(money, world)}."


def _amount(money: float, world: World) -> str:
    """Money in dollars, if the world gives its meter a value in dollars."""
    dollars = round(money * float(world.spec.dollars), 2)
    return f"${dollars:.0f}" if dollars == int(dollars) else f"${dollars:.2f}"


def _used(situation: Situation, action: int) -> int | None:
    """The affordance that an action uses, or would use if it were possible."""
    world, r, t = situation.world, situation.recording, situation.world.tables
    if not t.first_interact <= action < t.wait:
        return None
    if not world.size:
        return action - int(t.first_interact)
    here = np.flatnonzero(r.cell_of == r.cell[situation.timestep]).tolist()
    return here[0] if here else None


def _comparison(options: Sequence[Option], kind: Kind) -> list[str]:
    """What the rollouts show, in one or two sentences."""
    own, it, its = options[0], *(("you", "your") if kind == "human" else ("it", "its"))
    notes = [option.note for option in options if option.note]
    if len(options) == 1:
        did = "you do" if kind == "human" else "it does"
        survive = "you survive" if kind == "human" else "it survives"
        sentence = f"That is what {did}: {survive} the next {HORIZON} steps in {own.chance:.0%} of {ROLLOUTS} trials."
        return [*notes, sentence]
    other = options[1]
    found = [
        *([other.note] if other.note else []),
        f"If {it} {other.condition}, {it} would survive the next {HORIZON} steps in {other.chance:.0%} of {ROLLOUTS} "
        f"trials; with {its} own choice, in {own.chance:.0%}.",
    ]
    # Of a choice without effect, the chance means little.
    return found if other.note else [*found, _verdict(own, other, kind)]


def _verdict(own: Option, other: Option, kind: Kind) -> str:
    """Which of two choices is better, as far as the rollouts show."""
    it, its = ("you", "your") if kind == "human" else ("it", "its")
    gap, lasting = other.chance - own.chance, other.steps - own.steps
    errors = [option.chance * (1 - option.chance) / ROLLOUTS for option in (own, other)]
    spreads = [option.spread**2 / ROLLOUTS for option in (own, other)]
    if gap > ERRORS * math.sqrt(sum(errors)):
        return f"So the other choice would have been better{REASONS[kind]}."
    if -gap > ERRORS * math.sqrt(sum(errors)):
        return f"So {its} own choice is better."
    if abs(lasting) > max(MIN_GAP, ERRORS * math.sqrt(sum(spreads))):
        comparison = "longer" if lasting > 0 else "shorter"
        return f"{it.capitalize()} would live {abs(lasting):.0f} steps {comparison} on average."
    return "That is no clear difference."


REASONS: Final[dict[Kind, str]] = {
    "policy": ": the agent has not learned this yet",
    "random": ": a random agent does not weigh its choices",
    "planner": ": the planner knows the rules, but it only estimates what follows",
    "human": "",
}  # why the better choice was not made


def _valuation(situation: Situation, action: int | None) -> list[str]:
    """How the agent itself rates the action, relative to its favorite."""
    step = situation.timestep
    if action is None or situation.output_kind == "none" or step >= len(situation.recording):
        return []
    scores, mask = situation.recording.outputs[step], situation.recording.mask[step]
    if not mask[action]:
        return []
    if situation.output_kind == "probabilities":
        return [f"The agent itself does it in {scores[action]:.0%} of such situations."]
    order = np.argsort(-np.where(mask, scores, -np.inf))
    place = int(np.flatnonzero(order == action)[0]) + 1
    return [f"Of {int(mask.sum())} possible actions the agent rates it {ordinal(place)}."]


def ordinal(number: int) -> str:
    """first, second, third, 4th, … 11th, … 21st."""
    if number <= 3:
        return ("first", "second", "third")[number - 1]
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _planner(situation: Situation) -> str:
    """What the planner, which knows the rules, would do."""
    engine = situation.engine(1)
    action = int(PlannerPlayer(situation.world).act(engine)[0])
    engine.close()
    agrees = action == situation.taken
    return f"The planner, which knows the rules, would {_verb(situation, action)}{', too' if agrees else ''}."


def _verb(situation: Situation, action: int) -> str:
    """An action as a verb: move left, wait, use the bed."""
    name, r = situation.world.actions[action], situation.recording
    if not name.startswith("INTERACT"):
        return "wait" if name == "WAIT" else f"move {name.lower()}"
    here: Sequence[int] = []
    if situation.world.size:
        here = np.flatnonzero(r.cell_of == r.cell[situation.timestep]).tolist()
    place = situation.world.affordances[here[0]] if here else name[9:]
    return f"use {_with_article(place)}" if place else "use an empty cell"


def _past(situation: Situation, action: int) -> str:
    """An action in the past tense: moved left, waited, used the bed."""
    verb, _, rest = _verb(situation, action).partition(" ")
    return {"move": "moved", "use": "used", "wait": "waited"}[verb] + (f" {rest}" if rest else "")


def _with_article(name: str) -> str:
    return f"the {affordance_label(name).lower()}"


def _steps(number: int) -> str:
    return f"{number} step" + "s" * (number != 1)
