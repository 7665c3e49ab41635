"""A Gymnasium environment as an task."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.agents.agent import no_interrupt
from townlet.curriculum.curriculum import Curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.gym.extras import is_atari
from townlet.gym.make import RenderInfo, env_info, make_vec, render_info
from townlet.gym.row_env import construct
from townlet.gym.spec import EnvSpec
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.spec import TimeLimitSpec
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Actions, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import TIME, Acting, Evaluated, Uniform, play
from townlet.tasks.gym_metrics import OVER, GymMetrics
from townlet.tasks.gym_show import GymShow
from townlet.tasks.gym_summary import GymSummary
from townlet.tasks.task import Best, EnvMetrics, Raw

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.sinks import Sink

SIDE_BY_SIDE: Final = 16  # episodes at once: an environment of others may be large


class GymTask:
    """One environment by its id, as a recipe wants it made; `threshold` is the recipe's own, if it has one."""

    def __init__(self, id: str, spec: EnvSpec, threshold: float | None = None) -> None:
        self.name, self.spec, self._threshold = id, spec, threshold
        self._training: GymVecEnv | None = None

    @cached_property
    def _one(self) -> GymVecEnv:
        """A row to look at."""
        return make_vec(self.name, self.spec, 1)

    def look(self) -> None:
        """Make a row and one step in it: what cannot be made is said now."""
        construct(self.name, self._try_out)

    def _try_out(self) -> None:
        seen = self._one.reset(0)
        self._one.step(Uniform(self.actions, Streams(0).torch("look")).act(seen.obs, seen.mask))
        self._one.reset(0)

    @property
    def layout(self) -> ObservationLayout:
        """What is seen."""
        return self._one.layout

    @property
    def actions(self) -> Actions:
        """What can be done."""
        return self._one.actions

    @property
    def limit(self) -> int | None:
        """Steps after which an episode is cut short."""
        limits = [wrapper.steps for wrapper in self.spec.wrappers if isinstance(wrapper, TimeLimitSpec)]
        if self.spec.max_episode_steps is not None:
            limits.append(self.spec.max_episode_steps)
        elif (own := env_info(self.name).max_episode_steps) is not None:
            limits.append(own if is_atari(self.name) else math.ceil(own / self.spec.frame_skip))
        return min(limits, default=None)

    @property
    def threshold(self) -> float | None:
        """The return from which on it counts as solved: the recipe's, or the environment's own."""
        return env_info(self.name).reward_threshold if self._threshold is None else self._threshold

    @cached_property
    def interface(self) -> str:
        """Equal where an agent sees and does the same things."""
        actions = {"kind": type(self.actions).__name__, **asdict(self.actions)}
        seen = [asdict(block) for block in self.layout]
        return hashlib.sha256(json.dumps([seen, actions], sort_keys=True).encode()).hexdigest()

    def raw(self) -> Raw:
        """The layout without normalisation, and what was learned of that."""
        if self._eyes.scaling is None:
            return Raw(self.layout, None)
        plain = make_vec(self.name, self.spec.model_copy(update={"normalize_obs": "none"}))
        plain.close()
        return Raw(plain.layout, self._eyes.scaling)

    def make(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> GymVecEnv:
        """The environment to train in, whole: processes do not share it."""
        self._training = make_vec(self.name, self.spec, recipe.row_count, recipe.device)
        return self._training

    extras: tuple[str, ...] = ()

    def last(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """None [k, 0]."""
        return np.zeros((len(ended.rows), 0), np.float32)

    def recall(self, state: State) -> None:
        """Bring observations to one size as a training did."""
        self._eyes.restore_transforms(state)

    @property
    def _eyes(self) -> GymVecEnv:
        """The environment whose view of things others follow."""
        return self._one if self._training is None else self._training

    def stage(self, rows: int = 1, device: str = "cpu", render_mode: str | None = None) -> GymVecEnv:
        """An environment to be measured or shown in: its own rewards, seen as training sees it now."""
        env = make_vec(self.name, self.spec.unshaped(), rows, device, render_mode=render_mode)
        env.copy_transforms(self._eyes)
        return env

    def curriculum(self, recipe: Recipe) -> Curriculum | None:
        """None: only towns have stages."""
        return None

    def env_metrics(self, t: Training, store: MetricsStore) -> GymMetrics:
        """Who counts how episodes end."""
        return GymMetrics()

    def broadcasts(self, run: Run, t: Training, env_metrics: EnvMetrics) -> list[Sink]:
        """Nobody: curves are read from the store."""
        return []

    def measure(self, policy: Acting, recipe: Recipe, ask: Callable[[], None]) -> Evaluated:
        """An evaluation as the recipe wants it."""
        wanted = recipe.evaluation
        greedy, device = wanted.deterministic, recipe.device
        return self.evaluate(policy, wanted.episodes, wanted.seed, greedy=greedy, device=device, ask=ask)

    def evaluate(
        self,
        policy: Acting,
        episodes: int,
        seed: int,
        *,
        greedy: bool = True,
        device: str = "cpu",
        ask: Callable[[], None] = no_interrupt,
    ) -> Evaluated:
        """Whole episodes with the environment's own rewards, seen as training sees them."""
        with closing(self.stage(min(SIDE_BY_SIDE, episodes), device)) as env:
            found = play(policy, env, episodes, Streams(seed).key("env"), greedy=greedy, ask=ask)
        causes = tuple(OVER if dead else TIME for dead in found["terminated"])
        return Evaluated(limit=self.limit, causes=causes, **found)

    @cached_property
    def render_info(self) -> RenderInfo:
        """How it can be watched."""
        return render_info(self.name, self.spec)

    def show(self, policy: Acting, recipe: Recipe, device: str = "cpu") -> GymShow:
        """Episodes of an evaluation, drawn."""
        wanted = recipe.evaluation
        return GymShow(self, policy, wanted.seed, "rgb_array", greedy=wanted.deterministic, device=device)

    def summarize(
        self, policy: Acting, recipe: Recipe, random: Evaluated, agent: Evaluated, best: Best | None
    ) -> GymSummary:
        """Solved, or not."""
        return GymSummary(random, agent, self.threshold, best, recipe.evaluation.deterministic)

    def facts(self) -> dict[str, Any]:
        """What is seen and done, and how it is made."""
        made = json.dumps(self.spec.model_dump(mode="json"), sort_keys=True)
        return {"gym": hashlib.sha256(made.encode()).hexdigest(), "interface": self.interface}

    def describe(self) -> dict[str, Any]:
        """The limit and the threshold, for reports."""
        return {"limit": self.limit, "threshold": self.threshold}

    def texts(self) -> dict[str, str]:
        """Nothing: the environment is another package's."""
        return {}
