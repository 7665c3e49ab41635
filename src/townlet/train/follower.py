"""A process that trains along: it makes the steps of its rows and its part of every gradient, and writes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.distributed.process_group import ProcessGroup
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.train.build import Training, build
from townlet.train.collect import collect
from townlet.train.guards import Diverged
from townlet.train.multi_process import END, RESTORE, RUN, STATE
from townlet.train.reopen import reopen
from townlet.train.signals import ASKING


class Unheard:
    """Nobody listens here: the leader hears of all when they meet."""

    def stepped(self, actions: Tensor) -> None:
        """Nothing is written."""

    def episodes(self, over: Episodes, ended: FinalObs) -> None:
        """Nothing is written."""

    def lives(self, over: Episodes, extras: NDArray[np.float32], ago: NDArray[np.float64] | None = None) -> None:
        """Nothing is written."""

    def stages(self, changes: list[StageChange]) -> None:
        """Nothing is written."""


def follow(group: ProcessGroup) -> None:
    """Train along until the leader lets us go. Whoever wants to stop asks the leader."""
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)
    (word, *told), t = group.broadcast(), None
    while word != END:
        if word == RUN:
            run = Run(Path(told[0]))
            t = build(reopen(run, told[1]), group)
        elif t and word == RESTORE:
            t.restore(checkpoint.load(run.checkpoints / told[0])[0]["training"])
        elif t and word == STATE:
            t.state()
        elif t:
            _round(t)
        word, *told = group.broadcast()
    if t:
        t.env.close()
    group.close()


def _round(t: Training) -> None:
    """As in the leader's loop."""
    try:
        collect(t, t.agent.update_interval, Unheard())
    except Diverged as error:  # the leader says so
        raise SystemExit(error.exit_code) from None
    t.company.agree()
    t.agent.learn()
