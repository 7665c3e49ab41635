"""A rollout captured as one CUDA graph; its episodes are reported after the last step."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.cuda_graph import CudaGraph, compile_method
from townlet.curriculum.curriculum import Curriculum
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import DeviceVecEnv, Episodes, MaskedObs, Step, VecEnv
from townlet.train.episodes import EpisodeTracker, RolloutListener
from townlet.train.monitors import check_reward


def can_graph(agent: Agent, env: VecEnv, curriculum: Curriculum | None, limit: int | None) -> bool:
    """Whether rollouts can be captured as CUDA graphs.

    Nothing may inspect single steps (a curriculum does), and a rollout must be no longer than an episode, so that each
    row is truncated at most once per rollout.
    """
    return (
        agent.graphed is not None
        and env.device != "cpu"
        and getattr(env, "can_step_in_place", False)
        and curriculum is None
        and agent.update_interval <= (limit or 0)
    )


class GraphedRollout:
    """Rollouts of one training, in preallocated tensors [T, N]."""

    def __init__(
        self, agent: Agent, env: VecEnv, tracker: EpisodeTracker, counters: Counters, count: Callable[[Episodes], None]
    ) -> None:
        assert agent.graphed is not None
        self._env, self._graphed = cast(DeviceVecEnv, env), agent.graphed
        self._agent, self._tracker, self._counters, self._count = agent, tracker, counters, count
        steps, rows, device = agent.update_interval, env.rows, env.device
        self._length = torch.zeros((steps, rows), dtype=torch.int64, device=device)
        self._reward, self._guidance = torch.zeros((2, steps, rows), device=device)
        self._terminated, self._over = torch.zeros((2, steps, rows), dtype=torch.bool, device=device)
        self._env.track_truncations()
        self._final = torch.zeros((steps, *self._env.final_values().shape), device=device)
        self._run: Callable[[], None] | None = None
        self._store = compile_method(self._store_step, device) if device.startswith("cuda") else self._store_step

    def collect(self, obs: MaskedObs, listener: RolloutListener) -> None:
        """One rollout, and the episodes that ended in it."""
        self._obs = obs
        if self._run is None:
            changed = [*self._env.written_tensors(), *self._tracker.state().values()]
            cuda = self._env.device.startswith("cuda")
            self._run = CudaGraph(self._steps, changed, [self._graphed.generator]) if cuda else self._steps
        self._run()
        self._graphed.mark_rollout_full()
        self._counters.env_steps += self._length.numel()
        over, final_values = self._finished()
        check_reward(over.reward, f"until env_steps {self._counters.env_steps}")
        if len(over):
            self._count(over)
            self._agent.on_episodes_end(over)
            listener.on_rollout_episodes(over, final_values)

    @torch.no_grad()
    def _steps(self) -> None:
        self._graphed.start_rollout()
        for k in range(self._agent.update_interval):
            step = self._env.step_in_place(self._graphed.act(self._obs))
            self._graphed.observe(step)
            tables = (self._length, self._reward, self._guidance, self._terminated, self._over, self._final)
            self._store(*step[:-1], *(table[k] for table in tables))
        self._graphed.finish_rollout(self._env.truncated_obs(), self._obs.obs)

    def _store_step(
        self, obs: Tensor, mask: Tensor, reward: Tensor, components: Tensor, terminated: Tensor, truncated: Tensor,
        length: Tensor, sums: Tensor, guidance: Tensor, dead: Tensor, over: Tensor, final: Tensor,
    ) -> None:  # fmt: skip
        """Write the results of a step into one line of each table."""
        step = Step(obs, mask, reward, components, terminated, truncated)
        self._tracker.step_in_place(step, length, sums, guidance)
        dead.copy_(terminated)
        over.copy_(step.episode_starts)
        final.copy_(self._env.final_values())

    def _finished(self) -> tuple[Episodes, NDArray[np.float32]]:
        """The episodes that ended, in order, and their final values [k, E]."""
        at, rows = self._over.nonzero(as_tuple=True)
        columns = (self._length, self._reward, self._guidance, self._terminated)
        row, length, reward, guidance, terminated, final = _to_host(
            rows, *(column[at, rows] for column in columns), self._final[at, rows]
        )
        zeros = torch.zeros(len(row))
        return Episodes(row, length, reward, zeros, zeros, terminated, guidance), final.numpy()


def _to_host(*tensors: Tensor) -> list[Tensor]:
    """Copies on the host, through pinned memory and with one wait: conversions and pageable copies stall the device."""
    if not tensors[0].is_cuda:
        return list(tensors)
    staged = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for copy, tensor in zip(staged, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return staged
