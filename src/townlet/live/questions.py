"""Answers to "why not …?": what would follow from another action, found by playing on from the same situation.

From the watched timestep, many copies of the town take the questioned action, or go to the questioned affordance and
use it, and then follow the agent's own policy. The fraction that survives the next HORIZON steps is compared with that
of copies in which the agent does what it did. Only differences beyond twice their standard error count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.agents.agent import Interrupt, no_interrupt
from townlet.agents.policy import Policy
from townlet.errors import TownletError, did_you_mean
from townlet.live.agents import scripted_player
from townlet.live.explain import affordance_label
from townlet.live.messages import OutputKind
from townlet.live.protocol import Ask, QuestionAnswer
from townlet.rng import Streams
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.episode_recorder import Recording
from townlet.town.planner import PlannerPlayer, Player
from townlet.town.state import initial_state
from townlet.town.world.tables import TOLERANCE, World
from townlet.train.policies import TrainedPolicy

HORIZON: Final = 100  # steps
ROLLOUTS: Final = 512  # per option
EXPLORATION: Final = 0.05  # random actions of policies without probabilities, whose rollouts would all be equal
ERRORS: Final = 2.0  # standard errors beyond which a difference is one
MIN_GAP: Final = 1.0  # steps; smaller differences between mean lifetimes are not mentioned
SEED: Final = 0
Kind = Literal["policy", "random", "planner", "human"]  # of an `AgentChoice`
Actions = NDArray[np.int64]


@dataclass(frozen=True)
class Situation:
    """A timestep of a recorded episode, from which play can go on."""

    world: World
    recording: Recording
    timestep: int
    output_kind: OutputKind
    over: bool = False  # the episode has ended with the recording

    def __post_init__(self) -> None:
        if self.timestep > len(self.recording):
            raise TownletError(f"step {self.timestep} has not been played yet", "ask about a step that was shown")
        if self.over and self.timestep == len(self.recording):
            raise TownletError(f"at step {self.age} the episode is over", "go back, then ask about an earlier step")

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which actions are possible here [K]."""
        if self.timestep < len(self.recording):
            return np.asarray(self.recording.mask[self.timestep])
        engine = self.engine(1)
        mask = np.array(engine.mask[0])
        engine.close()
        return mask

    @property
    def age(self) -> int:
        """Steps of the episode before this timestep, as on the page."""
        return int(self.recording.age[self.timestep])

    @property
    def taken(self) -> int | None:
        """The action that was taken here; None at the end of what was recorded."""
        return int(self.recording.actions[self.timestep]) if self.timestep < len(self.recording) else None

    def state(self, timesteps: Sequence[int]) -> dict[str, NDArray[Any]]:
        """The state of one row for each timestep, with all meters active."""
        r, world, at = self.recording, self.world, list(timesteps)
        state = initial_state(world, len(at))
        for name in ("cell", "age", "hour", "progress", "using", "meters"):
            state[name] = np.array(getattr(r, name)[at]).astype(state[name].dtype)
        cells = int(world.tables.next_cell.shape[1])
        kind_at = np.full(cells + 1, world.tables.n_affordances, state["kind_at"].dtype)
        kind_at[cells] = state["kind_at"][0, cells]
        kind_at[r.cell_of] = np.arange(len(r.cell_of))
        state["kind_at"] = np.repeat(kind_at[None], len(state["kind_at"]), axis=0)
        state["cell_of"] = np.repeat(r.cell_of[None].astype(state["cell_of"].dtype), len(state["cell_of"]), axis=0)
        state["here"] = kind_at[state["cell"]].astype(state["here"].dtype)
        return state

    def engine(self, rows: int) -> Engine:
        """An engine with copies of this timestep, without the step limit of the world."""
        return self._engine([self.timestep] * rows)

    def history(self) -> Engine:
        """An engine whose rows are the timesteps before this one, to see what the agent saw."""
        return self._engine(range(max(1, self.timestep)))

    def _engine(self, timesteps: Sequence[int]) -> Engine:
        limit = self.age + 10 * HORIZON
        tables = self.world.tables._replace(max_steps=max(limit, int(self.world.tables.max_steps)))
        engine = make_engine(replace(self.world, tables=tables), len(timesteps), autoreset=False)
        engine.reset(SEED)
        engine.restore(self.state(timesteps))
        return engine


class OwnPolicy:
    """Plays on with the agent's own policy, as it acts while it learns: by its probabilities, or mostly greedily."""

    name = "policy"

    def __init__(self, trained: TrainedPolicy) -> None:
        self._trained = trained
        self._samples = trained.kind != "values"
        self._rng = Streams(SEED).numpy("exploration")
        self._policy: Policy = trained.policy(SEED)

    def prepare(self, situation: Situation, rows: int) -> None:
        """Reset the policy; one with a memory first sees what the agent has seen."""
        self._policy = self._trained.policy(SEED)
        self._policy.reset(rows)
        if not self._trained.hidden_size or not situation.timestep:
            return
        past = situation.history()
        obs, mask = (torch.from_numpy(np.array(part)) for part in (past.obs, past.mask))
        past.close()
        for t in range(situation.timestep):
            self._policy.act(obs[t : t + 1].expand(rows, -1), mask[t : t + 1].expand(rows, -1))

    def act(self, engine: Engine) -> Actions:
        obs, mask = (torch.from_numpy(np.array(part)) for part in (engine.obs, engine.mask))
        actions: Actions = self._policy.act(obs, mask, greedy=not self._samples).numpy()
        if self._samples:
            return actions
        random = self._rng.random(len(actions)) < EXPLORATION
        valid = np.where(mask.numpy(), self._rng.random(mask.shape), -1.0).argmax(1)
        return np.where(random, valid, actions)

    @property
    def habit(self) -> str:
        """How it chooses its actions, in a sentence."""
        if self._samples:
            return "In the trials it draws its actions by their probabilities."
        return f"In the trials it takes its favorite action, and a random one in {EXPLORATION:.0%} of the steps."


