"""What the training loop knows of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended, Seen, Step

if TYPE_CHECKING:
    from torch import Tensor

    from townlet.agents.policy import Policy


class Agent(Protocol):
    """Acts in N rows, learns from what came of it, and goes on exactly where its state was taken."""

    name: str
    round: int  # vector steps between two calls of `learn`
    intrinsic: Tensor  # [N], unweighted intrinsic reward of the last step; zeros without a bonus

    def act(self, seen: Seen) -> Tensor:
        """Exploring actions [N] int64. What must be kept of `seen` is copied."""

    def observe(self, step: Step, ended: Ended) -> None:
        """What came of the last actions."""

    def finished(self, episodes: Episodes) -> None:
        """Episodes that ended in the last step: exploration and its weight may follow them."""

    def entropy(self) -> Tensor:
        """Normalised entropy [N] in [0, 1] of the behaviour policy at the last act, computed only when asked."""

    def learn(self) -> dict[str, float] | None:
        """Learn from the last `round` steps: figures of the update, or None while warming up."""

    def policy(self) -> Policy:
        """The inference part; it shares the agent's weights."""

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by name, live."""

    def figures(self) -> dict[str, float]:
        """What is scheduled or annealed, at this moment: lr, epsilon, intrinsic_weight, …"""

    def state(self) -> State:
        """Everything that decides what happens next."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
