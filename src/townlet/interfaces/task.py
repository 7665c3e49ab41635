"""What an agent is trained in, as the training loop sees it, and episodes of it rendered for people."""

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
    """One environment, as a recipe describes it. Towns and Gymnasium environments differ only behind this."""

    @property
    def name(self) -> str:
        """Name for people."""

    @property
    def interface(self) -> str:
        """Hash of observation and actions: equal if an agent of one can act in the other."""

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
        """Names of the values recorded at the end of every episode [E]: the meters of a town."""

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """These values [k, E] for the episodes that ended in the last step."""

    def raw_observation(self) -> RawObservation:
        """What a program outside Townlet observes, and how to normalize it."""

    def load_normalization(self, state: State) -> None:
        """Normalize observations as the environment did whose state a checkpoint holds."""

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run that resumes from it."""

    def describe(self) -> dict[str, Any]:
        """Further facts for meta.json."""

    def files(self) -> dict[str, str]:
        """Texts that a run stores, so that it does not depend on the originals."""


class RenderedEnv(Protocol):
    """One row of an environment and its player, rendered step by step, episode after episode."""

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
        """One step: the player's, or this action."""

    def next_episode(self) -> None:
        """Start the next episode."""

    def render_text(self, columns: int, lines: int, colour: bool) -> str:
        """The current state for a terminal of that size, with control codes only if `colour`; "" if there is none."""

    def render_rgb(self) -> NDArray[np.uint8] | None:
        """The current state as an image [height, width, 3]."""

    def close(self) -> None:
        """Release the environment."""
