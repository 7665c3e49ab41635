"""Minibatches sampled in blocks equal those sampled one at a time, and give the same gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from agents.toy_envs import AutoresetChain, Chain
from agents.training_loop import TrainingLoop
from nets.layouts import law
from townlet.agents.accelerated import minibatch_blocks
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.make import accelerate
from townlet.buffers.prioritized import PrioritySpec
from townlet.explore.spec import ExploreSpec
from townlet.interfaces.counters import Counters
from townlet.nets.spec import MlpSpec
from townlet.rng import Streams


class Float64Dqn(Dqn):
    """Observations in the type of the networks, which become float64 after the replay buffer was filled."""

    def _q(self, obs: Tensor) -> Tensor:
        return super()._q(obs.to(next(self.network.parameters()).dtype))

    def target_q(self, obs: Tensor) -> Tensor:
        return super().target_q(obs.to(next(self.target_network.parameters()).dtype))


def filled(kind: type[Dqn], chain: type[Chain] = Chain, **settings: Any) -> Dqn:
    """An agent with 40 steps of 3 rows in its replay buffer."""
    env, counters = chain(3), Counters(budget=1000)
    context = AgentContext(MlpSpec(hidden=(8,)), ExploreSpec(), env, counters, Streams(2), 20)
    agent = kind(DqnSettings(**({"warmup": 1} | settings)), context)
    agent.update_interval = 10**9
    TrainingLoop(agent, env, counters).run(40)
    return agent


def gradients(agent: Dqn, updates: int) -> list[Tensor]:
    """The gradient of every step of this many updates, in float64."""
    for network in (agent.network, agent.target_network):
        network.double()
    agent.optimizer = agent._make_optimizer()
    agent._target_vector = torch.nn.utils.parameters_to_vector(agent.target_network.parameters())
    found = []
    for _ in range(updates):
        for minibatch in agent.minibatches():
            agent.optimizer.zero_grad()
            agent._backward(minibatch)
            found.append(agent.optimizer.gradient.clone())
            agent.optimizer.step(10.0)
            agent.counters.updates += 1
            agent._update_target()
            torch.nn.utils.vector_to_parameters(agent._target_vector, agent.target_network.parameters())
    return found


@law
@example(9, 2, 4, 1, False, None, 2**20, "mse", Chain)  # blocks that would reach beyond a copy of the weights
@example(9, 2, 4, 1, True, None, 2**20, "mse", Chain)
@given(
    st.integers(1, 9), st.integers(1, 7), st.integers(1, 40), st.integers(1, 3), st.booleans(),
    st.sampled_from((None, 0.2)), st.sampled_from((1, 60, 2**20)), st.sampled_from(("mse", "huber")),
    st.sampled_from((Chain, AutoresetChain)),
)  # fmt: skip
def test_block_gradients_match_single_minibatches(
    updates: int, target_every: int, batch_size: int, n_step: int, double: bool, polyak: float | None, block: int,
    loss: str, chain: type[Chain],
) -> None:  # fmt: skip
    settings = {
        "gradient_steps": updates, "target_every": target_every, "batch_size": batch_size, "n_step": n_step,
        "double": double, "polyak": polyak, "loss": loss,
    }  # fmt: skip
    readable, fast = (filled(Float64Dqn, chain, **settings) for _ in range(2))  # LateChain has autoreset steps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minibatch_blocks, "MAX_BLOCK_ELEMENTS", block)
        fast.accelerated = partial(minibatch_blocks.blocked_minibatches, fast)
        found, wanted = gradients(fast, 2), gradients(readable, 2)
    assert len(found) == len(wanted) == 2 * updates
    for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert float((one - other).norm()) <= 1e-6 * max(float(other.norm()), 1e-9), step


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [({"gradient_steps": 2}, True), ({}, False), ({"gradient_steps": 2, "prioritized": PrioritySpec()}, False)],
)
def test_blocks_are_used_for_several_minibatches_of_uniform_replay(settings: Any, blocks: bool) -> None:
    agent = filled(Dqn, **settings)
    accelerate(agent)
    assert (agent.accelerated is not None) == blocks
