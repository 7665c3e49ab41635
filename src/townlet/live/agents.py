"""Who can play in a watched town: the policy of a checkpoint, scripted agents, or a viewer with the keyboard."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any, Final, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from townlet.live.messages import CheckpointName, Message, OutputKind, RunName
from townlet.rng import Streams
from townlet.town.engines.engine import Engine
from townlet.town.planner import PlannerPlayer, Player, RandomPlayer
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy

Outputs = NDArray[np.float32]


class PolicyChoice(Message):
    """The policy of a checkpoint or snapshot."""

    kind: Literal["policy"] = "policy"
    run: RunName | None = Field(None, description="Its run; null for the watched one.")
    checkpoint: CheckpointName = "latest"
    epsilon: float = Field(0.0, ge=0, le=1, description="Probability of a random action; 0 is greedy.")


class ScriptedChoice(Message):
    """An agent that does not learn: uniformly random, or the planner, which knows the rules."""

    kind: Literal["random", "planner"]


class HumanChoice(Message):
    """The viewer, who sends every action as `act`."""

    kind: Literal["human"] = "human"


AgentChoice = Annotated[PolicyChoice | ScriptedChoice | HumanChoice, Field(discriminator="kind")]


class Actor(Protocol):
    """Chooses the actions of one row."""

    output_kind: OutputKind

    def act(self, engine: Engine, episode_start: bool) -> tuple[int, Outputs] | None:
        """The action, and the values or probabilities [K] of all actions; None while it is not decided."""


class PolicyActor:
    """Epsilon-greedy actor with the policy of a checkpoint; the seed is for its random actions."""

    def __init__(self, trained: TrainedPolicy, epsilon: float, seed: int) -> None:
        self._policy, self._epsilon = trained.policy(seed), epsilon
        self._policy.reset(1)
        self._rng = Streams(seed).numpy("epsilon")
        self.output_kind: OutputKind = "values" if trained.kind == "values" else "probabilities"

    def act(self, engine: Engine, episode_start: bool) -> tuple[int, Outputs]:
        obs, mask = (torch.from_numpy(np.array(part)) for part in (engine.obs, engine.mask))
        batch = obs, mask, torch.tensor([episode_start])
        outputs = self._policy.outputs(*batch)[self.output_kind][0].numpy()  # leaves a hidden state unchanged
        action = int(self._policy.act(*batch)[0])  # advances it
        if self._epsilon and self._rng.random() < self._epsilon:
            action = int(self._rng.choice(np.flatnonzero(mask[0].numpy())))
        return action, outputs


class ScriptedActor:
    """A scripted player."""

    output_kind: OutputKind = "none"

    def __init__(self, player: Player, world: World) -> None:
        self._player, self._outputs = player, np.zeros(len(world.actions), np.float32)

    def act(self, engine: Engine, episode_start: bool) -> tuple[int, Outputs]:
        return int(self._player.act(engine)[0]), self._outputs


class HumanActor:
    """Takes the actions that a viewer has sent, in order."""

    output_kind: OutputKind = "none"

    def __init__(self, world: World) -> None:
        self._outputs = np.zeros(len(world.actions), np.float32)
        self._pending: deque[int] = deque(maxlen=8)

    def press(self, action: int) -> None:
        """Queue an action; if too many are waiting, the oldest is dropped."""
        self._pending.append(action)

    def clear(self) -> None:
        """Drop the actions that were not taken yet."""
        self._pending.clear()

    def act(self, engine: Engine, episode_start: bool) -> tuple[int, Outputs] | None:
        return (self._pending.popleft(), self._outputs) if self._pending else None


SCRIPTED_LABELS: Final = {
    "random": "random agent", "planner": "planner, which knows the rules", "human": "with the keyboard"
}  # fmt: skip


def scripted_player(kind: str, world: World, seed: int) -> Player:
    """The player of a `ScriptedChoice`."""
    return RandomPlayer(Streams(seed).numpy("random")) if kind == "random" else PlannerPlayer(world)


def make_actor(choice: Any, trained: TrainedPolicy | None, world: World, seed: int) -> Actor:
    """The actor of a choice; `trained` is that of a `PolicyChoice`."""
    if isinstance(choice, PolicyChoice):
        assert trained is not None
        return PolicyActor(trained, choice.epsilon, seed)
    if isinstance(choice, HumanChoice):
        return HumanActor(world)
    return ScriptedActor(scripted_player(choice.kind, world, seed), world)
