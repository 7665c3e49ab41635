"""REINFORCE (Williams 1992): what was done in whole episodes becomes more likely by what came of it.

With a baseline the gradient stays where it points and shakes less (Sutton & Barto, §13.4). One gradient step is taken
on each batch of episodes, since the theorem holds for the policy that lived them. An episode that was under way at the
last step was begun by the policy before it; it is learned from all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from townlet.agents.actor import Actor
from townlet.agents.actor_critic import policy_network
from townlet.agents.agent import Materials, unasked
from townlet.agents.learner import at_once
from townlet.agents.losses import explained_variance
from townlet.agents.registry import ANY_ACTIONS, GAMMA_CHOICES, AgentEntry, register
from townlet.agents.settings import AdvantageEstimate, AgentSettings
from townlet.config.schedule import Schedule, Scheduled, value_at
from townlet.config.search import Searched
from townlet.contract.restore import copy_tensor, restore_generator
from townlet.contract.state import State, Stateful
from townlet.contract.vec_env import Ended, Seen, Step
from townlet.errors import TownletError
from townlet.explore.spec import not_negative
from townlet.memory.lives import Lives
from townlet.nets.optimizers import Kind

TINY: Final = 1e-8
FIGURES: Final = ("policy_loss", "value_loss", "entropy")
AIMS: Final = {"entropy": "entropy_weight", "value": "value_weight"}  # what may be scheduled, and its figure


class ReinforceSettings(AgentSettings):
    """Settings of `reinforce`."""

    name: Literal["reinforce"] = "reinforce"
    lr: Scheduled = Field(1e-3, description="Learning rate. Raised, it learns faster until the policy breaks.")
    gamma: float = Field(0.99, ge=0, le=1, description="Discount. Raised, it looks further ahead and learns slower.")
    episodes: int = Field(
        8, ge=1, description="Ended episodes, of all rows together, before it learns. Raised, rarer and steadier steps."
    )
    returns: Literal["to_go", "episode"] = Field(
        "to_go",
        description="What an action is judged by: the rewards after it, or all of its episode, with more noise.",
    )
    baseline: Literal["none", "mean", "value"] = Field(
        "value",
        description="What returns are compared with: nothing, their moving average, or a learned value. Each shakes "
        "less than the one before.",
    )
    memory: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="Share of the moving average that lasts from update to update. Raised, it follows slower.",
    )
    normalize: bool = Field(
        True, description="Bring what actions are judged by to mean 0 and deviation 1. Off, lr must suit the rewards."
    )
    entropy: Scheduled = Field(0.0, description="Bonus for undecided policies. Raised, it explores more and longer.")
    value: Scheduled = Field(
        0.5, description="Weight of the value's loss. Raised, a shared body serves values more than the policy."
    )
    max_grad_norm: float | None = Field(
        0.5,
        gt=0,
        description="Longer gradients are scaled to this. Lowered, steadier and slower; null leaves them.",
    )
    log_std: float = Field(
        0.0,
        ge=-10,
        le=10,
        description="Logarithm of the first deviation of actions that are numbers. Raised, it tries more at first.",
    )
    shared: bool = Field(
        False,
        description="One body for policy and value, at half the cost. On, errors of large values drown the policy.",
    )
    optimizer: Kind = Field("adam", description="How gradients become steps. sgd wants a much higher lr.")
    reward_scale: float = Field(
        1.0, gt=0, description="Factor on the reward inside the agent. Lowered, values and their gradients shrink."
    )

    _from_0_on = field_validator("lr", *AIMS)(not_negative)

    def advantage(self) -> AdvantageEstimate:
        """The return less the learned value; without one, nothing."""
        if self.baseline != "value":
            return AdvantageEstimate(self.gamma, None, self.reward_scale, "Nothing: this agent has learned no values.")
        return self._estimate(1.0, "The discounted rewards from here on, less the value.")


class Reinforce(Actor):
    """Acts in N rows by drawing from its policy; learns when `episodes` of their episodes have ended."""

    name = "reinforce"
    on_policy = False  # episodes outlast a round
    round = 1
    settings: ReinforceSettings

    def __init__(self, settings: ReinforceSettings, given: Materials) -> None:
        super().__init__(settings, given)
        if self.network.hidden:
            fix = "take ppo, or leave `recurrent` out of the network"
            raise TownletError("reinforce cannot train a recurrent network", fix)
        env = given.env
        action = self.family.shape, self.family.dtype
        self.lives = Lives(env.rows, env.layout.size, env.actions.choices, action=action, device=env.device)
        self._nothing = self.network.start(env.rows)  # handed through by a network without memory
        self._mask = torch.ones(env.rows, env.actions.choices, dtype=torch.bool, device=env.device)
        self._bootstrap = torch.zeros(env.rows, device=env.device)
        self._reached = torch.zeros(env.rows if self.bonus else 0, env.layout.size, device=env.device)
        self._average = torch.zeros(2, device=env.device)  # of returns, and the weight behind it

    @torch.inference_mode()
    def act(self, seen: Seen) -> Tensor:
        """Actions, drawn from the policy: [N] int64, switches [N, A] int64, or numbers [N, A]."""
        outputs, value, _ = self.network(seen.obs, self._nothing)
        actions = self._draw(outputs, self._mask.copy_(seen.mask))
        self.lives.acted(seen.obs, seen.mask, actions, value)
        return actions

    @torch.inference_mode()
    def observe(self, step: Step, ended: Ended) -> None:
        """Store what came of it. Where time ran out and values are learned, they tell what would have followed."""
        self._bootstrap.zero_()
        cut = step.truncated.index_select(0, ended.rows).nonzero().squeeze(1)
        if self.settings.baseline == "value" and len(cut):
            _, value, _ = self.network(ended.obs.index_select(0, cut), self._nothing[: len(cut)])
            self._bootstrap.index_copy_(0, ended.rows.index_select(0, cut), value)
        if self.bonus:
            self._see(self._reached.copy_(step.obs).index_copy_(0, ended.rows, ended.obs), step.void)
        reward = step.reward * self.settings.reward_scale
        self.lives.observed(reward, self.intrinsic, step.terminated | step.truncated, self._bootstrap, step.void)

    def cut(self) -> None:
        """Of episodes without an end nothing is learned."""
        self.lives.cut()

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """One gradient step on the ended episodes, when there are enough: its figures."""
        s = self.settings
        if self.lives.episodes < s.episodes:
            return None
        self._follow_lr()
        places = self.lives.places()
        returns = self.lives.returns(s.gamma, self.weight.value, s.returns == "episode").view(-1).take(places)
        lived = self.lives.gather(places)
        gain = returns - self._baseline(returns, lived.value)
        if s.normalize:
            std, mean = torch.std_mean(gain, correction=0)
            gain = (gain - mean) / (std + TINY)
        self.optimizer.forget()
        sums = torch.zeros(len(FIGURES), device=places.device)
        for part in torch.split(torch.arange(len(places), device=places.device), at_once(str(places.device))):
            ask()
            sums += self._climb(part, places, returns, gain) * (len(part) / len(places))
        norm = self.optimizer.step(s.max_grad_norm)
        self.counters.updates += 1
        novelty = self.bonus.learn(lived.obs) if self.bonus else {}
        told = torch.stack((*sums, norm, explained_variance(returns - lived.value, returns), self._measure(lived.mask)))
        self.lives.forget()
        return self._summary(told.tolist()) | self._dead(lived.obs) | novelty | self.figures()

    @torch.no_grad()
    def _baseline(self, returns: Tensor, value: Tensor) -> Tensor:
        """What the returns [S] are compared with."""
        if self.settings.baseline == "value":
            return value
        if self.settings.baseline == "none":
            return torch.zeros_like(returns)
        keep = self.settings.memory
        self._average.mul_(keep).add_(torch.stack((returns.mean(), returns.new_ones(()))), alpha=1 - keep)
        return self._average[0] / self._average[1]

    def _climb(self, part: Tensor, places: Tensor, returns: Tensor, gain: Tensor) -> Tensor:
        """The gradient of a part [B] of the steps is added to that of the others: FIGURES."""
        s, lived = self.settings, self.lives.gather(places.index_select(0, part))
        outputs, value, _ = self.network(lived.obs, self.network.start(len(part)))
        choice = self.family.of(outputs, lived.mask)
        # −∇ E[G log π(a | s)], the policy gradient theorem (Sutton & Barto, eq. 13.8).
        policy_loss = -(choice.log_prob(lived.actions) * gain.index_select(0, part)).mean()
        value_loss = (value - returns.index_select(0, part)).square().mean()
        undecided = choice.entropy().mean()
        loss = policy_loss - value_at(s.entropy, self.counters) * undecided
        if s.baseline == "value":
            loss = loss + value_at(s.value, self.counters) * value_loss
        self.optimizer.add(loss * (len(part) / len(places)))
        return torch.stack((policy_loss, value_loss, undecided)).detach()

    def _summary(self, told: list[float]) -> dict[str, float]:
        policy_loss, value_loss, entropy, norm, explained, measure = told
        s = self.settings
        loss = policy_loss - value_at(s.entropy, self.counters) * entropy
        figures = {"policy_loss": policy_loss, "grad_norm": norm, **self._openness(entropy, measure)}
        if s.baseline == "value":
            loss += value_at(s.value, self.counters) * value_loss
            figures |= {"value_loss": value_loss, "explained_variance": explained}
        return {"loss": loss} | figures

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment."""
        ways = {figure: getattr(self.settings, key) for key, figure in AIMS.items()}
        scheduled = {name: way.at(self.counters) for name, way in ways.items() if isinstance(way, Schedule)}
        return scheduled | super().figures()

    def _parts(self) -> dict[str, Stateful]:
        return {"lives": self.lives, **super()._parts()}

    def state(self) -> State:
        """Network, optimizer, the episodes so far, exploration and the random stream."""
        return super().state() | {"average": self._average, "generator": self.generator.get_state()}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        super().restore(state)
        copy_tensor(self._average, state["average"], "reinforce: average")
        restore_generator(self.generator, state["generator"], "reinforce")


register(
    AgentEntry(
        settings=ReinforceSettings,
        agent=Reinforce,
        network=policy_network,
        kind="policy",
        on_policy=True,
        actions=ANY_ACTIONS,
        rows=16,
        sweep={"lr": Searched(low=1e-4, high=1e-1), "gamma": GAMMA_CHOICES, "entropy": Searched(low=1e-5, high=0.1)},
        smoke={"episodes": 1},
        tunable=("lr", "entropy", "value"),
    )
)
