"""A whole round as one launch of the device: its steps are looked at together, after the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.cuda_graph import CudaGraph, compile_method
from townlet.interfaces.vec_env import DeviceVecEnv, Episodes, Step
from townlet.train.guards import check_reward

if TYPE_CHECKING:
    from townlet.train.build import Training
    from townlet.train.collect import Listener


def fits(t: Training) -> bool:
    """Whether a training can go on like this.

    Nobody may want to look at single steps, as a curriculum does, and a round must be no longer than a life, so that
    no row is cut short twice in it.
    """
    return (
        t.agent.graphed is not None
        and t.env.device != "cpu"
        and getattr(t.env, "can_step_in_place", False)
        and t.curriculum is None
        and t.agent.update_interval <= (t.task.limit or 0)
    )


class WholeRound:
    """Rounds of one training, in tables that are there from the beginning."""

    def __init__(self, t: Training) -> None:
        assert t.agent.graphed is not None
        self._t, self._env, self._agent = t, cast(DeviceVecEnv, t.env), t.agent.graphed
        steps, rows, device = t.agent.update_interval, t.env.rows, t.env.device
        self._length = torch.zeros((steps, rows), dtype=torch.int64, device=device)
        self._reward, self._guidance = torch.zeros((2, steps, rows), device=device)
        self._terminated, self._over = torch.zeros((2, steps, rows), dtype=torch.bool, device=device)
        self._env.track_truncations()
        self._last = torch.zeros((steps, *self._env.last().shape), device=device)
        self._play: Callable[[], None] | None = None
        self._note = compile_method(self._note_here, device) if device.startswith("cuda") else self._note_here

    def collect(self, listener: Listener) -> None:
        """All steps of a round, and what ended in it."""
        t = self._t
        if self._play is None:
            self._play = self._recorded() if t.env.device.startswith("cuda") else self._steps
        self._play()
        self._agent.mark_rollout_full()
        t.counters.env_steps += self._length.numel()
        over, extras = self._ended()
        check_reward(over.reward, f"until env_steps {t.counters.env_steps}")
        if len(over):
            t.counters.episodes += len(over)
            t.agent.on_episodes_end(over)
            t.recent.add(over)
            listener.lives(over, extras)

    def _recorded(self) -> CudaGraph:
        t = self._t
        changed = [*self._env.written_tensors(), *(sums for sums in t.tracker.state().values())]
        return CudaGraph(self._steps, changed, [self._agent.generator])

    @torch.no_grad()
    def _steps(self) -> None:
        t, seen = self._t, self._t.seen
        self._agent.start_rollout()
        for k in range(t.agent.update_interval):
            step = self._env.step_in_place(self._agent.act(seen))
            self._agent.observe(step)
            tables = (self._length, self._reward, self._guidance, self._terminated, self._over, self._last)
            self._note(*step[:-1], *(table[k] for table in tables))
        self._agent.finish_rollout(self._env.truncated_obs(), seen.obs)

    def _note_here(
        self, obs: Tensor, mask: Tensor, reward: Tensor, components: Tensor, terminated: Tensor, truncated: Tensor,
        length: Tensor, sums: Tensor, guidance: Tensor, dead: Tensor, over: Tensor, last: Tensor,
    ) -> None:  # fmt: skip
        """What a step brought, into a line of each table."""
        step = Step(obs, mask, reward, components, terminated, truncated)
        self._t.tracker.witness(step, length, sums, guidance)
        dead.copy_(terminated)
        over.copy_(step.episode_starts)
        last.copy_(self._env.last())

    def _ended(self) -> tuple[Episodes, NDArray[np.float32]]:
        """The episodes that ended, in the order in which they did, and what is known of their ends [k, E]."""
        at, rows = self._over.nonzero(as_tuple=True)
        columns = (self._length, self._reward, self._guidance, self._terminated)
        found = _to_host(rows, *(column[at, rows] for column in columns), self._last[at, rows])
        row, length, reward, guidance, terminated, last = found
        nothing = torch.zeros(len(row))
        return Episodes(row, length, reward, nothing, nothing, terminated, guidance), last.numpy()


def _to_host(*tensors: Tensor) -> list[Tensor]:
    """Copies on the host, through pinned memory and with one wait: conversions and pageable copies stall the device."""
    if not tensors[0].is_cuda:
        return list(tensors)
    staged = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for copy, tensor in zip(staged, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return staged
