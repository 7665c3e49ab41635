"""Small batched environments whose best play is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete, FinalObs, MaskedObs, Step

EPISODES = 1024  # chances drawn ahead for each row; they repeat after that


class Toy:
    """Rows that stand at a place, under a chance drawn for each episode, and have an age.

    With `autoreset_steps` a row that ended shows its end, and needs a step to begin anew.
    """

    layout: ObservationLayout
    actions: Actions
    components = ("reward",)
    exact = True
    autoreset_steps = False
    device = "cpu"

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.reset(0)

    def reset(self, seed: int) -> MaskedObs:
        self._chances = torch.rand(self.rows, EPISODES, generator=torch.Generator().manual_seed(seed))
        self._episode = torch.zeros(self.rows, dtype=torch.int64)
        self._place = torch.zeros(self.rows, dtype=torch.int64)
        self._age = torch.zeros(self.rows, dtype=torch.int64)
        self._over = torch.zeros(self.rows, dtype=torch.bool)
        self._begin(~self._over)
        return self._seen()

    @property
    def chance(self) -> Tensor:
        """The chance of the present episode [N] in [0, 1)."""
        return self._chances.gather(1, (self._episode % EPISODES).unsqueeze(1)).squeeze(1)

    def step(self, actions: Tensor) -> Step:
        if self.autoreset_steps:
            return self._late_step(actions)
        self._age += 1
        reward, terminated, truncated = self._move(actions)
        over = terminated | truncated
        last, rows = self._seen(), torch.nonzero(over).squeeze(1)
        self._ended = FinalObs(rows, last.obs[rows], last.mask[rows])
        self._episode += over
        self._age[over] = 0
        self._begin(over)
        return Step(*self._seen(), reward, reward.unsqueeze(1), terminated, truncated)

    def _late_step(self, actions: Tensor) -> Step:
        autoreset = self._over
        self._age += ~autoreset
        reward, terminated, truncated = self._move(actions)
        reward, terminated, truncated = reward * ~autoreset, terminated & ~autoreset, truncated & ~autoreset
        self._episode += autoreset
        self._age[autoreset] = 0
        self._begin(autoreset)
        self._over = terminated | truncated
        seen, rows = self._seen(), torch.nonzero(self._over).squeeze(1)
        self._ended = FinalObs(rows, seen.obs[rows], seen.mask[rows])
        return Step(*seen, reward, reward.unsqueeze(1), terminated, truncated, autoreset)

    def final_obs(self) -> FinalObs:
        return self._ended

    def state(self) -> Mapping[str, Any]:
        return {name: getattr(self, name).clone() for name in ("_chances", "_episode", "_place", "_age", "_over")}

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        for name, value in state.items():
            setattr(self, name, value.clone())
        return self._seen()

    def close(self) -> None:
        pass

    def _begin(self, rows: Tensor) -> None:
        raise AssertionError("a toy says where its rows begin")

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise AssertionError("a toy says how its rows move")

    def _seen(self) -> MaskedObs:
        raise AssertionError("a toy says what its rows see")


class Chain(Toy):
    """Places in a line; the last one pays 1 and ends the episode, time runs out after `limit` steps."""

    layout = ObservationLayout.of(("place", (8,), 0.0, 1.0))
    actions = Discrete(("back", "on"))
    limit = 20

    def _begin(self, rows: Tensor) -> None:
        self._place = torch.where(rows, (self.chance * 4).long(), self._place)

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._place = (self._place + 2 * actions - 1).clamp_(min=0)
        goal = self._place == 7
        return goal.float(), goal, (self._age >= self.limit) & ~goal

    def _seen(self) -> MaskedObs:
        obs = torch.nn.functional.one_hot(self._place, 8).float()
        return MaskedObs(obs, torch.stack((self._place > 0, torch.ones_like(self._place, dtype=torch.bool)), 1))


class LateChain(Chain):
    """The chain where rows need a step to begin anew."""

    autoreset_steps = True


class Corridor(Toy):
    """A cue is shown at the first step only; at the end of the corridor the same side must be chosen.

    The right choice pays, by side; the wrong one costs 1. Before the end one can only walk. Who does not
    remember the cue is right half of the time. With equal pays the value of walking tells nothing of the cue.
    """

    layout = ObservationLayout.of(("cue", (2,), 0.0, 1.0), ("way", (2,), 0.0, 1.0))
    actions = Discrete(("left", "right", "walk"))

    def __init__(self, rows: int, length: int = 10, pays: tuple[float, float] = (1.0, 1.0)) -> None:
        self.length, self.pays = length, torch.tensor(pays)
        super().__init__(rows)

    def _begin(self, rows: Tensor) -> None:
        pass

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over = self._age == self.length
        side = (self.chance < 0.5).long()
        pay = torch.where(actions == side, self.pays[side], -1.0)
        return torch.where(over, pay, 0.0), over, torch.zeros_like(over)

    def _seen(self) -> MaskedObs:
        side = (self.chance < 0.5).long()
        cue = torch.nn.functional.one_hot(side, 2) * (self._age == 0).unsqueeze(1)
        last = self._age >= self.length - 1
        way = torch.stack((self._age / self.length, last.float()), 1)
        return MaskedObs(torch.cat((cue, way), 1).float(), torch.stack((last, last, ~last), 1))


class Target(Toy):
    """One step an episode: the number shown must be hit. It pays minus the square of the distance, after the cut."""

    layout = ObservationLayout.of(("number", (2,), -1.0, 1.0))
    actions = Continuous(("x", "y"), (-2.0, -2.0), (2.0, 2.0))

    def _begin(self, rows: Tensor) -> None:
        pass

    def _aim(self) -> Tensor:
        """Where to hit [N, 2]."""
        return torch.stack((2 * self.chance - 1, 1 - 2 * self.chance.square()), 1)

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = torch.tensor(self.actions.low), torch.tensor(self.actions.high)
        off = (actions.clamp(low, high) - self._aim()).square().sum(1)
        over = torch.ones(self.rows, dtype=torch.bool)
        return -off, over, ~over

    def _seen(self) -> MaskedObs:
        return MaskedObs(self._aim(), torch.ones(self.rows, 0, dtype=torch.bool))


class Bits(Toy):
    """One step an episode: the three bits shown must be matched; each pays 1, each miss costs 1."""

    layout = ObservationLayout.of(("bits", (3,), 0.0, 1.0))
    actions = Binary(("a", "b", "c"))

    def _begin(self, rows: Tensor) -> None:
        self._place = torch.where(rows, (self.chance * 8).long(), self._place)

    def _shown(self) -> Tensor:
        return self._place.unsqueeze(1) >> torch.arange(3) & 1

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        right = (actions == self._shown()).sum(1)
        over = torch.ones(self.rows, dtype=torch.bool)
        return (2 * right - 3).float(), over, ~over

    def _seen(self) -> MaskedObs:
        return MaskedObs(self._shown().float(), torch.ones(self.rows, 0, dtype=torch.bool))
