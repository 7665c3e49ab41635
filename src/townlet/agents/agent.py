"""The interface between agents and the training loop, and the context that every agent is built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from torch import nn

from townlet.agents.settings import AgentSettings
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.explore.intrinsic_reward import IntrinsicReward
from townlet.explore.spec import ExploreSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import Episodes, FinalObs, MaskedObs, Step, VecEnv
from townlet.nets.layers import initialize
from townlet.nets.spec import NetworkSpec
from townlet.rng import Streams

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from townlet.agents.policy import Policy

N = TypeVar("N", bound=nn.Module)


Interrupt = Callable[[], None]  # called before every microbatch of an on-policy update; may raise to abandon it


def no_interrupt() -> None:
    """Never interrupt an update."""


@dataclass(frozen=True)
class AgentContext:
    """What every agent is built from, in addition to its settings."""

    network: NetworkSpec
    explore: ExploreSpec
    env: VecEnv  # for its rows, layout, actions and device; agents never step it
    counters: Counters  # of the whole run; agents add their gradient steps to `updates`
    streams: Streams
    max_steps: int  # length of the longest possible episode
    group: ProcessGroup = SINGLE_PROCESS  # the processes that train together

    def initialized(self, network: N) -> N:
        """The network on the agent's device, with weights drawn on the CPU, so that they are equal on every device."""
        initialize(network, self.streams.torch("network"))
        return network.to(self.env.device)


class GraphedAgent(Protocol):
    """An agent whose rollouts and updates can be captured as CUDA graphs: they never synchronize with the host."""

    has_collected: bool  # whether it has collected a rollout, which `learn` needs

    @property
    def generator(self) -> torch.Generator:
        """The random stream of actions."""

    def start_rollout(self) -> None:
        """Begin a rollout."""

    def act(self, inputs: MaskedObs) -> Tensor:
        """Sample actions [N], and store them with their observations in the rollout."""

    def observe(self, step: Step) -> None:
        """Store the rewards and ends of episodes in the rollout."""

    def finish_rollout(self, truncated_obs: Tensor, next_obs: Tensor) -> None:
        """Store the bootstrap values V(truncated_obs) and V(next_obs); both arguments are [N, D]."""

    def mark_rollout_full(self) -> None:
        """Mark the rollout as full, which a replayed CUDA graph does not do."""

    def learn(self) -> dict[str, float]:
        """Update from the rollout, and return metrics."""


class Agent(Stateful, Protocol):
    """Acts in N rows, learns from the results, and resumes exactly from its state."""

    name: str
    update_interval: int  # vector steps between two calls of `learn`
    interruptible: bool  # whether the loop may abandon a rollout and its update and restore the state before them
    bonus: IntrinsicReward | None
    action_outputs: Tensor  # network outputs for the last actions, in the layout that `describe_outputs` expects
    intrinsic: Tensor  # [N], unweighted intrinsic reward of the last step; zeros without a bonus

    @property
    def graphed(self) -> GraphedAgent | None:
        """The same agent in a form that can be captured as CUDA graphs; None if it has none."""

    @property
    def output_label(self) -> Literal["values", "probabilities", "means"]:
        """What `describe_outputs` returns."""

    @property
    def settings(self) -> AgentSettings:
        """The current settings."""

    def tune(self, settings: AgentSettings) -> None:
        """Replace the settings; those that the registry lists as `changeable` take effect at the next update."""

    def act(self, inputs: MaskedObs) -> Tensor:
        """Sample actions [N, …] from the behavior policy. The agent copies the inputs that it needs later.

        The actions and `action_outputs` are new tensors at every call and may be kept.
        """

    def observe(self, step: Step, ended: FinalObs) -> None:
        """Store the results of the last actions."""

    def on_env_reset(self) -> None:
        """Discard unfinished episodes: the next observations begin new ones."""

    def on_episodes_end(self, episodes: Episodes) -> None:
        """Adapt exploration to the episodes that ended in the last step."""

    def describe_outputs(self, action_outputs: Sequence[Tensor], rows: int) -> Tensor:
        """Values, probabilities or means [T, rows, K] of the first `rows` rows, from `action_outputs` of T steps."""

    def entropy(self) -> Tensor:
        """Normalized entropy [N] in [0, 1] of the behavior policy at the last step, computed on demand."""

    def learn(self, check_interrupt: Interrupt = no_interrupt) -> dict[str, float] | None:
        """Called every `update_interval` vector steps. Updates and returns metrics, or None without enough data."""

    def policy(self) -> Policy:
        """The policy for inference; it shares the agent's weights."""

    def parameters(self) -> dict[str, Tensor]:
        """Every learned tensor by name, not copied."""

    def load_weights(self, weights: State) -> None:
        """Start from the network weights of another run, as in its `state()["network"]`."""

    def metrics(self) -> dict[str, float]:
        """Current values of everything scheduled or annealed: lr, epsilon, intrinsic_weight, …"""
