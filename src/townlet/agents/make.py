"""Builds agents from their settings."""

from __future__ import annotations

from townlet.agents.accelerated.install import accelerate
from townlet.agents.agent import Agent, AgentContext
from townlet.agents.registry import entry
from townlet.agents.settings import AgentSettings


def make_agent(settings: AgentSettings, context: AgentContext) -> Agent:
    """The registered agent of these settings, with the fast paths that apply to it."""
    agent = entry(settings.name).agent(settings, context)
    accelerate(agent)
    return agent
