"""What `dqn` and `drqn` share: acting by values, storing what came of it, and the round of learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Final, Protocol

import torch
from pydantic import Field, model_validator
from torch import Tensor

from townlet.agents.optimizers import (
    Kind,
    clip,
    forget_gradients,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    restore_weights,
    set_lr,
    weights,
)
from townlet.agents.policy import Policy
from townlet.agents.q_network import make_q_network
from townlet.agents.values import Loss, follow
from townlet.config.model import Model
from townlet.config.schedule import Scheduled, value_at
from townlet.contract.counters import Counters
from townlet.contract.episodes import Episodes
from townlet.contract.restore import SAME
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step, VecEnv
from townlet.errors import TownletError
from townlet.explore.make import make_bonus, make_chooser, make_weight, normalized_entropy
from townlet.explore.spec import ExploreSpec, ends
from townlet.nets.spec import NetworkSpec
from townlet.rng import Streams

FIGURES: Final = ("loss", "td_error", "mean_q", "grad_norm")


class QSettings(Model):
    """Settings of every agent that learns action values."""

    lr: Scheduled = Field(
        description="learning rate: raised, it learns faster until values diverge; lowered, slower and steadier"
    )
    gamma: float = Field(0.99, ge=0, le=1, description="discount: raised, it looks further ahead and learns slower")
    replay: int = Field(
        10_000, ge=1, description="transitions kept: raised, older experience is reused and memory grows"
    )
    update_every: int = Field(
        4, ge=1, description="vector steps between rounds of learning: raised, it learns less from each step, faster"
    )
    updates: int = Field(
        1, ge=1, description="gradient steps in a round: raised, it learns more from each step, slower"
    )
    warmup: int = Field(
        1000, ge=1, description="transitions seen before it learns: raised, the first updates are more varied"
    )
    target_every: int = Field(
        100,
        ge=1,
        description="updates between copies into the target network: raised, steadier and slower; 1 is without one",
    )
    polyak: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share by which the target follows at every update, instead of copies: raised, less steady",
    )
    double: bool = Field(
        True,
        description="the online network picks the next action, the target values it; off, values are overestimated",
    )
    dueling: bool = Field(
        True, description="one head for the state's value and one for advantages; off, one head for all"
    )
    loss: Loss = Field("mse", description="mse follows large errors fully, huber limits the pull of each to 1")
    max_grad_norm: float | None = Field(
        10.0,
        gt=0,
        description="gradients longer than this are scaled down: lowered, steadier and slower; null leaves them",
    )
    optimizer: Kind = Field("adam", description="how gradients become steps; sgd wants a much higher lr")
    reward_scale: float = Field(
        1.0,
        gt=0,
        description="factor on the environment's reward inside the agent: lowered, values and gradients shrink",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> QSettings:
        if min(ends(self.lr)) < 0:
            raise ValueError("`lr` cannot be below 0")
        return self


class Memory(Stateful, Protocol):
    """A replay memory of whole vector steps."""

    def __len__(self) -> int:
        """Transitions stored."""


class QAgent(ABC):
    """Acts in N rows by the values of a network, and learns them from replay."""

    name: str
    memory: Memory

    def __init__(
        self,
        settings: QSettings,
        network: NetworkSpec,
        explore: ExploreSpec,
        env: VecEnv,
        counters: Counters,
        streams: Streams,
        max_steps: int,
    ) -> None:
        self.settings, self.counters, self.round = settings, counters, settings.update_every
        rows, device, actions = env.rows, env.device, env.actions.n
        draws = streams.torch("network")
        self.network = make_q_network(
            network, env.layout, actions, dueling=settings.dueling, generator=draws, device=device
        )
        self.target = deepcopy(self.network).requires_grad_(False)
        self._weights: list[Tensor] = list(self.network.parameters())
        self._lagging: list[Tensor] = list(self.target.parameters())
        self.optimizer = make_optimizer(settings.optimizer, self.network, value_at(settings.lr, counters))
        self.chooser = make_chooser(explore.choose, rows, counters, streams.torch("choice", device), device)
        self.bonus = make_bonus(explore.bonus, env.layout, streams.child("bonus"), device)
        self.weight = make_weight(explore.weight, counters, max_steps)
        self.intrinsic = torch.zeros(rows, device=device)
        self._obs, self._next_obs = (torch.zeros(rows, env.layout.size, device=device) for _ in range(2))
        self._mask, self._next_mask = (torch.ones(rows, actions, dtype=torch.bool, device=device) for _ in range(2))
        self._reward = torch.zeros(rows, device=device)
        self._actions = torch.zeros(rows, dtype=torch.int64, device=device)
        self._values = torch.zeros(rows, actions, device=device)
        self._observed = 0

    @abstractmethod
    def _evaluate(self, obs: Tensor) -> Tensor:
        """Values [N, K] of the live rows at obs [N, D]."""

    @abstractmethod
    def _remember(self, next_obs: Tensor, next_mask: Tensor, step: Step) -> None:
        """Store the step that was just made."""

    @abstractmethod
    def _update(self, weight: float) -> tuple[Tensor, Tensor]:
        """One gradient step with this weight of the intrinsic reward: FIGURES as a tensor, what was reached [B, D]."""

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Exploring actions [N] int64."""
        self._obs.copy_(seen.obs)
        self._mask.copy_(seen.mask)
        self._values = self._evaluate(self._obs)
        self._actions = self.chooser.choose(self._values, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store the step with what was really reached: rows that ended already show their next episode."""
        next_obs, next_mask = step.obs, step.mask
        if ended.rows.shape[0]:
            next_obs = self._next_obs.copy_(step.obs).index_copy_(0, ended.rows, ended.obs)
            next_mask = self._next_mask.copy_(step.mask).index_copy_(0, ended.rows, ended.mask)
        if self.bonus:
            self.intrinsic.copy_(self.bonus.reward(next_obs))
        torch.mul(step.reward, self.settings.reward_scale, out=self._reward)
        self._remember(next_obs, next_mask, step)
        self._observed += self._obs.shape[0]

    def finished(self, episodes: Episodes) -> None:
        """Episodes that ended: exploration decays with them."""
        self.chooser.finished(episodes)
        self.weight.finished(episodes)

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        """Normalised entropy [N] of the behaviour policy at the last act."""
        return normalized_entropy(self.chooser.probabilities(self._values, self._mask), self._mask)

    def learn(self) -> dict[str, float] | None:
        """A round of gradient steps: their mean figures, or None while warming up."""
        if self._observed < self.settings.warmup:
            return None
        set_lr(self.optimizer, value_at(self.settings.lr, self.counters))
        weight, rounds, novelty = self.weight.value, [], {}
        for _ in range(self.settings.updates):
            figures, reached = self._update(weight)
            rounds.append(figures)
            if self.bonus:
                novelty = self.bonus.learn(reached)
        means = torch.stack(rounds).mean(0).tolist()  # the only wait for the device
        return dict(zip(FIGURES, means, strict=True)) | novelty | self.figures()

    def _descend(self, loss: Tensor) -> Tensor:
        """One step down the gradient of the loss; the target follows. Returns the gradient's norm."""
        forget_gradients(self._weights)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip(self._weights, self.settings.max_grad_norm)
        self.optimizer.step()
        self.counters.updates += 1
        if self.settings.polyak is not None:
            follow(self._lagging, self._weights, self.settings.polyak)
        elif self.counters.updates % self.settings.target_every == 0:
            follow(self._lagging, self._weights, 1.0)
        return norm

    def policy(self) -> Policy:
        """The greedy policy; it shares the network."""
        return Policy(self.network, "values")

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by name, live."""
        return dict(self.network.named_parameters())

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        now = {
            "epsilon": float(self.chooser.epsilon.mean()),
            "intrinsic_weight": self.weight.value,
            "lr": value_at(self.settings.lr, self.counters),
        }
        return now | ({"novelty": float(self.intrinsic.mean())} if self.bonus else {})

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {"memory": self.memory, "chooser": self.chooser, "weight": self.weight}
        return parts | ({"bonus": self.bonus} if self.bonus else {})

    def state(self) -> State:
        """Networks, optimizer, memory, exploration and counts."""
        return {
            "network": weights(self.network),
            "target": weights(self.target),
            "optimizer": optimizer_state(self.optimizer, self.network),
            "counts": {"observed": self._observed},
            **{name: part.state() for name, part in self._parts().items()},
        }

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        needed = {name for name, part in self.state().items() if not isinstance(part, dict) or part}
        if missing := sorted(needed - state.keys()):
            what = f"the saved {self.name} has no '{missing[0]}'"
            raise TownletError(what, SAME)
        restore_weights(self.network, state["network"])
        restore_weights(self.target, state["target"], "target network")
        restore_optimizer(self.optimizer, self.network, state.get("optimizer", {}))
        for name, part in self._parts().items():
            part.restore(state.get(name, {}))  # a part that keeps nothing may be left out
        self._observed = int(state["counts"]["observed"])
