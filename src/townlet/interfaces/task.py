"""The environment that an agent is trained in, as the training loop uses it, and its rendering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions, FinalObs, VecEnv

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from townlet.interfaces.state import State


class Scaling(NamedTuple):
    """Normalization of an observation [D]: subtract `center`, divide by `scale`, clip to ± `limit`."""

    center: NDArray[np.float32]
    scale: NDArray[np.float32]
    limit: NDArray[np.float32]


class RawObservation(NamedTuple):
    """The layout of observations as the environment returns them, and how they are normalized for the agent."""

    layout: ObservationLayout
    scaling: Scaling | None


class Task(Protocol):
    """The environment of a recipe: hides the differences between towns and Gymnasium environments."""

    @property
    def name(self) -> str:
        """Display name."""

    @property
    def interface(self) -> str:
        """Hash of observation and actions: equal for environments in which the same agents can act."""

    @property
    def limit(self) -> int | None:
        """Steps after which an episode is truncated; None without a time limit."""

    @property
    def threshold(self) -> float | None:
        """The mean return at which Gymnasium considers the environment solved; None if it defines none."""

    @property
    def goal(self) -> float | None:
        """The mean return that the recipe aims for, by default the threshold; None if there is neither."""

    @property
    def layout(self) -> ObservationLayout:
        """The layout of observations."""

    @property
    def actions(self) -> Actions:
        """The action space."""

    @property
    def final_value_names(self) -> tuple[str, ...]:
        """Names of the E values recorded at the end of every episode: the meters of a town."""

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """Final values [k, E] of the episodes that ended in the last step."""

    def raw_observation(self) -> RawObservation:
        """Layout and normalization of the environment's own observations, for programs outside Townlet."""

    def load_normalization(self, state: State) -> None:
        """Load the normalization of observations from the environment state of a checkpoint."""

    def fingerprint(self) -> dict[str, Any]:
        """Values that must be equal in a checkpoint and in the run that resumes from it."""

    def describe(self) -> dict[str, Any]:
        """Further entries of meta.json."""

    def files(self) -> dict[str, str]:
        """Texts by file name that are stored with a run, so that it does not depend on the original files."""


class RenderedEnv(Protocol):
    """One row of an environment and its player, rendered step by step."""

    fps: int
    best_label: str  # adjective for the episode with the highest score, such as "longest"

    @property
    def age(self) -> int:
        """Steps of this episode so far."""

    @property
    def score(self) -> float:
        """Steps survived, or the return so far."""

    @property
    def over(self) -> str:
        """Why the episode is over; "" while it is running."""

    def describe(self) -> str:
        """The score in a few words."""

    def step(self, action: int | None = None) -> None:
        """Take a step with this action, by default that of the player."""

    def next_episode(self) -> None:
        """Start the next episode."""

    def render_text(self, columns: int, lines: int, color: bool) -> str:
        """The current state for a terminal of this size, with control codes only if `color`; "" if not supported."""

    def render_rgb(self) -> NDArray[np.uint8] | None:
        """The current state as an image [height, width, 3]; None if not supported."""

    def close(self) -> None:
        """Release the environment."""
