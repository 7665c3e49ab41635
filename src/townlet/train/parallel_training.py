"""Training one run in several processes: the leader sends commands, and all exchange episodes and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from torch import Tensor

from townlet.agents.agent import Agent
from townlet.agents.registry import entries, entry
from townlet.distributed.process_group import ProcessGroup, ProcessLost
from townlet.distributed.row_sharding import gather_state, local_state
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.task import Task
from townlet.interfaces.vec_env import Episodes, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.town.episode_recorder import RECORDED_ROWS
from townlet.train.episodes import RolloutListener
from townlet.train.monitors import ENVIRONMENT_REWARD, Diverged, first_bad_reward
from townlet.train.tuning import dump_settings

# Commands of the leader, sent alone or followed by arguments.
RUN, RESTORE, ROLLOUT, STATE, END = "run", "restore", "rollout", "state", "end"
# Columns of an exchanged episode: the step of the rollout, the columns of `Episodes` (`rows` first), its final values.
STEP, ROW = 0, 1
# Types of the columns of `Episodes`.
DTYPES: Final = (torch.int64, torch.int64, torch.float32, torch.float32, torch.float32, torch.bool, torch.float32)
WITHOUT_TORCHRUN: Final = "start it without torchrun"


class ParallelTraining:
    """The part of this process in a training run of several processes."""

    def __init__(
        self, group: ProcessGroup, task: Task, env: VecEnv, agent: Agent, counters: Counters,
        on_episodes: Callable[[Episodes], None], agent_axes: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._group, self._task, self._env, self._agent = group, task, env, agent
        self._counters, self._on_episodes = counters, on_episodes
        self._axes: dict[tuple[str, ...], int] = {("env",): 0, ("tracker",): 0}
        self._axes |= {("agent", *path.split("/")): axis for path, axis in agent_axes.items()}
        self._steps = 0  # steps of this rollout so far
        self._episodes: list[Tensor] = []  # episodes that ended in this rollout
        self._settings: dict[str, Any] | None = None  # the agent's settings that were sent last
        self._bad_rewards: list[list[float]] = []  # (row, reward) of rewards that are not finite
        self._in_rollout = False  # whether the others wait for a collective operation and not for a command

    def start(self, run: Run, overrides: Sequence[str]) -> None:
        """As the leader: make the others open this run."""
        resume = f"townlet train --resume {run.path}"
        self._group.advice = f"see the output of the process that ended, then resume from the last checkpoint: {resume}"
        self._command(RUN, str(run.path), list(overrides))

    def restore(self, name: str) -> None:
        """As the leader: make the others restore the checkpoint with this folder name."""
        self._command(RESTORE, name)

    def start_rollout(self) -> None:
        """As the leader: make the others collect a rollout and learn from it."""
        self._command(ROLLOUT)
        self._in_rollout = True

    def end_update(self) -> None:
        """Called after the update, when the others wait for commands again."""
        self._in_rollout = False

    def _command(self, name: str, *arguments: Any) -> None:
        if self._group.is_leader:
            self._group.broadcast([name, *arguments])

    def on_step(self, reward: Tensor) -> None:
        """Count a step. A reward [N] that is not finite is reported after the rollout, so that no process hangs."""
        self._steps += 1
        if bad := first_bad_reward(reward):
            row, value = bad
            self._bad_rewards.append([row + self._group.rank * self._env.rows, value])

    def add_episodes(self, episodes: Episodes, ended: FinalObs) -> None:
        """Add the episodes of the local rows that ended in the last step."""
        rows = episodes.rows + self._group.rank * self._env.rows
        step = torch.full((len(episodes),), self._steps - 1)
        lines = torch.stack([column.double() for column in (step, rows, *episodes[1:])], 1)
        final_values = torch.from_numpy(self._task.final_values(self._env, ended)).double()
        self._episodes.append(torch.cat((lines, final_values), 1))

    def exchange_episodes(self, listener: RolloutListener) -> None:
        """After a rollout: count the episodes of all processes, and report those of the others in the leader."""
        width, rows = len(DTYPES) + 1, self._env.rows * self._group.size
        none = torch.zeros((0, width + len(self._task.final_value_names)), dtype=torch.float64)
        tables = self._group.all_gather(torch.cat((none, *self._episodes)))
        lines, others = torch.cat(tables), torch.cat(tables[1:])
        order = (lines[:, STEP] * rows + lines[:, ROW]).argsort()
        if len(order):
            self._on_episodes(_to_episodes(lines[order]))
        if self._group.is_leader and len(others):
            ago = (self._steps - 1 - others[:, STEP]) * rows
            listener.on_rollout_episodes(_to_episodes(others), others[:, width:].float().numpy(), ago.numpy())
        self._steps, self._episodes = 0, []
        # A reward that is not finite raises in all processes.
        bad = torch.cat(self._group.all_gather(torch.tensor(self._bad_rewards[:1], dtype=torch.float64).view(-1, 2)))
        if len(bad):
            row, value = bad[0].tolist()
            when = f"in the rollout up to env_steps {self._counters.env_steps}"
            raise Diverged(f"reward of row {row:.0f}", value, when, ENVIRONMENT_REWARD)

    def sync_settings(self) -> None:
        """Copy the agent's settings from the leader, where they may have changed, to all processes."""
        if self._group.is_leader:
            now = dump_settings(self._agent.settings)
            self._group.broadcast(None if now == self._settings else now)
            self._settings = now
        elif (changed := self._group.broadcast()) is not None:
            self._agent.tune(type(self._agent.settings).model_validate(changed))

    def gather(self, state: State) -> State:
        """In the leader, the state of all rows; in the others, their own state unchanged."""
        self._command(STATE)
        return gather_state(state, self._env.rows, self._axes, self._group.gather)

    def local(self, state: State) -> State:
        """This process's part of the state of all rows."""
        return local_state(state, self._env.rows, self._axes, self._group.rank, self._group.size)

    def close(self) -> None:
        """Leave the group. The leader ends the others; during a rollout, their next collective fails instead."""
        if not self._in_rollout:
            with suppress(ProcessLost):
                self._command(END)
        self._group.close()


