"""What a process does beside training its own rows, so that all of a group train one run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from townlet.agents.registry import entry
from townlet.distributed.process_group import ProcessGroup, ProcessLost
from townlet.distributed.row_sharding import gather_state, local_state
from townlet.interfaces.state import State
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.train.guards import ITS_OWN, Diverged, wrong_reward
from townlet.train.single_process import Alone
from townlet.train.tuning import dumped

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.train.build import Training
    from townlet.train.collect import Listener

# What the leader says, alone or before what belongs to it.
RUN: Final = "run"
RESTORE: Final = "restore"
ROUND: Final = "round"
STATE: Final = "state"
END: Final = "end"

STEP, ROW = 0, 1  # the first columns of what is told of an episode; the others of `Episodes` and its extras follow
KINDS: Final = (torch.int64, torch.int64, torch.float32, torch.float32, torch.float32, torch.bool, torch.float32)


class Together(Alone):
    """One process of a group with its training."""

    def __init__(self, group: ProcessGroup, t: Training) -> None:
        super().__init__(t)
        self._group, self.size = group, group.size
        axes = entry(t.recipe.agent.name).shard_axes
        self._axes = {("env",): 0, ("tracker",): 0} | {("agent", *path.split("/")): axis for path, axis in axes.items()}
        self._steps = 0  # since the last meeting
        self._lives: list[Tensor] = []
        self._told: dict[str, Any] | None = None  # the settings that all have
        self._wrong: list[list[float]] = []  # rows and rewards that are no numbers
        self._amid = False  # in a round: nobody listens to what the leader says

    @property
    def leads(self) -> bool:
        """Whether this process writes, measures and decides."""
        return self._group.is_leader

    def begin(self, run: Run, changes: Sequence[str]) -> None:
        """As the leader: say which run it is."""
        self._group.fix = f"see what it printed, then go on from the last checkpoint: townlet train --resume {run.path}"
        self._say(RUN, str(run.path), list(changes))

    def restore(self, name: str) -> None:
        """As the leader: let all others go on from this checkpoint, as we do."""
        self._say(RESTORE, name)

    def begin_round(self) -> None:
        """As the leader: let all others play and learn with us."""
        self._say(ROUND)
        self._amid = True

    def end_round(self) -> None:
        """All have learned, and the others listen."""
        self._amid = False

    def _say(self, word: str, *more: Any) -> None:
        if self.leads:
            self._group.broadcast([word, *more])

    def check(self, reward: Tensor) -> None:
        """As `check_reward`; what is found is told when all meet: who raises alone leaves the others waiting."""
        if found := wrong_reward(reward):
            row, value = found
            self._wrong.append([row + self._group.rank * self._t.env.rows, value])

    def note(self, over: Episodes, ended: FinalObs) -> None:
        """Episodes that ended in the last step of our rows."""
        rows = over.rows + self._group.rank * self._t.env.rows
        moment = torch.full((len(over),), self._steps)
        told = torch.stack([column.double() for column in (moment, rows, *over[1:])], 1)
        self._lives.append(torch.cat((told, torch.from_numpy(self._t.task.last(self._t.env, ended)).double()), 1))

    def stepped(self) -> None:
        """A step of all rows was made."""
        self._steps += 1

    def meet(self, listener: Listener) -> None:
        """After the steps of a round: all hear of the episodes of all."""
        none = torch.zeros((0, len(KINDS) + 1 + len(self._t.task.extras)), dtype=torch.float64)
        tables = self._group.all_gather(torch.cat((none, *self._lives)))
        lines, others = torch.cat(tables), torch.cat(tables[1:])
        order = (lines[:, STEP] * self._t.rows + lines[:, ROW]).argsort()
        if len(order):
            self._t.count(_episodes(lines[order]))
        if self.leads and len(others):
            ago = (self._steps - 1 - others[:, STEP]) * self._t.rows
            listener.lives(_episodes(others), others[:, len(KINDS) + 1 :].float().numpy(), ago.numpy())
        self._steps, self._lives = 0, []
        self._refuse()

    def _refuse(self) -> None:
        """Somebody's reward was no number: all raise."""
        wrong = torch.cat(self._group.all_gather(torch.tensor(self._wrong[:1], dtype=torch.float64).view(-1, 2)))
        if len(wrong):
            row, value = wrong[0].tolist()
            raise Diverged(f"reward of row {row:.0f}", value, f"at env_steps {self._t.counters.env_steps}", ITS_OWN)

    def agree(self) -> None:
        """The settings of the agent as the leader has them now: somebody may have changed them."""
        agent = self._t.agent
        if self.leads:
            now = dumped(agent.settings)
            self._group.broadcast(None if now == self._told else now)
            self._told = now
        elif (told := self._group.broadcast()) is not None:
            agent.tune(type(agent.settings).model_validate(told))

    def join(self, own: State) -> State:
        """The state of all rows, to the leader; the others get their own back."""
        self._say(STATE)
        return gather_state(own, self._t.env.rows, self._axes, self._group.gather)

    def portion(self, state: State) -> State:
        """What is ours of the state of all rows."""
        return local_state(state, self._t.env.rows, self._axes, self._group.rank, self._group.size)

    def end(self) -> None:
        """Leave; the leader lets the others go, who in the midst of a round find that it is gone."""
        if not self._amid:
            with suppress(ProcessLost):
                self._say(END)
        self._group.close()


def _episodes(lines: Tensor) -> Episodes:
    """The columns of `Episodes` out of such lines [k, C]."""
    return Episodes(*(column.to(kind) for column, kind in zip(lines.T[ROW:], KINDS, strict=False)))
