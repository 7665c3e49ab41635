"""Steps of all rows: act, step, observe, and tell of what ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.agents.agent import no_interrupt
from townlet.curriculum.curriculum import StageChange
from townlet.interfaces.vec_env import ConfigurableVecEnv, Episodes, FinalObs, MaskedObs
from townlet.train.build import Training


class Listener(Protocol):
    """Who is told of steps, episodes and stages."""

    def stepped(self, actions: Tensor) -> None:
        """A step of all rows was made by these actions [N]."""

    def episodes(self, over: Episodes, ended: FinalObs) -> None:
        """Episodes that ended in the last step."""

    def lives(self, over: Episodes, extras: NDArray[np.float32], ago: NDArray[np.float64] | None = None) -> None:
        """Episodes that ended in a round into which nobody looked, with what is known of their ends [k, E].

        They ended so many env_steps `ago` [k], where that is known.
        """

    def stages(self, changes: list[StageChange]) -> None:
        """Rows that went on or back."""


def collect(t: Training, steps: int, listener: Listener, ask: Callable[[], None] = no_interrupt) -> None:
    """That many steps of every row; `ask` is called before each and may raise."""
    if t.whole is not None:
        t.whole.collect(listener)
        return
    asks_entropy = t.curriculum is not None and t.curriculum.needs_entropy
    for _ in range(steps):
        ask()
        actions = t.agent.act(t.seen)
        step = t.env.step(actions)
        t.counters.env_steps += t.rows
        t.company.check(step.reward)
        ended = t.env.final_obs()
        t.agent.observe(step, ended)
        listener.stepped(actions)
        over = t.tracker.step(step, ended, t.agent.intrinsic, t.agent.entropy() if asks_entropy else None)
        t.seen = MaskedObs(step.obs, step.mask)
        if len(over):
            t.company.note(over, ended)
            t.agent.on_episodes_end(over)
            listener.episodes(over, ended)
            if t.curriculum and (changes := t.curriculum.update(over)):
                rows = torch.tensor([change.row for change in changes])
                t.seen = cast(ConfigurableVecEnv, t.env).set(rows, **t.curriculum.settings(rows))
                listener.stages(changes)
        t.company.stepped()
    t.company.meet(listener)
