"""Small vector environments whose optimal policy is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete, FinalObs, MaskedObs, Step

EPISODES = 1024  # random numbers drawn in advance for each row; they repeat after that


class ToyEnv:
    """Base class: each row has a position, an age in steps and a random number per episode.

    With `autoreset_steps` a row that ended shows its final observation, and the next step only resets it.
    """

    layout: ObservationLayout
    actions: Actions
    components: tuple[str, ...] = ("reward",)
    exact = True
    autoreset_steps = False
    device = "cpu"

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.reset(0)

    def reset(self, seed: int) -> MaskedObs:
        self._draws = torch.rand(self.rows, EPISODES, generator=torch.Generator().manual_seed(seed))
        self._episode = torch.zeros(self.rows, dtype=torch.int64)
        self._position = torch.zeros(self.rows, dtype=torch.int64)
        self._age = torch.zeros(self.rows, dtype=torch.int64)
        self._needs_reset = torch.zeros(self.rows, dtype=torch.bool)
        self._start(~self._needs_reset)
        return self._observe()

    @property
    def draw(self) -> Tensor:
        """Random number of the current episode [N] in [0, 1)."""
        return self._draws.gather(1, (self._episode % EPISODES).unsqueeze(1)).squeeze(1)

    def step(self, actions: Tensor) -> Step:
        if self.autoreset_steps:
            return self._step_with_autoreset(actions)
        self._age += 1
        reward, terminated, truncated = self._advance(actions)
        over = terminated | truncated
        last, rows = self._observe(), torch.nonzero(over).squeeze(1)
        self._ended = FinalObs(rows, last.obs[rows], last.mask[rows])
        self._episode += over
        self._age[over] = 0
        self._start(over)
        return Step(*self._observe(), reward, reward.unsqueeze(1), terminated, truncated)

    def _step_with_autoreset(self, actions: Tensor) -> Step:
        autoreset = self._needs_reset
        self._age += ~autoreset
        reward, terminated, truncated = self._advance(actions)
        reward, terminated, truncated = reward * ~autoreset, terminated & ~autoreset, truncated & ~autoreset
        self._episode += autoreset
        self._age[autoreset] = 0
        self._start(autoreset)
        self._needs_reset = terminated | truncated
        observed, rows = self._observe(), torch.nonzero(self._needs_reset).squeeze(1)
        self._ended = FinalObs(rows, observed.obs[rows], observed.mask[rows])
        return Step(*observed, reward, reward.unsqueeze(1), terminated, truncated, autoreset)

    def final_obs(self) -> FinalObs:
        return self._ended

    def state(self) -> Mapping[str, Any]:
        return {
            name: getattr(self, name).clone() for name in ("_draws", "_episode", "_position", "_age", "_needs_reset")
        }

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        for name, value in state.items():
            setattr(self, name, value.clone())
        return self._observe()

    def close(self) -> None:
        pass

    def _start(self, rows: Tensor) -> None:
        raise NotImplementedError

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def _observe(self) -> MaskedObs:
        raise NotImplementedError


class Chain(ToyEnv):
    """Positions in a line; the last one gives reward 1 and terminates, `limit` steps truncate."""

    layout = ObservationLayout.of(("place", (8,), 0.0, 1.0))
    actions = Discrete(("back", "on"))
    limit = 20

    def _start(self, rows: Tensor) -> None:
        self._position = torch.where(rows, (self.draw * 4).long(), self._position)

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._position = (self._position + 2 * actions - 1).clamp_(min=0)
        goal = self._position == 7
        return goal.float(), goal, (self._age >= self.limit) & ~goal

    def _observe(self) -> MaskedObs:
        obs = torch.nn.functional.one_hot(self._position, 8).float()
        return MaskedObs(obs, torch.stack((self._position > 0, torch.ones_like(self._position, dtype=torch.bool)), 1))


class AutoresetChain(Chain):
    """The chain with autoreset steps."""

    autoreset_steps = True


class Corridor(ToyEnv):
    """A cue is shown at the first step only; at the end of the corridor the same side must be chosen.

    The right choice gives the reward of its side; the wrong one gives −1. Before the end the only valid action is to
    walk. A policy without memory is right half of the time. With equal rewards the value of walking is independent of
    the cue.
    """

    layout = ObservationLayout.of(("cue", (2,), 0.0, 1.0), ("way", (2,), 0.0, 1.0))
    actions = Discrete(("left", "right", "walk"))

    def __init__(self, rows: int, length: int = 10, rewards: tuple[float, float] = (1.0, 1.0)) -> None:
        self.length, self.rewards = length, torch.tensor(rewards)
        super().__init__(rows)

    def _start(self, rows: Tensor) -> None:
        pass

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over = self._age == self.length
        side = (self.draw < 0.5).long()
        mean_reward = torch.where(actions == side, self.rewards[side], -1.0)
        return torch.where(over, mean_reward, 0.0), over, torch.zeros_like(over)

    def _observe(self) -> MaskedObs:
        side = (self.draw < 0.5).long()
        cue = torch.nn.functional.one_hot(side, 2) * (self._age == 0).unsqueeze(1)
        last = self._age >= self.length - 1
        way = torch.stack((self._age / self.length, last.float()), 1)
        return MaskedObs(torch.cat((cue, way), 1).float(), torch.stack((last, last, ~last), 1))


class Target(ToyEnv):
    """One step per episode: the reward is minus the squared distance of the clipped action to the observed target."""

    layout = ObservationLayout.of(("number", (2,), -1.0, 1.0))
    actions = Continuous(("x", "y"), (-2.0, -2.0), (2.0, 2.0))

    def _start(self, rows: Tensor) -> None:
        pass

    def _target(self) -> Tensor:
        """The best action [N, 2]."""
        return torch.stack((2 * self.draw - 1, 1 - 2 * self.draw.square()), 1)

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = torch.tensor(self.actions.low), torch.tensor(self.actions.high)
        off = (actions.clamp(low, high) - self._target()).square().sum(1)
        over = torch.ones(self.rows, dtype=torch.bool)
        return -off, over, ~over

    def _observe(self) -> MaskedObs:
        return MaskedObs(self._target(), torch.ones(self.rows, 0, dtype=torch.bool))


class Bits(ToyEnv):
    """One step per episode: the three observed bits must be matched; reward 1 for each match, −1 for each miss."""

    layout = ObservationLayout.of(("bits", (3,), 0.0, 1.0))
    actions = Binary(("a", "b", "c"))

    def _start(self, rows: Tensor) -> None:
        self._position = torch.where(rows, (self.draw * 8).long(), self._position)

    def _bits(self) -> Tensor:
        return self._position.unsqueeze(1) >> torch.arange(3) & 1

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        right = (actions == self._bits()).sum(1)
        over = torch.ones(self.rows, dtype=torch.bool)
        return (2 * right - 3).float(), over, ~over

    def _observe(self) -> MaskedObs:
        return MaskedObs(self._bits().float(), torch.ones(self.rows, 0, dtype=torch.bool))
