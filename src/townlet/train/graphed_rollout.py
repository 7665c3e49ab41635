"""A rollout captured as one CUDA graph; the episodes that end in it are reported after its last step."""

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


def can_graph(agent: Agent, env: VecEnv, curriculum: Curriculum | None, max_episode_steps: int | None) -> bool:
    """Whether rollouts can be captured as CUDA graphs.

    A curriculum rules it out, because it acts between steps. Episodes must have a time limit, and a rollout must not
    be longer than that, so that each row is truncated at most once per rollout.
    """
    return (
        agent.graphed is not None
        and env.device != "cpu"
        and getattr(env, "can_step_in_place", False)
        and curriculum is None
        and max_episode_steps is not None
        and agent.update_interval <= max_episode_steps
    )


class GraphedRollout:
    """Collects the rollouts of a run; the statistics of its T steps and N rows are in preallocated tensors [T, N]."""

    def __init__(
        self, agent: Agent, env: VecEnv, tracker: EpisodeTracker, counters: Counters,
        on_episodes: Callable[[Episodes], None],
    ) -> None:  # fmt: skip
        assert agent.graphed is not None
        self._env, self._graphed = cast(DeviceVecEnv, env), agent.graphed
        self._agent, self._tracker, self._counters, self._on_episodes = agent, tracker, counters, on_episodes
        steps, rows, device = agent.update_interval, env.rows, env.device
        self._length = torch.zeros((steps, rows), dtype=torch.int64, device=device)
        self._reward, self._guidance = torch.zeros((2, steps, rows), device=device)
        self._terminated, self._ended = torch.zeros((2, steps, rows), dtype=torch.bool, device=device)
        self._env.track_truncations()
        self._final = torch.zeros((steps, *self._env.final_values().shape), device=device)
        self._replay: Callable[[], None] | None = None
        self._obs: MaskedObs | None = None
        self._compiled_store = self._store_step
        if device.startswith("cuda"):
            self._compiled_store = compile_method(self._store_step, device)

    def collect(self, obs: MaskedObs, listener: RolloutListener) -> None:
        """Collect one rollout from `obs`, and report the episodes that ended in it.

        A captured graph always reads the tensors of the first call, into which the environment writes every step.
        """
        self._obs = obs
        if self._replay is None:
            mutable = [*self._env.written_tensors(), *self._tracker.state().values()]  # restored after the capture
            cuda = self._env.device.startswith("cuda")
            collect_steps = self._collect_steps
            self._replay = CudaGraph(collect_steps, mutable, [self._graphed.generator]) if cuda else collect_steps
        self._replay()
        self._graphed.mark_rollout_full()
        self._counters.env_steps += self._length.numel()
        episodes, final_values = self._ended_episodes()
        check_reward(episodes.reward, f"in the rollout up to env_steps {self._counters.env_steps}", episodes.rows)
        if len(episodes):
            self._on_episodes(episodes)
            self._agent.on_episodes_end(episodes)
            listener.on_rollout_episodes(episodes, final_values)

    @torch.no_grad()
    def _collect_steps(self) -> None:
        assert self._obs is not None
        self._graphed.start_rollout()
        for k in range(self._agent.update_interval):
            step = self._env.step_in_place(self._graphed.act(self._obs))
            self._graphed.observe(step)
            columns = (self._length, self._reward, self._guidance, self._terminated, self._ended, self._final)
            self._compiled_store(*step[:-1], *(column[k] for column in columns))  # all but `autoreset_step`
        self._graphed.finish_rollout(self._env.truncated_obs(), self._obs.obs)

    def _store_step(
        self, obs: Tensor, mask: Tensor, reward: Tensor, components: Tensor, terminated: Tensor, truncated: Tensor,
        length_out: Tensor, reward_out: Tensor, guidance_out: Tensor, terminated_out: Tensor, ended_out: Tensor,
        final_out: Tensor,
    ) -> None:  # fmt: skip
        """Write the results of a step into its slice of each [T, N] tensor."""
        step = Step(obs, mask, reward, components, terminated, truncated)
        self._tracker.step_in_place(step, length_out, reward_out, guidance_out)
        terminated_out.copy_(terminated)
        ended_out.copy_(step.episode_starts)
        final_out.copy_(self._env.final_values())

    def _ended_episodes(self) -> tuple[Episodes, NDArray[np.float32]]:
        """The episodes that ended, by step and then by row, and their final values [k, E]."""
        steps, rows = self._ended.nonzero(as_tuple=True)
        columns = (self._length, self._reward, self._guidance, self._terminated, self._final)
        row, length, reward, guidance, terminated, final = _to_host(rows, *(column[steps, rows] for column in columns))
        zeros = torch.zeros(len(row))
        episodes = Episodes(
            row, length, reward, intrinsic=zeros, entropy=zeros, terminated=terminated, guidance=guidance
        )
        return episodes, final.numpy()


def _to_host(*tensors: Tensor) -> list[Tensor]:
    """Copies on the host, through pinned memory with one synchronization; each pageable copy would need its own."""
    if not tensors[0].is_cuda:
        return list(tensors)
    staged = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for copy, tensor in zip(staged, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return staged
