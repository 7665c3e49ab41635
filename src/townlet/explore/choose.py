"""Ways to choose an action from values [N, K]: only valid ones, all rows at once, from one generator."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from townlet.config.schedule import value_at
from townlet.contract.counters import Counters
from townlet.contract.crew import SOLO, Crew
from townlet.contract.episodes import Episodes
from townlet.contract.restore import copy_tensor, restore_generator
from townlet.contract.state import State
from townlet.explore.spec import BoltzmannSpec, EpsilonSpec

COLDEST = 1e-6  # a temperature of 0 is the limit, not a division


class Chooser(Protocol):
    """A behaviour policy on top of values. `epsilon` [N] is the share of blind choices, zeros where there is none."""

    epsilon: Tensor

    def choose(self, values: Tensor, mask: Tensor) -> Tensor:
        """Actions [N] int64 from values [N, K], never one that mask [N, K] forbids."""

    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """How probable each action [N, K] is to be chosen, at this moment."""

    def metrics(self) -> dict[str, float]:
        """How boldly it explores at this moment, for the log."""

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Episodes that ended."""

    def state(self) -> State:
        """Everything that decides what is chosen next."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""


def normalized_entropy(probabilities: Tensor, mask: Tensor) -> Tensor:
    """Entropy [N] of probabilities [N, K] over valid actions, as a share of the uniform one's: in [0, 1].

    0 where only one action is valid.
    """
    entropy = torch.special.entr(probabilities).masked_fill(~mask, 0.0).sum(1)
    return torch.clamp(entropy / mask.sum(1).clamp(min=2).log(), 0.0, 1.0)


class Epsilon:
    """ε-greedy. Each row's ε falls with its own episodes, or all by one schedule. Of equal values the first is best."""

    def __init__(
        self, spec: EpsilonSpec, rows: int, counters: Counters, generator: torch.Generator, device: str = "cpu",
        crew: Crew = SOLO,
    ) -> None:  # fmt: skip
        self.spec, self._counters, self._generator, self._crew = spec, counters, generator, crew
        self.epsilon = torch.full((rows,), spec.start, device=device)
        self._follow_schedule()

    def _follow_schedule(self) -> None:
        if self.spec.schedule is not None:
            self.epsilon.fill_(value_at(self.spec.schedule, self._counters))

    def choose(self, values: Tensor, mask: Tensor) -> Tensor:
        """Actions [N] int64: per row the best valid one, or with probability ε any valid one."""
        self._follow_schedule()
        rows, actions = values.shape
        # The first column decides whether to look; the largest of the others is a fair draw.
        drawn = torch.rand(self._crew.all((rows, actions + 1)), generator=self._generator, device=values.device)
        chance = self._crew.mine(drawn)
        blind = chance[:, :1] < self.epsilon.unsqueeze(1)
        return torch.where(blind, chance[:, 1:], values).masked_fill_(~mask, -torch.inf).argmax(1)

    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """[N, K]: ε spread over the valid actions, the rest on the best one."""
        self._follow_schedule()
        epsilon = self.epsilon.unsqueeze(1)
        shares = mask * (epsilon / mask.sum(1, keepdim=True))
        best = values.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
        return shares.scatter_add_(1, best, 1 - epsilon)

    def metrics(self) -> dict[str, float]:
        """The mean ε of all rows."""
        return {"epsilon": float(self.epsilon.mean())}

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Lower ε in the rows whose episode ended."""
        if self.spec.schedule is None:
            rows = episodes.rows.to(self.epsilon.device)
            self.epsilon[rows] = (self.epsilon[rows] * self.spec.decay).clamp_(min=self.spec.end)

    def state(self) -> State:
        """ε of each row, and the generator."""
        return {"epsilon": self.epsilon, "generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        copy_tensor(self.epsilon, state["epsilon"], "explore.epsilon")
        restore_generator(self._generator, state["generator"], "explore.choose")


class Boltzmann:
    """Draws by softmax(values / temperature)."""

    def __init__(
        self, spec: BoltzmannSpec, rows: int, counters: Counters, generator: torch.Generator, device: str = "cpu",
        crew: Crew = SOLO,
    ) -> None:  # fmt: skip
        self.spec, self._counters, self._generator, self._crew = spec, counters, generator, crew
        self.epsilon = torch.zeros(rows, device=device)

    @property
    def temperature(self) -> float:
        """The temperature at this moment."""
        return max(COLDEST, value_at(self.spec.temperature, self._counters))

    def _logits(self, values: Tensor, mask: Tensor) -> Tensor:
        return (values / self.temperature).masked_fill_(~mask, -torch.inf)

    def choose(self, values: Tensor, mask: Tensor) -> Tensor:
        """Actions [N] int64: the largest of the logits with Gumbel noise is a draw from their softmax."""
        waits = values.new_empty(self._crew.all(values.shape)).exponential_(generator=self._generator)
        return self._logits(values, mask).sub_(self._crew.mine(waits).log()).argmax(1)

    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """[N, K]: the softmax over valid actions."""
        return self._logits(values, mask).softmax(1)

    def metrics(self) -> dict[str, float]:
        """The temperature."""
        return {"temperature": self.temperature}

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Nothing depends on episodes."""

    def state(self) -> State:
        """The generator; the temperature follows from the counters."""
        return {"generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        restore_generator(self._generator, state["generator"], "explore.choose")
