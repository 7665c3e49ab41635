"""From a recipe to live objects: the only place where names become classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, cast

import torch

from townlet.agents.agent import Agent, AgentContext
from townlet.agents.make import make_agent
from townlet.curriculum.curriculum import Curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import ConfigurableVecEnv, Episodes, MaskedObs, VecEnv
from townlet.nets.kernels import select_matmul_backend
from townlet.nets.spec import CnnSpec
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.tasks.experiment import LoadedExperiment
from townlet.tasks.task import Task
from townlet.train.graphed_rollout import WholeRound, fits
from townlet.train.multi_process import Together
from townlet.train.plateau import Plateau
from townlet.train.recent_scores import Recent
from townlet.train.single_process import Alone
from townlet.train.tracker import Tracker
from townlet.train.tuning import Tuning

ENDLESS: Final = 10**6  # steps of an episode that nothing cuts short


@dataclass
class Training:
    """All that lives while a run trains. Its `state` is what a checkpoint holds."""

    recipe: Recipe
    task: Task
    env: VecEnv
    agent: Agent
    counters: Counters
    tracker: Tracker
    seen: MaskedObs
    tuning: Tuning
    recent: Recent
    curriculum: Curriculum | None = None
    whole: WholeRound | None = None  # where rounds are made without a look on the way
    company: Alone = field(init=False)  # those who train along

    def __post_init__(self) -> None:
        self.company = Alone(self)

    @property
    def rows(self) -> int:
        """Of all who train together."""
        return self.env.rows * self.company.size

    def count(self, over: Episodes) -> None:
        """These episodes were lived."""
        self.counters.episodes += len(over)
        self.recent.add(over)

    def _parts(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("agent", "counters", "tracker", "tuning", "recent")}
        return parts | ({"curriculum": self.curriculum} if self.curriculum else {})

    def state(self) -> State:
        """Everything that decides what happens next, part by part."""
        own = {name: part.state() for name, part in self._parts().items()} | {"env": dict(self.env.state())}
        return self.company.join(own)

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        state = self.company.portion(state)
        self.seen = self.env.restore(state["env"])
        for name, part in self._parts().items():
            part.restore(state[name])
        if not self.env.exact:  # it began new episodes
            self.tracker.forget()
            self.agent.on_env_reset()


def build(loaded: LoadedExperiment, group: ProcessGroup = SINGLE_PROCESS) -> Training:
    """A run at its beginning: the same recipe and seed give the same bits. With a group, the part of this process."""
    recipe, task = loaded.recipe, loaded.task
    threads = set_threads(recipe, group.on_this_machine)
    select_matmul_backend(isinstance(recipe.network, CnnSpec))
    streams = Streams(recipe.seed)
    counters = Counters(budget=recipe.budget.env_steps or 0)
    env = task.make(recipe, threads, group)
    seen = env.reset(streams.key("env"))
    curriculum = task.curriculum(recipe)
    if curriculum:
        seen = cast(ConfigurableVecEnv, env).set(**curriculum.settings())
    limit = task.limit or ENDLESS
    given = AgentContext(recipe.network, recipe.explore, env, counters, streams.child("agent"), limit, group)
    agent = make_agent(recipe.agent, given)
    tracker = Tracker(env.rows, env.device, env.components)
    tuning = Tuning(agent, counters, [Plateau(spec, recipe.to_env_steps(spec.patience)) for spec in recipe.plateau])
    made = Training(recipe, task, env, agent, counters, tracker, seen, tuning, Recent(recipe.metric), curriculum)
    if group.size > 1:
        made.company = Together(group, made)
    elif fits(made):
        made.whole = WholeRound(made)
    return made


def set_threads(recipe: Recipe, processes: int = 1) -> int:
    """Give torch the threads that the recipe asks for; sums over several may differ in their last bits.

    Processes that train together on one machine share them.
    """
    threads = max(1, recipe.thread_count // processes)
    torch.set_num_threads(threads)
    return threads
