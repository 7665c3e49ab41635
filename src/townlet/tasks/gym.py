"""A Gymnasium environment as a task."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.agents.agent import Agent, no_interrupt
from townlet.curriculum.curriculum import Curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import TownletError
from townlet.gym import extras
from townlet.gym.contract import check_contract
from townlet.gym.make import RenderInfo, make_vec, registered_limit, render_info, row_factory
from townlet.gym.row_factory import construct
from townlet.gym.settings import GymSettings
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.spec import TimeLimitSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.interfaces.task import RawObservation
from townlet.interfaces.vec_env import Actions, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks import evaluation
from townlet.tasks.comparison import GymComparison, GymSummary
from townlet.tasks.env_metrics import EnvMetrics
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult, RandomPolicy
from townlet.tasks.gym_playback import RenderedGym, RenderMode

PARALLEL_EPISODES: Final = 16  # rows of an evaluation; few, since an environment may need much memory


class GymTask:
    """One environment, by its id and the settings of a recipe; see `townlet.tasks.experiment.TrainingTask`."""

    def __init__(self, id: str, settings: GymSettings, goal: float | None = None) -> None:
        self.name = id
        self.settings = settings
        self._goal = goal
        self.notes: list[str] = []
        self._training: GymVecEnv | None = None

    @cached_property
    def _probe(self) -> GymVecEnv:
        """An environment of one row, to read its spaces and settings."""
        return make_vec(self.name, self.settings, 1)

    def check(self) -> None:
        """Make one row and step it, so that a faulty environment is reported before training."""
        if self.settings.source is not None:
            plain = GymSettings(source=self.settings.source, kwargs=self.settings.kwargs)
            make = row_factory(self.name, plain).make
            self.notes = construct(self.name, lambda: check_contract(make(), self.name))

        def step_probe() -> None:
            obs, mask = self._probe.reset(0)
            self._probe.step(RandomPolicy(self.actions, Streams(0).torch("look")).act(obs, mask))
            self._probe.reset(0)

        construct(self.name, step_probe)

    @property
    def layout(self) -> ObservationLayout:
        return self._probe.layout

    @property
    def actions(self) -> Actions:
        return self._probe.actions

    @property
    def limit(self) -> int | None:
        return self._limit(self.settings)

    def _limit(self, settings: GymSettings) -> int | None:
        """Steps after which episodes are truncated; evaluation is not subject to limits of training only."""
        limits = [wrapper.steps for wrapper in settings.wrappers if isinstance(wrapper, TimeLimitSpec)]
        if settings.max_episode_steps is not None:
            limits.append(settings.max_episode_steps)
        elif (registered := registered_limit(self.name, settings)) is not None:
            frames_per_step = 1 if extras.is_atari(self.name) else settings.frame_skip
            limits.append(math.ceil(registered / frames_per_step))
        return min(limits, default=None)

    @property
    def threshold(self) -> float | None:
        return extras.reward_threshold(self.name)

    @property
    def goal(self) -> float | None:
        return self.threshold if self._goal is None else self._goal

    @cached_property
    def interface(self) -> str:
        actions = {"kind": type(self.actions).__name__, **asdict(self.actions)}
        blocks = [asdict(block) for block in self.layout]
        return hashlib.sha256(json.dumps([blocks, actions], sort_keys=True).encode()).hexdigest()

    def raw_observation(self) -> RawObservation:
        scaling = self._normalizing_env.scaling
        if scaling is None:
            return RawObservation(self.layout, None)
        plain = make_vec(self.name, self.settings.model_copy(update={"normalize_obs": "none"}))
        plain.close()
        return RawObservation(plain.layout, scaling)

    def load_normalization(self, state: State) -> None:
        self._normalizing_env.restore_transforms(state)

    @property
    def _normalizing_env(self) -> GymVecEnv:
        """The environment whose normalization statistics the others copy."""
        return self._probe if self._training is None else self._training

    def make_env(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> GymVecEnv:
        """The training environment; its rows are not divided among processes."""
        self._training = make_vec(self.name, self.settings, recipe.row_count, recipe.device)
        return self._training

    def make_eval_env(self, rows: int = 1, device: str = "cpu", render_mode: str | None = None) -> GymVecEnv:
        """An environment with its original rewards, and the training environment's current normalization."""
        env = make_vec(self.name, self.settings.unshaped(), rows, device, render_mode=render_mode)
        env.copy_transforms(self._normalizing_env)
        return env

    final_value_names: tuple[str, ...] = ()

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        return np.zeros((len(ended.rows), 0), np.float32)

    def make_curriculum(self, recipe: Recipe) -> Curriculum | None:
        return None

    def make_metrics(
        self, recipe: Recipe, env: VecEnv, agent: Agent, counters: Counters, curriculum: Curriculum | None,
        store: MetricsStore,
    ) -> EnvMetrics:  # fmt: skip
        return EnvMetrics()

    def evaluate(self, policy: ActingPolicy, recipe: Recipe, check_interrupt: Callable[[], None]) -> EvaluationResult:
        settings = recipe.evaluation
        return self.run_evaluation(
            policy, settings.episodes, settings.seed, greedy=settings.deterministic, device=recipe.device,
            check_interrupt=check_interrupt,
        )  # fmt: skip

    def run_evaluation(
        self,
        policy: ActingPolicy,
        episodes: int,
        seed: int,
        *,
        greedy: bool = True,
        device: str = "cpu",
        check_interrupt: Callable[[], None] = no_interrupt,
    ) -> EvaluationResult:
        """Evaluate a policy on complete episodes with the original rewards of the environment."""
        with closing(self.make_eval_env(min(PARALLEL_EPISODES, episodes), device)) as env:
            key = Streams(seed).key("env")
            columns = evaluation.run_episodes(
                policy, env, episodes, key, greedy=greedy, device=device, check_interrupt=check_interrupt,
                on_long_episode=self._require_limit,
            )  # fmt: skip
        if not np.isfinite(columns["returns"]).all():
            raise TownletError(
                f"{self.name} returned a reward that is NaN or infinite", "return finite rewards from step()"
            )
        causes = tuple(EnvMetrics.causes[0 if terminated else 1] for terminated in columns["terminated"])
        return EvaluationResult(limit=self._limit(self.settings.unshaped()), causes=causes, **columns)

    def _require_limit(self) -> None:
        """Raise an error if nothing limits the length of an episode: an evaluation might never end."""
        if self._limit(self.settings.unshaped()) is None:
            steps = f"{evaluation.LONG_EPISODE:,} steps"
            what = f"an episode of {self.name} has not ended after {steps}, and nothing limits it"
            raise TownletError(what, "set gym.max_episode_steps, or let step() return truncated=True at a limit")

    @cached_property
    def render_info(self) -> RenderInfo:
        """Render modes and frame rate."""
        return render_info(self.name, self.settings)

    def render(self, policy: ActingPolicy, recipe: Recipe, device: str = "cpu") -> RenderedGym:
        settings = recipe.evaluation
        return self.render_episodes(policy, settings.seed, "rgb_array", greedy=settings.deterministic, device=device)

    def render_episodes(
        self, player: ActingPolicy, seed: int, mode: RenderMode | None, *, greedy: bool = True, device: str = "cpu"
    ) -> RenderedGym:
        """Episodes of a player, the first with this seed; raises if the environment does not support `mode`."""
        if mode is not None and mode not in self.render_info.modes:
            raise TownletError(f"{self.name} cannot render images", "drop --window, --video and `video`")
        return RenderedGym(self.make_eval_env(1, device, mode), self.render_info.fps, player, seed, greedy=greedy)

    def summarize(
        self, policy: ActingPolicy, recipe: Recipe, random: EvaluationResult, trained: EvaluationResult,
        best: BestCheckpoint | None,
    ) -> GymSummary:  # fmt: skip
        return GymSummary(random, trained, self.threshold, self.goal, best, recipe.evaluation.deterministic)

    def compare(
        self, make_policy: Callable[[], ActingPolicy], episodes: int, seed: int, *, greedy: bool = True
    ) -> GymComparison:
        """Evaluate a policy and a random one."""
        random = RandomPolicy(self.actions, Streams(seed).torch("random"))
        return GymComparison(
            self.run_evaluation(random, episodes, seed),
            self.run_evaluation(make_policy(), episodes, seed, greedy=greedy),
            self.threshold,
            self.goal,
            greedy=greedy,
            title=f"{self.name}: {episodes} episodes each, seed {seed}",
        )

    def fingerprint(self) -> dict[str, Any]:
        exclude = {"source"} if self.settings.source is None else set()  # runs of earlier versions do not have the key
        settings = json.dumps(self.settings.model_dump(mode="json", exclude=exclude), sort_keys=True)
        return {"gym": hashlib.sha256(settings.encode()).hexdigest(), "interface": self.interface}

    def describe(self) -> dict[str, Any]:
        return {"limit": self.limit, "threshold": self.threshold, "goal": self.goal}

    def files(self) -> dict[str, str]:
        """No files: the environment belongs to another package."""
        return {}
