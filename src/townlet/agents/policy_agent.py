"""`PolicyAgent`: an actor-critic network that acts by sampling from its policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from townlet.agents.actor_critic import ActorCritic, make_actor_critic
from townlet.agents.agent import AgentContext
from townlet.agents.distributions import Distribution, distribution_family
from townlet.agents.learning_agent import LearningAgent
from townlet.agents.policy import Policy
from townlet.interfaces.state import Stateful
from townlet.nets.heads import GaussianHead


class PolicyAgent(LearningAgent):
    """Acts by sampling from a policy over discrete, binary or continuous actions. Subclasses implement learning."""

    network: ActorCritic
    action_outputs: Tensor
    _distribution: Distribution  # of the last step
    _mask: Tensor  # [N, K] of the last step

    def __init__(self, settings: Any, context: AgentContext) -> None:
        env, self._streams = context.env, context.streams
        self.family = distribution_family(env.actions)
        self.output_label = self.family.output_label
        network = context.initialized(make_actor_critic(settings, context.network, env.layout, env.actions))
        super().__init__(settings, network, context)
        self.optimizer = self._make_optimizer()
        self.generator = self._streams.torch("choice", env.device)

    def _sample(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Sample actions [N, …] from the network's outputs [N, O] and mask [N, K]."""
        self._distribution = self.family.distribution(outputs, mask)
        self.action_outputs = self._distribution.action_outputs
        return self._distribution.sample(self.generator, self.group)

    @torch.inference_mode()
    def describe_outputs(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        """Probabilities or means [T, rows, K] of the first rows at T steps."""
        return self.family.describe(action_outputs, rows)

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        """Normalized entropy [N] of the policy at the last step."""
        return self._distribution.normalized_entropy(self._mask)

    def _entropy_metrics(self, entropy: float, mask: Tensor) -> dict[str, float]:
        """Mean entropy, also divided by that of the uniform policy over valid actions [..., K].

        Differential entropy has no natural zero, so continuous actions report their standard deviation instead.
        """
        if isinstance(self.network.actor.head, GaussianHead):
            return {"action_std": float(self.network.actor.head.log_std.detach().exp().mean())}
        if self.family.kind == "binary":
            uniform = math.prod(self.family.shape) * math.log(2)
        else:
            uniform = float(mask.sum(-1, dtype=torch.float32).log_().mean())
        return {"entropy": entropy, "normalized_entropy": entropy / uniform if uniform else 0.0}

    def policy(self) -> Policy:
        """The policy for inference; it samples from a separate random stream."""
        return Policy(self.network.actor, self.family.kind, self._streams.torch("policy", str(self.intrinsic.device)))

    def _parts(self) -> dict[str, Stateful]:
        return {"optimizer": self.optimizer, **super()._parts()}
