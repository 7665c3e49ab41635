"""Answers to "why not …?": what would follow from another action, found by playing on from the same situation.

From the watched timestep, many copies of the town take the questioned action, or go to the questioned affordance and
use it, and then follow the agent's own policy. The fraction that lives for another HORIZON steps is compared with that
of copies in which the agent does what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

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
ROLLOUTS: Final = 128  # per option
EXPLORATION: Final = 0.05  # random actions of policies without probabilities, whose rollouts would all be equal
SEED: Final = 0
Actions = NDArray[np.int64]


@dataclass(frozen=True)
class Situation:
    """A timestep of a recorded episode, from which play can go on."""

    world: World
    recording: Recording
    timestep: int
    output_kind: OutputKind

    def __post_init__(self) -> None:
        if self.timestep > len(self.recording):
            raise TownletError(f"step {self.timestep} has not been played yet", "ask about a step that was shown")

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
        limit = int(self.recording.age[self.timestep]) + 10 * HORIZON
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


def player_of(kind: str, trained: TrainedPolicy | None, world: World) -> Player:
    """Who plays on: the agent itself, or the planner in place of a viewer."""
    if trained is not None:
        return OwnPolicy(trained)
    return scripted_player("random" if kind == "random" else "planner", world, SEED)


@dataclass(frozen=True)
class Option:
    """Something that the agent could do now, and what follows."""

    label: str
    chance: float  # to live another HORIZON steps
    steps: float  # lived, on average, of HORIZON
    note: str = ""


def answer(situation: Situation, player: Player, request: Ask) -> QuestionAnswer:
    """Compare what the agent does with the questioned action or affordance."""
    world = situation.world
    if request.affordance is not None:
        alternative = _go_and_use(situation, player, request.affordance)
        question = f"Why not {_with_article(request.affordance)}?"
    else:
        action = request.action if request.action is not None else situation.taken
        if action is None or not action < len(world.actions):
            raise TownletError("this action does not exist", "choose one of the listed actions")
        alternative = _take(situation, player, action)
        question = f"Why not {_verb(situation, action)}?"
    own = _take(situation, player, situation.taken)
    options = [own, alternative]
    sentences = [*_comparison(own, alternative), *_valuation(situation, request.action), _planner(situation)]
    return QuestionAnswer(
        number=request.number, question=question, sentences=sentences,
        options=[{"label": option.label, "chance": round(option.chance, 3), "steps": round(option.steps, 1)}
                 for option in (options if alternative.label != own.label else [own])],
    )  # fmt: skip


def _take(situation: Situation, player: Player, action: int | None) -> Option:
    """The agent takes an action, or the one of its policy, and goes on as usual."""
    engine = situation.engine(ROLLOUTS)
    first = [] if action is None else [np.full(ROLLOUTS, action, np.int64)]
    label = "what it does" if action is None else _verb(situation, action)
    note = "" if action is None or engine.mask[0, action] else "This action has no effect here."
    return _play_on(situation, player, engine, first, label, note)


def _go_and_use(situation: Situation, player: Player, name: str) -> Option:
    """The agent goes to an affordance by the shortest way, uses it completely, and goes on as usual."""
    world, t = situation.world, situation.world.tables
    if name not in world.affordances:
        raise TownletError(f"there is no {name} here", did_you_mean(name, world.affordances))
    k, planner = world.affordances.index(name), PlannerPlayer(world)
    engine = situation.engine(ROLLOUTS)
    state = engine.peek()
    actions: list[Actions] = []
    if world.size:
        cell, goal = int(state["cell"][0]), int(situation.recording.cell_of[k])
        while cell != goal:
            move = int(planner.towards(np.array([cell]), np.array([goal]))[0])
            actions.append(np.full(ROLLOUTS, move, np.int64))
            cell = int(t.next_cell[move, cell])
        use = int(t.first_interact)
    else:
        use = int(t.first_interact) + k
    walked = len(actions)
    actions += [np.full(ROLLOUTS, use, np.int64)] * int(t.ticks[k])
    label = f"go to {_with_article(name)} ({_steps(walked)}) and use it" if walked else f"use {_with_article(name)}"
    hour = (int(state["hour"][0]) + walked) % int(t.day)
    money = float(state["meters"][0, t.currency]) if world.spec.currency is not None else np.inf
    note = ""
    if not t.open_at[k, hour]:
        note = f"It is closed when the agent gets there, at {hour:02d}:00."
    elif money + TOLERANCE < t.price[k]:
        note = "The agent cannot afford it."
    return _play_on(situation, player, engine, actions[:HORIZON], label, note)


def _play_on(
    situation: Situation, player: Player, engine: Engine, actions: Sequence[Actions], label: str, note: str
) -> Option:
    """Take the given actions, then those of the player, for HORIZON steps."""
    if isinstance(player, OwnPolicy):
        player.prepare(situation, engine.rows)
    lived = np.zeros(engine.rows)
    for step in range(HORIZON):
        own = player.act(engine)  # also while actions are given: a policy with a memory sees these steps
        engine.step(actions[step] if step < len(actions) else own)
        lived += ~engine.terminated
        if engine.terminated.all():
            break
    chance = float((~engine.terminated).mean())
    engine.close()
    return Option(label, chance, float(lived.mean()), note)


def _comparison(own: Option, other: Option) -> list[str]:
    """What the rollouts show, in one or two sentences."""
    if own.label == other.label:
        return [f"That is what it does: {own.chance:.0%} live another {HORIZON} steps."]
    text = f"To {other.label} now, then go on as usual: {other.chance:.0%} live another {HORIZON} steps"
    found = [f"{text}. With its own choice, to {own.label}: {own.chance:.0%}."]
    if other.note:
        found.append(other.note)
    elif abs(own.chance - other.chance) < 0.05:
        gap = other.steps - own.steps
        close = abs(gap) < 2
        found.append("Both are about equally good." if close else f"Lives last {abs(gap):.0f} steps "
                     f"{'longer' if gap > 0 else 'shorter'} on average.")  # fmt: skip
    elif other.chance > own.chance:
        found.append("So the other choice would have been better: the agent has not learned this yet.")
    return found


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
    ordinal = {1: "first", 2: "second", 3: "third"}.get(place, f"{place}th")
    return [f"Of {int(mask.sum())} possible actions the agent rates it {ordinal}."]


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


def _with_article(name: str) -> str:
    return f"the {affordance_label(name).lower()}"


def _steps(number: int) -> str:
    return f"{number} step" + "s" * (number != 1)
