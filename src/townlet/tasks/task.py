"""Where a recipe trains and is measured: what the loop, the journal and the end of a run ask of it.

The loop knows the contract and nothing else. All that is special about a kind of environment stands behind these
two: an `Task` makes environments and measures policies in them, an `EnvMetrics` listens while one trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import Curriculum, StageChange
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.show import Show
from townlet.interfaces.state import State, Stateful
from townlet.interfaces.vec_env import Actions, Episodes, FinalObs, VecEnv
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import Acting, Evaluated

if TYPE_CHECKING:
    from townlet.gym.wrappers.transforms import Scaling
    from townlet.recipes.schema import Recipe
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.sinks import Sink


class EnvMetrics(Stateful, Protocol):
    """Listens to one training for the journal."""

    causes: tuple[str, ...]  # why episodes end, by code

    def stepped(self, actions: Tensor) -> None:
        """A step of all rows was made by these actions."""

    def codes(self, terminated: NDArray[np.bool_], extras: NDArray[Any]) -> NDArray[np.int64]:
        """Why episodes ended [k]: places in `causes`."""

    def episodes(self, over: Episodes, stage: Tensor | None, extras: NDArray[np.float32]) -> None:
        """Episodes that ended in the last step, with the stage [k] each was lived in."""

    def stages(self, changes: Sequence[StageChange]) -> None:
        """Rows that went on or back."""

    def mark(self, store: MetricsStore, moment: dict[str, int]) -> dict[str, float]:
        """Write what was gathered since the last mark, and begin anew; its figures."""


class Best(NamedTuple):
    """The best evaluation of a run, which is not the last one."""

    env_steps: int
    metric: str
    score: float


class Raw(NamedTuple):
    """What an environment gives before it is brought to size for an agent, and how it is."""

    layout: ObservationLayout
    scaling: Scaling | None


class Summary(Protocol):
    """What came of a training."""

    def sentences(self) -> list[str]:
        """What a person should know, the best and the worst of it."""


class Task(Protocol):
    """One environment as a recipe describes it, to train in and to be measured in."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def interface(self) -> str:
        """Equal where an agent sees and does the same things."""

    @property
    def limit(self) -> int | None:
        """Steps after which an episode is cut short."""

    @property
    def threshold(self) -> float | None:
        """The return from which on it counts as solved; None where nobody has said."""

    @property
    def layout(self) -> ObservationLayout:
        """What is seen."""

    @property
    def actions(self) -> Actions:
        """What can be done."""

    def raw(self) -> Raw:
        """What another program sees there, and has to do with it before it shows it to an agent."""

    def make(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> VecEnv:
        """The environment to train in, before its reset; of a group, its rows that are here."""

    @property
    def extras(self) -> tuple[str, ...]:
        """Numbers that are known of the end of every episode, by name."""

    def last(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """The extras [k, E] of the episodes that ended in the last step."""

    def recall(self, state: State) -> None:
        """See as the environment did whose state a checkpoint holds, from the next step on."""

    def curriculum(self, recipe: Recipe) -> Curriculum | None:
        """The stages of difficulty that the recipe asks for."""

    def env_metrics(self, t: Training, store: MetricsStore) -> EnvMetrics:
        """Who listens to a training here."""

    def broadcasts(self, run: Run, t: Training, env_metrics: EnvMetrics) -> list[Sink]:
        """Who tells those that watch a training now."""

    def measure(self, policy: Acting, recipe: Recipe, ask: Callable[[], None]) -> Evaluated:
        """An evaluation as the recipe wants it."""

    def show(self, policy: Acting, recipe: Recipe, device: str = "cpu") -> Show:
        """Episodes of an evaluation to be watched, with pictures; refused where none are drawn.

        `device` is where the policy's network is.
        """

    def summarize(
        self, policy: Acting, recipe: Recipe, random: Evaluated, agent: Evaluated, best: Best | None
    ) -> Summary:
        """What came of a training, measured once more where that tells more."""

    def facts(self) -> dict[str, Any]:
        """What a checkpoint must share with the run that goes on from it."""

    def describe(self) -> dict[str, Any]:
        """What meta.json says of it beside the facts."""

    def texts(self) -> dict[str, str]:
        """Files that a run keeps, so that it can go on whatever becomes of the originals."""
