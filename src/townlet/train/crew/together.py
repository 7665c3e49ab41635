"""What a process does beside training its own rows, so that all of a crew train one run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from townlet.contract.episodes import Episodes
from townlet.contract.state import State
from townlet.contract.vec_env import Ended
from townlet.train.crew.rows import joined, portion
from townlet.train.crew.team import LEADER, Gone, Team
from townlet.train.tuning import dumped

if TYPE_CHECKING:
    from townlet.runs.checkpoint import Checkpoint
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.collect import Listener

# What the leader says.
ROUND: Final = "round"
STATE: Final = "state"
END: Final = "end"

STEP, ROW = 0, 1  # the first columns of what is told of an episode; the others of `Episodes` and its extras follow
KINDS: Final = (torch.int64, torch.int64, torch.float32, torch.float32, torch.float32, torch.bool, torch.float32)


class Together:
    """One process of a crew with its training."""

    def __init__(self, team: Team, t: Training) -> None:
        self._team, self._t = team, t
        self._steps = 0  # since the last meeting
        self._lives: list[Tensor] = []
        self._told: dict[str, Any] | None = None  # the settings that all have

    @property
    def leads(self) -> bool:
        """Whether this process writes, measures and decides."""
        return self._team.rank == LEADER

    def begin(self, run: Run, last: Checkpoint | None, changes: Sequence[str]) -> None:
        """As the leader: say which run it is."""
        self._team.fix = f"see what it printed, then go on from the last checkpoint: townlet train --resume {run.path}"
        self._team.say({"run": str(run.path), "last": last.path.name if last else None, "changes": list(changes)})

    def say(self, word: str) -> None:
        """As the leader: let all others do something; they do it with us."""
        if self.leads:
            self._team.say(word)

    def note(self, over: Episodes, ended: Ended) -> None:
        """Episodes that ended in the last step of our rows."""
        rows = over.rows + self._team.rank * self._t.env.rows
        moment = torch.full((len(over),), self._steps)
        told = torch.stack([column.double() for column in (moment, rows, *over[1:])], 1)
        self._lives.append(torch.cat((told, torch.from_numpy(self._t.arena.extras(self._t.env, ended)).double()), 1))

    def stepped(self) -> None:
        """A step of all rows was made."""
        self._steps += 1

    def meet(self, listener: Listener) -> None:
        """After the steps of a round: all hear of the episodes of all."""
        none = torch.zeros((0, len(KINDS) + 1 + self._t.arena.extra_count), dtype=torch.float64)
        tables = self._team.gather_lines(torch.cat((none, *self._lives)))
        self._steps, self._lives = 0, []
        lines = torch.cat(tables)
        order = (lines[:, STEP] * self._t.rows + lines[:, ROW]).argsort()
        if len(order):
            self._t.count(_episodes(lines[order]))
        if self.leads and len(others := torch.cat(tables[1:])):
            listener.lives(_episodes(others), others[:, len(KINDS) + 1 :].float().numpy())

    def agree(self) -> None:
        """The settings of the agent as the leader has them now: somebody may have changed them."""
        agent = self._t.agent
        if self.leads:
            now = dumped(agent.settings)
            self._team.say(None if now == self._told else now)
            self._told = now
        elif (told := self._team.hear()) is not None:
            agent.tune(type(agent.settings).model_validate(told))

    def join(self, own: State) -> State:
        """The state of all rows, to the leader; the others get their own back."""
        self.say(STATE)
        return joined(own, self._t.env.rows, self._team.gather)

    def portion(self, state: State) -> State:
        """What is ours of the state of all rows."""
        return portion(state, self._t.env.rows, self._team.rank, self._team.size)

    def end(self) -> None:
        """Leave; the leader lets the others go."""
        with suppress(Gone):
            self.say(END)
        self._team.end()


def _episodes(lines: Tensor) -> Episodes:
    """The columns of `Episodes` out of such lines [k, C]."""
    return Episodes(*(column.to(kind) for column, kind in zip(lines.T[ROW:], KINDS, strict=False)))
