"""The environment that an agent is trained in, as the training loop sees it, and its rendering for people."""

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
    """Observations as the environment emits them, and how they are normalized for the agent."""

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
        """Steps after which an episode is truncated."""

    @property
    def threshold(self) -> float | None:
        """The mean return from which the environment counts as solved, if one is defined."""

    @property
    def layout(self) -> ObservationLayout:
        """The observation."""

    @property
    def actions(self) -> Actions:
        """The action space."""

    @property
    def final_value_names(self) -> tuple[str, ...]:
        """Names of the E values recorded at the end of every episode: the meters of a town."""

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """These values [k, E] of the episodes that ended in the last step."""

    def raw_observation(self) -> RawObservation:
        """The observation before normalization, for programs outside Townlet."""

    def load_normalization(self, state: State) -> None:
        """Load the normalization of observations from the environment state of a checkpoint."""

    def fingerprint(self) -> dict[str, Any]:
        """Facts in which a checkpoint and the run that resumes from it must agree."""

    def describe(self) -> dict[str, Any]:
        """Further facts for meta.json."""

    def files(self) -> dict[str, str]:
        """Texts stored with a run, so that it does not depend on the original files."""


class RenderedEnv(Protocol):
    """One row of an environment and its player, rendered step by step."""

    fps: int
    best_label: str  # adjective of the episode with the highest score

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
        """One step with this action; by default the player's."""

    def next_episode(self) -> None:
        """Start the next episode."""

    def render_text(self, columns: int, lines: int, colour: bool) -> str:
        """The current state for a terminal of that size, with control codes only if `colour`; "" if there is none."""

    def render_rgb(self) -> NDArray[np.uint8] | None:
        """The current state as an image [height, width, 3]."""

    def close(self) -> None:
        """Release the environment."""
