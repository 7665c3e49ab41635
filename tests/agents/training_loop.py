"""A minimal training loop, and the success rate of a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.agents.policy import Policy
from townlet.buffers.rollout import RolloutBuffer
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import clone_state
from townlet.interfaces.vec_env import Episodes, MaskedObs, VecEnv


class TrainingLoop:
    """An agent in an environment, whose whole state can be saved and restored."""

    def __init__(self, agent: Agent, env: VecEnv, counters: Counters, seed: int = 0) -> None:
        self.agent, self.env, self.counters = agent, env, counters
        self.obs = env.reset(seed)
        self.length = torch.zeros(env.rows, dtype=torch.int64)
        self.vector_steps = 0

    def run(self, steps: int) -> list[dict[str, float]]:
        """Collect and learn for this many vector steps; the metrics of each update."""
        history = []
        for _ in range(steps):
            step = self.env.step(self.agent.act(self.obs))
            ended = self.env.final_obs()
            self.agent.observe(step, ended)
            self.length += 1
            self.counters.env_steps += self.env.rows
            if len(ended.rows):
                self.agent.on_episodes_end(self._episodes(ended.rows, step.reward, step.terminated))
            self.obs = MaskedObs(step.obs, step.mask)
            self.vector_steps += 1
            if self.vector_steps % self.agent.update_interval == 0 and (learned := self.agent.learn()):
                history.append(learned)
        return history

    def run_until(self, check: Callable[[], None], steps: int) -> list[dict[str, float]]:
        """Train until `check` passes, tried ten times in at most this many vector steps; the metrics of each update."""
        history = []
        for part in range(10):
            history += self.run(steps // 10)
            try:
                check()
            except AssertionError:
                if part == 9:
                    raise
            else:
                break
        return history

    def _episodes(self, rows: Tensor, reward: Tensor, terminated: Tensor) -> Episodes:
        zeros = torch.zeros(len(rows))
        found = Episodes(rows, self.length[rows], reward[rows], zeros, zeros, terminated[rows], zeros)
        self.length[rows] = 0
        self.counters.episodes += len(rows)
        return found

    def state(self) -> dict[str, Any]:
        """A copy of the whole state."""
        parts = {"agent": self.agent.state(), "env": self.env.state(), "counters": self.counters.state()}
        copy: dict[str, Any] = clone_state(parts | {"length": self.length, "vector_steps": self.vector_steps})
        return copy

    def restore(self, state: dict[str, Any]) -> None:
        self.agent.restore(state["agent"])
        self.obs = self.env.restore(state["env"])
        self.counters.restore(state["counters"])
        self.length, self.vector_steps = state["length"].clone(), state["vector_steps"]


def success_rate(policy: Policy, env: VecEnv, steps: int = 44, seed: int = 1) -> float:
    """Fraction of episodes that end with a positive reward under the greedy policy."""
    observed = env.reset(seed)
    policy.reset(env.rows)
    episode_start = torch.ones(env.rows, dtype=torch.bool)
    successes, ended = 0, 0
    for _ in range(steps):
        step = env.step(policy.act(observed.obs, observed.mask, episode_start))
        episode_start = step.terminated | step.truncated
        successes, ended = successes + int((step.reward[episode_start] > 0).sum()), ended + int(episode_start.sum())
        observed = MaskedObs(step.obs, step.mask)
    return successes / ended


def rollout_obs(rollout: RolloutBuffer) -> Tensor:
    """Observations of all rows at every step of a full rollout [T, N, D]."""
    return rollout.gather_rows(torch.arange(rollout.mask.shape[1])).obs


def differing_leaves(a: Any, b: Any, path: str = "") -> list[str]:
    """Names of the leaves that are not bit-identical."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        return [odd for name in a for odd in differing_leaves(a[name], b[name], f"{path}/{name}")]
    same = torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
    return [] if same else [path]