def player_of(kind: str, trained: TrainedPolicy | None, world: World) -> Player:
    """Who plays on: the agent itself, or the planner in place of a viewer."""
    if trained is not None:
        return OwnPolicy(trained)
    return scripted_player("random" if kind == "random" else "planner", world, SEED)


@dataclass(frozen=True)
class Option:
    """Something that the agent could do now, and what follows."""

    label: str
    condition: str  # as a condition: went to the bed first (8 steps)
    chance: float  # to survive the next HORIZON steps
    steps: float  # lived, on average, of HORIZON
    spread: float  # standard deviation of the steps
    note: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of 95% for the chance (Wilson 1927)."""
        n, z = ROLLOUTS, 1.96
        center = (self.chance + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.chance * (1 - self.chance) / n + z * z / (4 * n * n))
        return max(0.0, center - half), min(1.0, center + half)

    def as_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "label": self.label, "chance": round(self.chance, 3), "low": round(low, 3), "high": round(high, 3),
            "steps": round(self.steps, 1),
        }  # fmt: skip


def answer(
    situation: Situation, player: Player, request: Ask, kind: Kind = "policy", check_interrupt: Interrupt = no_interrupt
) -> QuestionAnswer:
    """Compare what the agent does with the questioned action or affordance."""
    world = situation.world
    rollouts = _Rollouts(situation, player, check_interrupt)
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
        sentences.append("In the trials the planner plays on for you.")
    sentences += _valuation(situation, request.action)
    if kind != "planner":
        sentences.append(_planner(situation))
    return QuestionAnswer(
        number=request.number, question=f"{'Why' if same else 'Why not'} {noun} at step {situation.age}?",
        sentences=sentences, options=[option.as_json() for option in options],
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Actions that the agent could take before it goes on as usual, and a `note` on why they have no effect."""

    label: str
    condition: str
    actions: Sequence[int]
    note: str = ""


def _take(situation: Situation, action: int | None) -> Plan:
    """One action, or None for the one that the agent chooses."""
    if action is None:
        return Plan("its own choice", "", [])
    possible = situation.mask[action]
    return Plan(
        _verb(situation, action), f"{_past(situation, action)} now", [action],
        "" if possible else "This action has no effect here.",
    )  # fmt: skip


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
    money = float(r.meters[at, t.currency]) if world.spec.currency is not None else np.inf
    note = ""
    if not t.open_at[k, hour]:
        note = f"It is closed at that time, {hour:02d}:00."
    elif money + TOLERANCE < t.price[k]:
        note = "There is not enough money for it."
    if walked:
        label, condition = f"go to {place} ({_steps(walked)}) and use it", f"went to {place} first ({_steps(walked)})"
    else:
        label, condition = f"use {place}", f"used {place} first"
    return Plan(label, condition, actions[:HORIZON], note)


@dataclass(frozen=True)
class _Rollouts:
    """Plays on from a situation."""

    situation: Situation
    player: Player
    check_interrupt: Interrupt

    def option(self, plan: Plan) -> Option:
        """Take the actions of a plan, then those of the player, for HORIZON steps."""
        engine = self.situation.engine(ROLLOUTS)
        if isinstance(self.player, OwnPolicy):
            self.player.prepare(self.situation, engine.rows)
        lived = np.zeros(engine.rows)
        try:
            for step in range(HORIZON):
                self.check_interrupt()
                own = self.player.act(engine)  # also during a plan: a policy with a memory sees these steps
                planned = step < len(plan.actions)
                engine.step(np.full(engine.rows, plan.actions[step], np.int64) if planned else own)
                lived += ~engine.terminated
                if engine.terminated.all():
                    break
            chance = float((~engine.terminated).mean())
        finally:
            engine.close()
        return Option(plan.label, plan.condition, chance, float(lived.mean()), float(lived.std()), plan.note)


def _comparison(options: Sequence[Option], kind: Kind) -> list[str]:
    """What the rollouts show, in one or two sentences."""
    own, it, its = options[0], *(("you", "your") if kind == "human" else ("it", "its"))
    if len(options) == 1:
        did = "you do" if kind == "human" else "it does"
        survive = "you survive" if kind == "human" else "it survives"
        return [f"That is what {did}: {survive} the next {HORIZON} steps in {own.chance:.0%} of {ROLLOUTS} trials."]
    other = options[1]
    found = [
        f"If {it} {other.condition}, {it} would survive the next {HORIZON} steps in {other.chance:.0%} of {ROLLOUTS} "
        f"trials; with {its} own choice, in {own.chance:.0%}."
    ]
    gap, lasting = other.chance - own.chance, other.steps - own.steps
    errors = [option.chance * (1 - option.chance) / ROLLOUTS for option in options]
    spreads = [option.spread**2 / ROLLOUTS for option in options]
    if other.note:
        found.append(other.note)
    elif gap > ERRORS * math.sqrt(sum(errors)):
        found.append(f"So the other choice would have been better{REASONS[kind]}.")
    elif -gap > ERRORS * math.sqrt(sum(errors)):
        found.append(f"So {its} own choice is better.")
    elif abs(lasting) > max(MIN_GAP, ERRORS * math.sqrt(sum(spreads))):
        comparison = "longer" if lasting > 0 else "shorter"
        found.append(f"{it.capitalize()} would live {abs(lasting):.0f} steps {comparison} on average.")
    else:
        found.append("That is no clear difference.")
    return found


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
