"""What the training loop knows of an agent, and what every agent is made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from townlet.agents.settings import AgentSettings
from townlet.contract.counters import Counters
from townlet.contract.crew import SOLO, Crew
from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended, Seen, Step, VecEnv
from townlet.explore.bonus import Bonus
from townlet.explore.spec import ExploreSpec
from townlet.nets.spec import NetworkSpec
from townlet.rng import Streams

if TYPE_CHECKING:
    from torch import Tensor

    from townlet.agents.policy import Policy
    from townlet.agents.whole import Whole


@dataclass(frozen=True)
class Materials:
    """What every agent is made from, beside its own settings. It takes what it needs: a table needs no network."""

    network: NetworkSpec
    explore: ExploreSpec
    env: VecEnv  # rows, layout, actions and device; the agent never steps it
    counters: Counters  # of the whole run; the agent counts its updates there
    streams: Streams
    max_steps: int  # the longest life
    crew: Crew = SOLO  # who else trains the same, with other rows


def unasked() -> None:
    """Nobody wants it to stop."""


class Agent(Protocol):
    """Acts in N rows, learns from what came of it, and goes on exactly where its state was taken."""

    name: str
    round: int  # vector steps between two calls of `learn`
    on_policy: bool  # nothing that was lived outlasts its round, so a state is small and a round can be begun anew
    bonus: Bonus | None  # what novelty is, to agents that are paid for it
    behind: Tensor  # what stood behind the last act, as the agent has it; `outputs` reads it
    whole: Whole | None  # its part in rounds that nobody looks into; None where it has none
    intrinsic: Tensor  # [N], unweighted intrinsic reward of the last step; zeros without a bonus

    @property
    def outputs_are(self) -> Literal["values", "probabilities", "means"]:
        """What `outputs` gives."""

    @property
    def settings(self) -> AgentSettings:
        """Its settings as they are now."""

    def tune(self, settings: AgentSettings) -> None:
        """Go on with other values of what the registry calls tunable, from the next update on."""

    def act(self, seen: Seen) -> Tensor:
        """Exploring actions as the environment wants them. What must be kept of `seen` is copied.

        The actions and `behind` are new tensors at every call: who keeps them keeps what they were.
        """

    def observe(self, step: Step, ended: Ended) -> None:
        """What came of the last actions."""

    def cut(self) -> None:
        """The episodes under way were broken off: whatever is seen next begins new ones."""

    def finished(self, episodes: Episodes) -> None:
        """Episodes that ended in the last step: exploration and its weight may follow them."""

    def outputs(self, behind: Sequence[Tensor], rows: int) -> Tensor:
        """What stood behind some acts of the first rows [T, rows, K]; as in `Policy.outputs`."""

    def entropy(self) -> Tensor:
        """Normalised entropy [N] in [0, 1] of the behaviour policy at the last act, computed only when asked."""

    def learn(self, ask: Callable[[], None] = unasked) -> dict[str, float] | None:
        """Learn from the last `round` steps: figures of the update, or None while warming up.

        Where this takes long `ask` is called on the way. It may raise: then only an older state can be gone on from.
        """

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
