"""A town as an task: the world to train in, and the one to be measured in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from townlet.curriculum.curriculum import Curriculum, make_curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Discrete, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import Acting, Evaluated
from townlet.tasks.task import Best, EnvMetrics, Raw
from townlet.tasks.town_broadcast import Broadcast
from townlet.tasks.town_evaluation import TownEvaluated, evaluate, stream
from townlet.tasks.town_metrics import TownMetrics
from townlet.tasks.town_player import TrainedPlayer
from townlet.tasks.town_summary import TownSummary, summarize
from townlet.tasks.town_worlds import Worlds, text_of
from townlet.town.env import Town
from townlet.town.render.show import TownShow

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.sinks import Sink


@dataclass(frozen=True)
class TownTask:
    """Two worlds with the same interface."""

    worlds: Worlds

    @property
    def name(self) -> str:
        """Of the world."""
        return self.worlds.training.name

    @property
    def interface(self) -> str:
        """What an agent sees and does there."""
        return self.worlds.training.interface_hash

    @property
    def layout(self) -> ObservationLayout:
        """What is seen."""
        return self.worlds.training.layout

    @property
    def actions(self) -> Discrete:
        """What can be done."""
        return Discrete(self.worlds.training.actions)

    @property
    def limit(self) -> int:
        """The longest life."""
        return self.worlds.training.spec.max_steps

    @property
    def threshold(self) -> None:
        """A town is never solved."""

    def raw(self) -> Raw:
        """The same: a town is seen as it is."""
        return Raw(self.layout, None)

    def make(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> Town:
        """The town to train in."""
        world, rows, starts = self.worlds.training, recipe.row_count // group.size, recipe.starts
        first, engine, device = group.rank * rows, recipe.engine, recipe.device
        return Town(world, rows, engine=engine, device=device, threads=threads, starts=starts, first=first)

    @property
    def extras(self) -> tuple[str, ...]:
        """The meters."""
        return tuple(self.worlds.training.meters)

    def last(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """The meters [k, M] at the end of lives."""
        assert isinstance(env, Town)
        meters: NDArray[np.float32] = env.final_meters(ended).numpy()
        return meters

    def recall(self, state: State) -> None:
        """A town is seen as it is."""

    def curriculum(self, recipe: Recipe) -> Curriculum | None:
        """Stages by row, each with its meters, pace and rewards."""
        world = self.worlds.training
        if recipe.curriculum is None:
            return None
        return make_curriculum(recipe.curriculum, recipe.row_count, world.spec.max_steps, world.meters, world.rewards)

    def env_metrics(self, t: Training, store: MetricsStore) -> TownMetrics:
        """Diary, novelty and album."""
        assert isinstance(t.env, Town)
        return TownMetrics(t, t.env, store)

    def broadcasts(self, run: Run, t: Training, env_metrics: EnvMetrics) -> list[Sink]:
        """Lives as they end, and where all rows are."""
        assert isinstance(env_metrics, TownMetrics)
        assert isinstance(t.env, Town)
        told = Broadcast(run.feed_file, t, t.env)
        env_metrics.album.heard = told.heard
        return [told]

    def measure(self, policy: Acting, recipe: Recipe, ask: Callable[[], None]) -> TownEvaluated:
        """Whole lives in the world of evaluations."""
        wanted, there = recipe.evaluation, self.worlds.evaluation
        greedy, device = wanted.deterministic, recipe.device
        return evaluate(policy, there, wanted.episodes, wanted.seed, greedy=greedy, device=device, ask=ask)

    def show(self, policy: Acting, recipe: Recipe, device: str = "cpu") -> TownShow:
        """Lives of an evaluation: the first is the first that it measures."""
        wanted = recipe.evaluation
        player = TrainedPlayer(policy, wanted.deterministic, device)
        return TownShow(self.worlds.evaluation, player, Streams(stream(wanted.seed)).key("town"))

    def summarize(
        self, policy: Acting, recipe: Recipe, random: Evaluated, agent: Evaluated, best: Best | None
    ) -> TownSummary:
        """How long it lives when nothing stops it but death, and whether it works."""
        assert isinstance(random, TownEvaluated)
        assert isinstance(agent, TownEvaluated)
        return summarize(policy, recipe, random, agent, best)

    def facts(self) -> dict[str, Any]:
        """Both worlds, and the interface."""
        training, evaluation = self.worlds
        return {
            "world": training.content_hash,
            "evaluation_world": evaluation.content_hash,
            "interface": training.interface_hash,
        }

    def describe(self) -> dict[str, Any]:
        """The map, for reports."""
        world = self.worlds.training
        places = dict(zip(world.affordances, world.tables.cell_of[0].tolist(), strict=True))
        return {"size": list(world.size), "places": None if world.tables.shuffled else places}

    def texts(self) -> dict[str, str]:
        """Both worlds, whole: each with all that it extends and every change."""
        return {role: text_of(world, role) for role, world in self.worlds._asdict().items()}
