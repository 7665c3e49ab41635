"""Rollouts from a timestep of a recorded episode: the chance to survive after another choice than the recorded one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.agents.agent import Interrupt
from townlet.agents.policy import Policy
from townlet.errors import TownletError
from townlet.live.agents import scripted_player
from townlet.live.messages import OutputKind
from townlet.rng import Streams
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.episode_recorder import Recording
from townlet.town.planner import Player
from townlet.town.state import initial_state
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy

HORIZON: Final = 100  # steps
ROLLOUTS: Final = 512  # per option
EXPLORATION: Final = 0.05  # random actions of policies without probabilities, whose rollouts would all be equal
SEED: Final = 0
Actions = NDArray[np.int64]


@dataclass(frozen=True)
class Situation:
    """A timestep of a recorded episode, from which rollouts start."""

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
    """Rollouts with the agent's own policy, as it acts while it learns: by its probabilities, or mostly greedily."""

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
    """The player of the rollouts: the agent itself, or the planner in place of a viewer."""
    if trained is not None:
        return OwnPolicy(trained)
    return scripted_player("random" if kind == "random" else "planner", world, SEED)


@dataclass(frozen=True)
class Plan:
    """Actions to take first, before the policy takes over; `note` explains why they have no effect."""

    label: str
    condition: str
    actions: Sequence[int]
    note: str = ""


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


@dataclass(frozen=True)
class Rollouts:
    """Rollouts from a situation."""

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
