"""Base classes of agents: `LearningAgent`, and `ValueAgent` and `PolicyAgent`, which differ in how they act."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import torch
from torch import Tensor, nn

from townlet.agents.agent import AgentContext, GraphedAgent
from townlet.agents.distributions import Distribution, distribution_family
from townlet.agents.networks import ActorCritic, make_actor_critic
from townlet.agents.policy import Policy
from townlet.config.schedule import Schedule, value_at
from townlet.errors import TownletError
from townlet.explore.action_selection import make_action_selector, normalized_entropy
from townlet.explore.intrinsic_reward import make_intrinsic_reward
from townlet.explore.intrinsic_weight import make_intrinsic_weight
from townlet.interfaces.state import SAME_SETTINGS, State, Stateful, copy_into, restore_generator
from townlet.interfaces.vec_env import Continuous, Discrete, Episodes, Step, VecEnv
from townlet.nets.activations import dead_unit_fraction
from townlet.nets.layers import GaussianHead
from townlet.nets.optimizers import FlatOptimizer, restore_weights, weights

DEAD_UNIT_SAMPLE: Final = 256  # approximate number of observations in which dead units are counted


class LearningAgent:
    """An agent with weights, scheduled settings and an optional intrinsic reward.

    A subclass returns its buffers, optimizer and exploration from `_parts`, and further tensors from `_tensors`: their
    states become part of the agent's state.
    """

    name: str
    settings: Any
    network: nn.Module
    graphed: GraphedAgent | None = None
    generator: torch.Generator | None = None  # saved with the agent
    interruptible = False

    def __init__(self, settings: Any, network: nn.Module, context: AgentContext) -> None:
        env = context.env
        self.settings, self.network = settings, network
        self.counters, self.group = context.counters, context.group
        explore, streams = context.explore, context.streams.child("bonus")
        self.bonus = make_intrinsic_reward(explore.bonus, env.layout, streams, env.device)
        self.intrinsic_weight = make_intrinsic_weight(explore.weight, context.counters, context.max_steps)
        self.intrinsic = torch.zeros(env.rows, device=env.device)

    def _make_optimizer(self) -> FlatOptimizer:
        return FlatOptimizer(self.settings.optimizer, self.network, self._lr, group=self.group)

    @property
    def _lr(self) -> float:
        return value_at(self.settings.lr, self.counters)

    def tune(self, settings: Any) -> None:
        self.settings = settings

    def _compute_intrinsic(self, reached: Tensor, step: Step) -> None:
        """Set `intrinsic` [N] to the intrinsic reward of the `reached` observations [N, D]; 0 for autoreset steps."""
        assert self.bonus is not None
        if step.autoreset_step is None:
            self.intrinsic.copy_(self.bonus.reward(reached))
            return
        self.intrinsic.zero_()
        if len(rows := step.autoreset_step.logical_not().nonzero().squeeze(1)):
            self.intrinsic.index_copy_(0, rows, self.bonus.reward(reached.index_select(0, rows)))

    def on_env_reset(self) -> None:
        """Discard unfinished episodes; by default none are stored."""

    def on_episodes_end(self, episodes: Episodes) -> None:
        self.intrinsic_weight.on_episodes_end(episodes)

    def metrics(self) -> dict[str, float]:
        intrinsic = {"intrinsic_reward": float(self.intrinsic.mean())} if self.bonus else {}
        return {"intrinsic_weight": self.intrinsic_weight.value} | intrinsic | {"lr": self._lr}

    def _scheduled(self, names: Sequence[str]) -> dict[str, float]:
        """Current values of those settings among `names` that follow a schedule."""
        settings = {name: getattr(self.settings, name) for name in names}
        return {name: value.at(self.counters) for name, value in settings.items() if isinstance(value, Schedule)}

    def _part_grad_norms(self, optimizer: FlatOptimizer) -> dict[str, float]:
        """Metrics `grad_norm_*`: the gradient norm of each part of the network at the last gradient step."""
        norms = optimizer.part_norms(cast(Any, self.network).parts())
        return {f"grad_norm_{part}": norm for part, norm in norms.items()}

    def _dead_units(self, obs: Tensor) -> dict[str, float]:
        """Metric `dead_units`: fraction of relu units that are 0 for a whole sample of obs [B, D]; {} without relu."""
        sample = obs[:: max(1, len(obs) // DEAD_UNIT_SAMPLE)]
        fraction = dead_unit_fraction(self.network, sample, cast(Any, self.network).initial_hidden(len(sample)))
        return {} if fraction is None else {"dead_units": fraction}

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    def load_weights(self, weights: State) -> None:
        restore_weights(self.network, weights)

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {"weight": self.intrinsic_weight}
        return parts | ({"bonus": self.bonus} if self.bonus else {})

    def _tensors(self) -> State:
        """Further tensors that are saved, not copied."""
        return {}

    def state(self) -> State:
        parts = {name: part.state() for name, part in self._parts().items()}
        generator = {"generator": self.generator.get_state()} if self.generator else {}
        return {"network": weights(self.network)} | parts | self._tensors() | generator

    def restore(self, state: State) -> None:
        """Resume exactly from a state; raises an error if it is incomplete."""
        needed = {name for name, part in self.state().items() if not isinstance(part, dict) or part}
        if missing := sorted(needed - state.keys()):
            raise TownletError(f"the saved state of {self.name} has no '{missing[0]}'", SAME_SETTINGS)
        restore_weights(self.network, state["network"])
        for name, part in self._parts().items():
            part.restore(state.get(name, {}))  # a part without state may be missing
        tensors = self._tensors()
        copy_into(tensors, {name: state[name] for name in tensors}, self.name)
        if self.generator:
            restore_generator(self.generator, state["generator"], self.name)


def microbatch_size(device: str) -> int:
    """Maximum number of steps that pass through a network at once; larger minibatches accumulate their gradient.

    On a CPU the activations then stay in the caches, which halves the time of a minibatch of 131,072 steps. A GPU has
    enough memory, and every call costs time.
    """
    return 8192 if device == "cpu" else 1 << 20


def refuse_autoreset_steps(name: str, env: VecEnv) -> None:
    """Raise an error if the environment has autoreset steps: their observations must not enter the hidden state."""
    if env.autoreset_steps:
        what = f"{name} with a recurrent network cannot train on an environment with autoreset steps"
        what += " (resets that take a separate step)"
        fix = "set gym.vectorization: sync, or use a network without `recurrent` (dqn instead of drqn)"
        raise TownletError(what, fix)


class ValueAgent(LearningAgent):
    """Chooses discrete actions by their values: ε-greedy or Boltzmann exploration. Subclasses implement learning."""

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
        self.selector.on_episodes_end(episodes)
        super().on_episodes_end(episodes)

    def describe_outputs(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        return torch.stack([values[:rows] for values in action_outputs])

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        return normalized_entropy(self.selector.probabilities(self.action_outputs, self._mask), self._mask)

    def metrics(self) -> dict[str, float]:
        return self.selector.metrics() | super().metrics()

    def policy(self) -> Policy:
        """The greedy policy; it shares the agent's weights."""
        return Policy(self.network, "values")

    def _parts(self) -> dict[str, Stateful]:
        return {"action_selection": self.selector, **super()._parts()}


def require_discrete(name: str, env: VecEnv) -> None:
    """Raise an error unless the environment has discrete actions."""
    if not isinstance(env.actions, Discrete):
        kind = "continuous" if isinstance(env.actions, Continuous) else "binary"
        raise TownletError(f"{name} needs discrete actions, but this environment's are {kind}", "use ppo")


class PolicyAgent(LearningAgent):
    """Acts by sampling from a policy over discrete, binary or continuous actions. Subclasses implement learning."""

    network: ActorCritic
    generator: torch.Generator
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
        return self.family.describe(action_outputs, rows)

    @torch.inference_mode()
    def entropy(self) -> Tensor:
        return self._distribution.normalized_entropy(self._mask)

    def _entropy_metrics(self, entropy: float, mask: Tensor) -> dict[str, float]:
        """The mean entropy as a metric, also divided by that of the uniform policy over the valid actions in `mask`.

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
        """The policy for inference; it shares the agent's weights, and samples from a separate random stream."""
        return Policy(self.network.actor, self.family.kind, self._streams.torch("policy", str(self.intrinsic.device)))

    def _parts(self) -> dict[str, Stateful]:
        return {"optimizer": self.optimizer, **super()._parts()}
