"""The live objects of a run, built from its recipe: the only place where names in a recipe become objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import torch

from townlet.agents.agent import Agent, AgentContext
from townlet.agents.make import make_agent
from townlet.agents.registry import entry
from townlet.curriculum.curriculum import Curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import ConfigurableVecEnv, Episodes, MaskedObs, VecEnv
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.spec import CnnSpec
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.tasks.experiment import LoadedExperiment, TrainingTask
from townlet.train.episodes import EpisodeTracker, RecentScores
from townlet.train.graphed_rollout import GraphedRollout, can_graph
from townlet.train.parallel_training import ParallelTraining
from townlet.train.tuning import PlateauTracker, Tuning

NO_LIMIT: Final = 10**6  # given to agents as the length of the longest episode if episodes have no time limit


@dataclass
class Training:
    """The live objects of a run; a checkpoint stores their `state`."""

    recipe: Recipe
    task: TrainingTask
    env: VecEnv
    agent: Agent
    counters: Counters
    tracker: EpisodeTracker
    obs: MaskedObs
    tuning: Tuning
    recent: RecentScores
    curriculum: Curriculum | None = None
    group: ProcessGroup = SINGLE_PROCESS
    parallel_training: ParallelTraining | None = None  # None in a single process
    graphed: GraphedRollout | None = None  # None unless rollouts are captured as CUDA graphs

    @property
    def rows(self) -> int:
        """Rows of all processes."""
        return self.env.rows * self.group.size

    def count(self, episodes: Episodes) -> None:
        self.counters.episodes += len(episodes)
        self.recent.add(episodes)

    def _parts(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("agent", "counters", "tracker", "tuning", "recent")}
        return parts | ({"curriculum": self.curriculum} if self.curriculum else {})

    def state(self) -> State:
        """Everything that determines later steps; in the leader of a group, for the rows of all processes."""
        state = {name: part.state() for name, part in self._parts().items()} | {"env": dict(self.env.state())}
        return self.parallel_training.gather(state) if self.parallel_training else state

    def policy_state(self) -> State:
        """The part of `state` that acting needs: weights, and the normalization of observations."""
        return policy_state({"agent": self.agent.state(), "env": self.env.state()})

    def restore(self, state: State) -> None:
        if self.parallel_training:
            state = self.parallel_training.local(state)
        self.obs = self.env.restore(state["env"])
        for name, part in self._parts().items():
            part.restore(state[name])
        if not self.env.exact:  # `restore` started new episodes
            self.tracker.reset()
            self.agent.on_env_reset()


def policy_state(state: State) -> State:
    """The part of a state of `Training` that acting needs: weights, and the normalization of observations."""
    transforms = state["env"].get("transforms", {})
    return {"agent": {"network": state["agent"]["network"]}, "env": {"transforms": transforms}}


def build_training(loaded: LoadedExperiment, group: ProcessGroup = SINGLE_PROCESS) -> Training:
    """Build the live objects of a run, in a group this process's part; equal recipes and seeds give equal bits."""
    recipe, task = loaded.recipe, loaded.task
    # Processes on one machine share its threads. Results may differ in the last bits with another number of threads.
    threads = max(1, recipe.thread_count // group.local_size)
    torch.set_num_threads(threads)
    select_matmul_backend(isinstance(recipe.network, CnnSpec))
    streams = Streams(recipe.seed)
    counters = Counters(budget=recipe.budget.env_steps or 0)
    env = task.make_env(recipe, threads, group)
    obs = env.reset(streams.key("env"))
    curriculum = task.make_curriculum(recipe)
    if curriculum:
        obs = cast(ConfigurableVecEnv, env).set(**curriculum.settings())
    limit = task.limit or NO_LIMIT
    context = AgentContext(recipe.network, recipe.explore, env, counters, streams.child("agent"), limit, group)
    agent = make_agent(recipe.agent, context)
    tracker, recent = EpisodeTracker(env.rows, env.device, env.components), RecentScores(recipe.metric)
    plateaus = [PlateauTracker(spec, recipe.to_env_steps(spec.patience)) for spec in recipe.plateau]
    t = Training(
        recipe, task, env, agent, counters, tracker, obs, Tuning(agent, counters, plateaus), recent, curriculum, group
    )
    if group.size > 1:
        axes = entry(recipe.agent.name).shard_axes
        t.parallel_training = ParallelTraining(group, task, env, agent, counters, t.count, axes)
    elif recipe.bootstrap_at == "truncation" and can_graph(agent, env, curriculum, task.limit):
        t.graphed = GraphedRollout(agent, env, tracker, counters, t.count)
    return t
