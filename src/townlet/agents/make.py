"""Builds agents from their settings, and chooses their fast paths."""

from __future__ import annotations

from functools import partial
from typing import Final

import torch

from townlet.agents.accelerated.analytic_mlp import mlp_layers
from townlet.agents.accelerated.analytic_ppo import AnalyticPpo
from townlet.agents.accelerated.graphed_ppo import GraphedPpo
from townlet.agents.accelerated.minibatch_blocks import blocked_minibatches
from townlet.agents.agent import Agent, AgentContext
from townlet.agents.dqn import Dqn
from townlet.agents.ppo import Ppo
from townlet.agents.registry import entry
from townlet.agents.settings import AgentSettings

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def make_agent(settings: AgentSettings, context: AgentContext) -> Agent:
    """Build the registered agent of these settings, with the fast paths that apply to it."""
    agent = entry(settings.name).agent(settings, context)
    accelerate(agent)
    return agent


def accelerate(agent: object) -> None:
    """Give an agent its fast paths, unless its settings have `accelerate: false`.

    Only `Ppo` and `Dqn` have any, but not their subclasses: a fast path would bypass what a subclass overrides.
    """
    if type(agent) is Ppo and agent.settings.accelerate:
        _accelerate_ppo(agent)
    if type(agent) is Dqn:
        s = agent.settings
        if s.accelerate and s.gradient_steps > 1 and s.prioritized is None:
            agent.accelerated = partial(blocked_minibatches, agent)


def _accelerate_ppo(agent: Ppo) -> None:
    mlps = mlp_layers(agent.network)
    if mlps is None:
        return
    dtype = DTYPES[agent.settings.precision]
    analytic = AnalyticPpo(mlps, agent.family, dtype)
    agent.accelerated = analytic.backward
    if dtype != torch.float32:
        del agent.rollout  # free it first, so that the two buffers are never in memory together
        agent.rollout = agent.make_rollout(dtype)
    discrete, shared = agent.family.kind == "discrete", not agent.network.separate_feedforward_critic
    if discrete and shared and agent.bonus is None and agent.settings.value_clip is None:
        agent.graphed = GraphedPpo(agent, analytic, str(agent.intrinsic.device))
