"""A process that trains along: it makes the steps of its rows and its part of every gradient, and writes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from townlet.contract.episodes import Episodes
from townlet.contract.vec_env import Ended
from townlet.curriculum.curriculum import StageChange
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.train.build import Training, build
from townlet.train.collect import collect
from townlet.train.crew.team import Team
from townlet.train.crew.together import END, ROUND
from townlet.train.reopen import reopen
from townlet.train.signals import ASKING
from townlet.train.weights import warm_start


class Unheard:
    """Nobody listens here: the leader hears of all when they meet."""

    def stepped(self, actions: Tensor) -> None:
        """Nothing is written."""

    def episodes(self, over: Episodes, ended: Ended) -> None:
        """Nothing is written."""

    def lives(self, over: Episodes, extras: NDArray[np.float32]) -> None:
        """Nothing is written."""

    def stages(self, changes: list[StageChange]) -> None:
        """Nothing is written."""


def follow(team: Team) -> None:
    """Train along until the leader lets us go. Whoever wants to stop asks the leader."""
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)
    told = team.hear()
    run = Run(Path(told["run"]))
    loaded = reopen(run, told["changes"])
    t = build(loaded, team)
    if told["last"] is not None:
        t.restore(checkpoint.read(run.checkpoints / told["last"])[0]["training"])
    elif source := loaded.recipe.init_from:
        warm_start(t, Run.open(source, run.path.parent))
    try:
        while (word := team.hear()) != END:
            _round(t) if word == ROUND else t.state()
    finally:
        t.env.close()
        team.end()


def _round(t: Training) -> None:
    """As in the leader's loop."""
    assert t.together is not None
    collect(t, t.agent.round, Unheard())
    t.together.agree()
    t.agent.learn()
