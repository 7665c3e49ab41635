"""Chooses the fast paths of an agent."""

from __future__ import annotations

import torch

from townlet.agents.accelerated.analytic_mlp import mlp_specs
from townlet.agents.accelerated.analytic_ppo import AnalyticPpo
from townlet.agents.accelerated.analytic_td import AnalyticTD
from townlet.agents.accelerated.graphed_ppo import CapturedPpo
from townlet.agents.dqn import Dqn
from townlet.agents.ppo import DTYPES, Ppo
from townlet.agents.pqn import Pqn


def accelerate(agent: object) -> None:
    """Give an agent the fast paths that apply to it, unless its settings say `accelerate: false`."""
    # Not subclasses: a fast path would bypass what they override.
    if type(agent) is Ppo and agent.settings.accelerate:
        _accelerate_ppo(agent)
    elif type(agent) in (Dqn, Pqn) and isinstance(agent, Dqn | Pqn) and agent.settings.accelerate:
        agent.accelerated = AnalyticTD.of(agent.network)


def _accelerate_ppo(agent: Ppo) -> None:
    specs = mlp_specs(agent.network)
    if specs is None:
        return
    dtype = DTYPES[agent.settings.precision]
    agent.accelerated = analytic = AnalyticPpo(specs, agent.family, dtype)
    if dtype != torch.float32:
        del agent.rollout  # first, so that both are never in memory
        agent.rollout = agent.make_rollout(dtype)
    simple = agent.bonus is None and not agent.network.apart and agent.settings.value_clip is None
    if agent.family.kind == "logits" and simple:
        agent.graphed = CapturedPpo(agent, analytic, str(agent.intrinsic.device))
