"""What a training asks of those who train along: here nobody does, and all of it is done at once or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.train.guards import check_reward

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.collect import Listener


class Alone:
    """The company of a process that trains by itself; see `Together` for the other."""

    size = 1

    def __init__(self, t: Training) -> None:
        self._t = t

    def begin(self, run: Run, changes: Sequence[str]) -> None:
        """Before the first round: say which run it is, and with which changes it goes on."""

    def restore(self, name: str) -> None:
        """Let all others go on from this checkpoint, as we do."""

    def begin_round(self) -> None:
        """Let all others play and learn with us."""

    def check(self, reward: Tensor) -> None:
        """Refuse a reward [N] that is not finite."""
        check_reward(reward, f"at env_steps {self._t.counters.env_steps}")

    def note(self, over: Episodes, ended: FinalObs) -> None:
        """Episodes that ended in the last step of our rows are counted."""
        self._t.count(over)

    def stepped(self) -> None:
        """A step of all rows was made."""

    def meet(self, listener: Listener) -> None:
        """After the steps of a round: all hear of the episodes of all."""

    def agree(self) -> None:
        """Before all learn: somebody may have changed the settings of the agent."""

    def end_round(self) -> None:
        """All have learned."""

    def join(self, own: State) -> State:
        """The state of all rows from that of our own."""
        return own

    def portion(self, state: State) -> State:
        """What is ours of the state of all rows."""
        return state

    def end(self) -> None:
        """Leave."""
