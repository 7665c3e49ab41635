"""`ValueAgent`: acts on action values with an exploring behavior policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from townlet.agents.agent import AgentContext
from townlet.agents.learning_agent import LearningAgent
from townlet.agents.policy import Policy
from townlet.errors import TownletError
from townlet.explore.action_selection import make_action_selector, normalized_entropy
from townlet.interfaces.state import Stateful
from townlet.interfaces.vec_env import Continuous, Discrete, Episodes, VecEnv


class ValueAgent(LearningAgent):
    """Chooses discrete actions by their values, ε-greedily or by softmax. Subclasses implement learning."""

    output_label: Literal["values"] = "values"
    action_outputs: Tensor  # [N, K], the action values at the last step
    _mask: Tensor  # [N, K] of the last step

    def __init__(self, settings: Any, network: nn.Module, context: AgentContext) -> None:
        super().__init__(settings, network, context)
        env, generator = context.env, context.streams.torch("choice", context.env.device)
        spec = context.explore.action_selection
        self.selector = make_action_selector(spec, env.rows, context.counters, generator, env.device, context.group)
        self.action_outputs = torch.zeros(env.rows, env.actions.n, device=env.device)

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Anneal exploration and the weight of the intrinsic reward."""
        self.selector.on_episodes_end(episodes)
        super().on_episodes_end(episodes)

    def describe_outputs(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        """The action values [T, rows, K] of the first rows at T steps."""
        return torch.stack([values[:rows] for values in action_outputs])

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        """Normalized entropy [N] of the behavior policy at the last step."""
        return normalized_entropy(self.selector.probabilities(self.action_outputs, self._mask), self._mask)

    def metrics(self) -> dict[str, float]:
        """Current values of everything scheduled or annealed."""
        return self.selector.metrics() | super().metrics()

    def policy(self) -> Policy:
        """The greedy policy; it shares the weights."""
        return Policy(self.network, "values")

    def _parts(self) -> dict[str, Stateful]:
        return {"action_selection": self.selector, **super()._parts()}


def require_discrete(name: str, env: VecEnv) -> None:
    """Refuse environments whose actions have no values to compare."""
    if not isinstance(env.actions, Discrete):
        kind = "continuous" if isinstance(env.actions, Continuous) else "binary"
        raise TownletError(f"{name} needs discrete actions, but this environment's are {kind}", "use ppo")