def _to_episodes(lines: Tensor) -> Episodes:
    """`Episodes` from exchanged lines [k, C]."""
    return Episodes(*(column.to(dtype) for column, dtype in zip(lines.T[ROW:], DTYPES, strict=False)))


def require_parallel_support(recipe: Recipe, group: ProcessGroup) -> None:
    """Raise an error if the recipe cannot be trained by the processes of this group."""
    agent, size = entry(recipe.agent.name), group.size
    if recipe.gym is not None:
        what = "training in several processes supports towns only, not Gymnasium environments"
        raise TownletError(what, f"{WITHOUT_TORCHRUN}, and run its rows in processes with gym.vectorization=async")
    if not agent.shard_axes:
        able = _alternatives([e.name for e in entries() if e.shard_axes])
        what = f"{agent.name} cannot be trained by several processes"
        raise TownletError(what, f"{WITHOUT_TORCHRUN}, or train {able}")
    unshared = {"curriculum": recipe.curriculum, "explore.bonus": recipe.explore.bonus}
    unshared |= {f"agent.{key}": getattr(recipe.agent, key) for key in agent.unshardable}
    for key, value in unshared.items():
        if value is not None:
            raise TownletError(
                f"{key} is not supported with several processes", f"write {key}=null, or {WITHOUT_TORCHRUN}"
            )
    rows = recipe.row_count
    if rows % size or rows < RECORDED_ROWS * size:
        fitting = [str(count) for count in range(1, rows // RECORDED_ROWS + 1) if rows % count == 0]
        enough = max(RECORDED_ROWS, round(rows / size)) * size
        what = f"{rows} rows cannot be split evenly over {size} processes with at least {RECORDED_ROWS} rows each"
        fix = f"number of processes that fit: {_alternatives(fitting[:6])}; or start a run with rows={enough}"
        raise TownletError(what, fix)
    gpus, local = torch.cuda.device_count(), group.local_size
    if recipe.device.startswith("cuda") and (recipe.device != "cuda" or local > gpus):
        what = f"device {recipe.device} cannot be shared by {local} processes"
        raise TownletError(what, f"write device=cuda and start one process for each GPU: {gpus}")


def _alternatives(words: list[str]) -> str:
    """The words as "a, b or c"; "1" if there are none."""
    *others, last = words or ["1"]
    return f"{', '.join(others)} or {last}" if others else last
