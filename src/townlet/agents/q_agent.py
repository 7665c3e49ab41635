"""What `dqn` and `drqn` share: acting by values, storing what came of it, and the round of learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Final, Protocol

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.agent import Materials, unasked
from townlet.agents.choosing import Choosing
from townlet.agents.learner import Learner
from townlet.agents.policy import Policy
from townlet.agents.q_network import QNetwork, make_q_network
from townlet.agents.settings import AgentSettings, SettingProblem
from townlet.agents.values import Loss, require_discrete
from townlet.config.schedule import Scheduled
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step
from townlet.explore.make import make_chooser
from townlet.explore.spec import not_negative
from townlet.memory.storage import Transition
from townlet.nets.optimizers import Kind, as_vector, restore_weights, weights

FIGURES: Final = ("loss", "td_error", "mean_q", "grad_norm")
LOOK: Final = 100  # updates between two looks for dead units: each costs as much as a part of an update


class QSettings(AgentSettings):
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

    _from_0_on = field_validator("lr")(not_negative)

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """A warm-up longer than the replay buffer."""
        if self.warmup > self.replay:
            what = f"agent.warmup waits for {self.warmup} steps and agent.replay keeps only {self.replay}"
            fix = f"learning would never begin: lower agent.warmup to {self.replay} or less, or raise agent.replay"
            yield SettingProblem("warmup", what, fix)


class Memory(Stateful, Protocol):
    """A replay memory of whole vector steps."""

    def add(self, step: Transition) -> None:
        """Store one step of all rows."""

    def cut(self) -> None:
        """The episodes under way were broken off."""


class QAgent(Choosing, Learner, ABC):
    """Acts in N rows by the values of a network, and learns them from replay."""

    on_policy = False
    network: QNetwork
    memory: Memory
    settings: QSettings

    def __init__(self, settings: QSettings, given: Materials) -> None:
        env, streams = given.env, given.streams
        require_discrete(self.name, env)
        rows, device, actions = env.rows, env.device, env.actions.n
        draws = streams.torch("network")
        network = make_q_network(
            given.network, env.layout, actions, dueling=settings.dueling, generator=draws, device=device
        )
        super().__init__(settings, network, given)
        self.round = settings.update_every
        self.target = deepcopy(self.network).requires_grad_(False)
        self._lagging = as_vector(self.target)
        chance = streams.torch("choice", device)
        self.chooser = make_chooser(given.explore.choose, rows, given.counters, chance, device, given.crew)
        self._obs, self._next_obs = (torch.zeros(rows, env.layout.size, device=device) for _ in range(2))
        self._mask, self._next_mask = (torch.ones(rows, actions, dtype=torch.bool, device=device) for _ in range(2))
        self._reward = torch.zeros(rows, device=device)
        self._actions = torch.zeros(rows, dtype=torch.int64, device=device)
        self.behind = torch.zeros(rows, actions, device=device)
        self._before = torch.zeros(rows, 0, device=device)  # what was remembered before the last act, to be stored
        self._observed = 0

    @abstractmethod
    def _evaluate(self, obs: Tensor) -> Tensor:
        """Values [N, K] of the live rows at obs [N, D]."""

    @abstractmethod
    def _updates(self, weight: float) -> Iterator[tuple[Tensor, Tensor]]:
        """A round of gradient steps with this weight of the intrinsic reward.

        Of each: FIGURES as a tensor, this process's share of them, and what was reached [B, D].
        """

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Exploring actions [N] int64."""
        self._obs.copy_(seen.obs)
        self._mask.copy_(seen.mask)
        self.behind = self._evaluate(self._obs)
        self._actions = self.chooser.choose(self.behind, self._mask)
        return self._actions

    @torch.no_grad()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store the step with what was really reached: rows that ended already show their next episode."""
        next_obs, next_mask = step.obs, step.mask
        if ended.rows.shape[0]:
            next_obs = self._next_obs.copy_(step.obs).index_copy_(0, ended.rows, ended.obs)
            next_mask = self._next_mask.copy_(step.mask).index_copy_(0, ended.rows, ended.mask)
        if self.bonus:
            self._see(next_obs, step.void)
        torch.mul(step.reward, self.settings.reward_scale, out=self._reward)
        before = self._obs, self._mask, self._actions, self._reward, self.intrinsic
        after = next_obs, next_mask, step.terminated, step.truncated, self._before
        self.memory.add(Transition(*before, *after, void=step.void))
        lived = self._obs.shape[0] - (0 if step.void is None else int(step.void.sum()))
        self._observed += lived * self.crew.size

    def cut(self) -> None:
        """Returns end where episodes were broken off; values of what was seen last tell the rest."""
        self.memory.cut()

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """A round of gradient steps: their mean figures, or None while warming up."""
        if self._observed < self.settings.warmup:
            return None
        self._follow_lr()
        weight, rounds, novelty, before = self.weight.value, [], {}, self.counters.updates
        for figures, reached in self._updates(weight):
            rounds.append(figures)
            if self.bonus:
                novelty = self.bonus.learn(reached)
        means = self.crew.add_up(torch.stack(rounds).mean(0)).tolist()  # the only wait for the device
        look = len(reached) and self.counters.updates // LOOK > before // LOOK
        dead = self._dead(reached) if look else {}
        return dict(zip(FIGURES, means, strict=True)) | dead | novelty | self.figures()

    def _descend(self) -> Tensor:
        """One step down what was added to the optimizer; the target follows. Returns the gradient's norm."""
        norm = self.optimizer.step(self.settings.max_grad_norm)
        self.counters.updates += 1
        if self.settings.polyak is not None:
            self._lagging.lerp_(self.optimizer.vector, self.settings.polyak)
        elif self.counters.updates % self.settings.target_every == 0:
            self._lagging.copy_(self.optimizer.vector)
        return norm

    def policy(self) -> Policy:
        """The greedy policy; it shares the network."""
        return Policy(self.network, "values")

    def _parts(self) -> dict[str, Stateful]:
        return {"memory": self.memory, **super()._parts()}

    def state(self) -> State:
        """Networks, optimizer, memory, exploration and counts."""
        return super().state() | {"target": weights(self.target), "counts": {"observed": self._observed}}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        restore_weights(self.target, state["target"], "target network")
        self._observed = int(state["counts"]["observed"])
