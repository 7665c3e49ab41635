"""What agents share that learn a policy and act by drawing from it, whatever kind of actions there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from townlet.agents.actor_critic import ActorCritic, make_actor_critic
from townlet.agents.agent import Materials
from townlet.agents.distributions import Distribution, family
from townlet.agents.learner import Descent, Learner
from townlet.agents.policy import Policy
from townlet.nets.heads import Spread


class ActorDescent(Descent, Protocol):
    """Settings of agents with a policy."""

    @property
    def shared(self) -> bool:
        """One body for policy and value."""

    @property
    def log_std(self) -> float:
        """Logarithm of the first deviation of numbers."""


class Actor(Learner):
    """A policy with a value beside it. How it learns is elsewhere."""

    network: ActorCritic
    behind: Tensor
    _choice: Distribution  # of the last act
    _mask: Tensor  # [N, K] of the last act

    def __init__(self, settings: ActorDescent, given: Materials) -> None:
        env, self._streams = given.env, given.streams
        self.family = family(env.actions)
        self.outputs_are = self.family.outputs_are
        network = make_actor_critic(
            given.network,
            env.layout,
            env.actions.n,
            shared=settings.shared,
            generator=self._streams.torch("network"),
            device=env.device,
            log_std=settings.log_std if self.family.kind == "numbers" else None,
        )
        super().__init__(settings, network, given)
        self.generator = self._streams.torch("choice", env.device)

    def _draw(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Actions by the network's outputs [N, O] and mask [N, K]: [N] int64, switches [N, A] or numbers [N, A]."""
        self._choice = self.family.of(outputs, mask)
        self.behind = self._choice.behind
        return self._choice.sample(self.generator, self.crew)

    @torch.inference_mode()
    def outputs(self, behind: Sequence[Tensor], rows: int) -> Tensor:
        """The probabilities of the first rows at some acts, or the means of numbers [T, rows, A]."""
        return self.family.shown(behind, rows)

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        """Normalised entropy [N] of the policy at the last act."""
        return self._choice.openness(self._mask)

    @torch.no_grad()
    def _measure(self, mask: Tensor) -> Tensor:
        """What its entropy is told beside, a scalar: the mean one of blind choices; of numbers the mean deviation."""
        if isinstance(self.network.actor.head, Spread):
            return self.network.actor.head.log_std.exp().mean()
        if self.family.kind == "switches":
            return torch.tensor(math.prod(self.family.shape) * math.log(2), device=mask.device)
        return mask.sum(-1, dtype=torch.float32).log_().mean()

    def _openness(self, entropy: float, measure: float) -> dict[str, float]:
        """How undecided the policy is, for the log. The entropy of numbers has no zero: their deviation says more."""
        if self.family.kind == "numbers":
            return {"deviation": measure}
        return {"entropy": entropy, "normalized_entropy": entropy / measure if measure else 0.0}

    def policy(self) -> Policy:
        """The policy; it shares the network. Unless greedy, it draws from a stream of its own, from its start."""
        return Policy(self.network.actor, self.family.kind, self._streams.torch("policy", str(self.intrinsic.device)))
