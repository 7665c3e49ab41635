"""A training loop in a few lines, and a measure of what was learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.agents.policy import Policy
from townlet.buffers.rollout import RolloutBuffer
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import clone_state
from townlet.interfaces.vec_env import Episodes, MaskedObs, VecEnv


class Life:
    """An agent in an environment, that can be stopped and taken up elsewhere."""

    def __init__(self, agent: Agent, env: VecEnv, counters: Counters, seed: int = 0) -> None:
        self.agent, self.env, self.counters = agent, env, counters
        self.seen = env.reset(seed)
        self.length = torch.zeros(env.rows, dtype=torch.int64)
        self.vector_steps = 0

    def go_on(self, steps: int) -> list[dict[str, float]]:
        """Live and learn for this many vector steps; the figures of each round."""
        figures = []
        for _ in range(steps):
            step = self.env.step(self.agent.act(self.seen))
            ended = self.env.final_obs()
            self.agent.observe(step, ended)
            self.length += 1
            self.counters.env_steps += self.env.rows
            if len(ended.rows):
                self.agent.on_episodes_end(self._episodes(ended.rows, step.reward, step.terminated))
            self.seen = MaskedObs(step.obs, step.mask)
            self.vector_steps += 1
            if self.vector_steps % self.agent.update_interval == 0 and (learned := self.agent.learn()):
                figures.append(learned)
        return figures

    def _episodes(self, rows: Tensor, reward: Tensor, terminated: Tensor) -> Episodes:
        zeros = torch.zeros(len(rows))
        found = Episodes(rows, self.length[rows], reward[rows], zeros, zeros, terminated[rows], zeros)
        self.length[rows] = 0
        self.counters.episodes += len(rows)
        return found

    def state(self) -> dict[str, Any]:
        """Everything, copied."""
        parts = {"agent": self.agent.state(), "env": self.env.state(), "counters": self.counters.state()}
        return clone_state(parts | {"length": self.length, "vector_steps": self.vector_steps})

    def restore(self, state: dict[str, Any]) -> None:
        self.agent.restore(state["agent"])
        self.seen = self.env.restore(state["env"])
        self.counters.restore(state["counters"])
        self.length, self.vector_steps = state["length"].clone(), state["vector_steps"]


def success(policy: Policy, env: VecEnv, steps: int = 200, seed: int = 1) -> float:
    """Share of episodes that ended with a reward above 0, acting greedily."""
    seen = env.reset(seed)
    policy.reset(env.rows)
    fresh = torch.ones(env.rows, dtype=torch.bool)
    right, ends = 0, 0
    for _ in range(steps):
        step = env.step(policy.act(seen.obs, seen.mask, fresh))
        fresh = step.terminated | step.truncated
        right, ends = right + int((step.reward[fresh] > 0).sum()), ends + int(fresh.sum())
        seen = MaskedObs(step.obs, step.mask)
    return right / ends


def seen_in(rollout: RolloutBuffer) -> Tensor:
    """What all rows saw at every step of a full rollout [T, N, D]."""
    return rollout.gather_rows(torch.arange(rollout.mask.shape[1])).obs


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Names of the leaves that are not equal to the bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        return [odd for name in a for odd in differences(a[name], b[name], f"{path}/{name}")]
    same = torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
    return [] if same else [path]
