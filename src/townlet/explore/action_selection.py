"""Behavior policies based on action values: ε-greedy and Boltzmann (Sutton & Barto 2018, §2.2 and §2.8)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from townlet.config.schedule import value_at
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.explore.spec import BoltzmannSpec, EpsilonSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State, copy_tensor, restore_generator
from townlet.interfaces.vec_env import Episodes

MIN_TEMPERATURE = 1e-6  # avoids a division by 0; effectively greedy


class ActionSelector(ABC):
    """A behavior policy that chooses actions by their values."""

    def __init__(self, counters: Counters, generator: torch.Generator, group: ProcessGroup) -> None:
        self._counters, self._generator, self._group = counters, generator, group

    @abstractmethod
    def select(self, values: Tensor, mask: Tensor) -> Tensor:
        """Valid actions [N] int64, given values [N, K] and mask [N, K]."""

    @abstractmethod
    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """Current probability of each action [N, K]."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Current values of everything scheduled or annealed."""

    def on_episodes_end(self, episodes: Episodes) -> None:  # noqa: B027
        """Anneal exploration in the rows whose episodes ended; by default nothing is annealed."""

    def state(self) -> State:
        return {"generator": self._generator.get_state()}

    def restore(self, state: State) -> None:
        restore_generator(self._generator, state["generator"], "explore.action_selection")


def normalized_entropy(probabilities: Tensor, mask: Tensor) -> Tensor:
    """Entropy [N] of probabilities [N, K] over valid actions, divided by that of the uniform policy: in [0, 1].

    0 where only one action is valid.
    """
    entropy = torch.special.entr(probabilities).masked_fill(~mask, 0.0).sum(1)
    return torch.clamp(entropy / mask.sum(1).clamp(min=2).log(), 0.0, 1.0)


class EpsilonGreedy(ActionSelector):
    """ε-greedy action selection. ε decays in each row with its own episodes, or follows one schedule for all rows.

    Ties are resolved in favor of the first action.
    """

    def __init__(
        self, spec: EpsilonSpec, epsilon: Tensor, counters: Counters, generator: torch.Generator, group: ProcessGroup
    ) -> None:
        super().__init__(counters, generator, group)
        self.spec, self.epsilon = spec, epsilon  # [N], probability of a uniform choice
        self._apply_schedule()

    def _apply_schedule(self) -> None:
        if self.spec.schedule is not None:
            self.epsilon.fill_(value_at(self.spec.schedule, self._counters))

    def select(self, values: Tensor, mask: Tensor) -> Tensor:
        """Actions [N] int64: the best valid action of each row, or with probability ε a uniformly random one."""
        self._apply_schedule()
        rows, actions = values.shape
        # Column 0 decides whether to explore; the argmax of the other columns is a uniformly random valid action.
        noise = torch.rand(
            self._group.global_shape((rows, actions + 1)), generator=self._generator, device=values.device
        )
        noise = self._group.local_rows(noise)
        explore = noise[:, :1] < self.epsilon.unsqueeze(1)
        return torch.where(explore, noise[:, 1:], values).masked_fill_(~mask, -torch.inf).argmax(1)

    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """[N, K]: ε spread uniformly over the valid actions, and 1 − ε on the best one."""
        self._apply_schedule()
        epsilon = self.epsilon.unsqueeze(1)
        uniform = mask * (epsilon / mask.sum(1, keepdim=True))
        best = values.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
        return uniform.scatter_add_(1, best, 1 - epsilon)

    def metrics(self) -> dict[str, float]:
        return {"epsilon": float(self.epsilon.mean())}

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Decay ε in the rows whose episodes ended."""
        if self.spec.schedule is None:
            rows = episodes.rows.to(self.epsilon.device)
            self.epsilon[rows] = (self.epsilon[rows] * self.spec.decay).clamp_(min=self.spec.end)

    def state(self) -> State:
        return {"epsilon": self.epsilon} | super().state()

    def restore(self, state: State) -> None:
        super().restore(state)
        copy_tensor(self.epsilon, state["epsilon"], "explore.action_selection: epsilon")


class Boltzmann(ActionSelector):
    """Boltzmann exploration: samples actions from softmax(values / temperature)."""

    def __init__(
        self, spec: BoltzmannSpec, counters: Counters, generator: torch.Generator, group: ProcessGroup
    ) -> None:
        super().__init__(counters, generator, group)
        self.spec = spec

    @property
    def temperature(self) -> float:
        return max(MIN_TEMPERATURE, value_at(self.spec.temperature, self._counters))

    def _logits(self, values: Tensor, mask: Tensor) -> Tensor:
        return (values / self.temperature).masked_fill_(~mask, -torch.inf)

    def select(self, values: Tensor, mask: Tensor) -> Tensor:
        """Actions [N] int64, by the Gumbel-max trick: −log of exponential noise is Gumbel noise."""
        noise = values.new_empty(self._group.global_shape(values.shape)).exponential_(generator=self._generator)
        return self._logits(values, mask).sub_(self._group.local_rows(noise).log()).argmax(1)

    def probabilities(self, values: Tensor, mask: Tensor) -> Tensor:
        """[N, K]: the softmax over valid actions."""
        return self._logits(values, mask).softmax(1)

    def metrics(self) -> dict[str, float]:
        return {"temperature": self.temperature}


def make_action_selector(
    spec: EpsilonSpec | BoltzmannSpec,
    rows: int,
    counters: Counters,
    generator: torch.Generator,
    device: str = "cpu",
    group: ProcessGroup = SINGLE_PROCESS,
) -> ActionSelector:
    """An action selector for `rows` rows; the generator must be on `device` and is saved with the selector's state."""
    if isinstance(spec, EpsilonSpec):
        return EpsilonGreedy(spec, torch.full((rows,), spec.start, device=device), counters, generator, group)
    return Boltzmann(spec, counters, generator, group)
