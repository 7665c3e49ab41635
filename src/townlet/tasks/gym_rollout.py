"""One episode of a Gymnasium environment, step by step, with all that there is to see of it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.gym.vector_env import GymVecEnv
from townlet.interfaces.vec_env import MaskedObs
from townlet.rng import Streams
from townlet.tasks.evaluation import Acting


class Showing(Acting, Protocol):
    """Who plays and can tell what stood behind it, see `townlet.agents.policy.Policy`."""

    def outputs(
        self, obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What stands behind the next act, each [1, A]."""


class Led(NamedTuple):
    """The step that led to a moment."""

    action: NDArray[Any]  # [] int64, or [A] binary or continuous
    outputs: dict[str, NDArray[np.float32]]  # by name, each [A]
    reward: float


class Moment(NamedTuple):
    """What there is to see, and how it came to that; the first moment has no step before it."""

    obs: NDArray[np.float32]  # [D], as the agent sees it
    mask: NDArray[np.bool_]  # [K]
    frame: Any  # [H, W, 3] uint8, a text, or None where nothing is rendered
    led: Led | None = None


class Rollout:
    """One row, played as far as somebody looks. `env` has one row; where it is rendered, every moment has a frame.

    Unless told to `keep` all moments, `moments` holds the last one alone: frames are large.
    """

    def __init__(self, env: GymVecEnv, seed: int, player: Acting, *, greedy: bool = True, keep: bool = True) -> None:
        self.env, self.player, self._greedy, self._keep = env, player, greedy, keep
        self.moments: list[Moment] = []
        self.steps, self.reward = 0, 0.0  # made, and won, so far
        self.terminated = self.truncated = False
        player.reset(1)
        self._seen = env.reset(Streams(seed).key("env"))
        self._look(self._seen)

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    def step(self, action: Tensor | None = None) -> Moment:
        """One step: the player's, or this action [1] or [1, A]."""
        obs, mask = self._seen
        fresh = torch.tensor([self.steps == 0], device=obs.device)
        behind: dict[str, Tensor] = getattr(self.player, "outputs", _nothing)(obs, mask, fresh)
        chosen = self.player.act(obs, mask, fresh, self._greedy) if action is None else action
        outputs = {name: part[0].cpu().numpy().copy() for name, part in behind.items()}
        step = self.env.step(chosen)
        led = Led(chosen[0].cpu().numpy().copy(), outputs, float(step.reward[0]))
        self.steps, self.reward = self.steps + 1, self.reward + led.reward
        self.terminated, self.truncated = bool(step.terminated[0]), bool(step.truncated[0])
        ended = self.env.final_obs()
        self._seen = MaskedObs(ended.obs, ended.mask) if self.over else MaskedObs(step.obs, step.mask)
        return self._look(self._seen, led)

    def play(self, steps: int | None = None) -> list[Moment]:
        """To the end, or so many steps; all moments so far."""
        while not self.over and (steps is None or self.steps < steps):
            self.step()
        return self.moments

    def _look(self, seen: MaskedObs, led: Led | None = None) -> Moment:
        frames = self.env.frames()
        obs, mask = (part[0].cpu().numpy().copy() for part in seen)
        moment = Moment(obs, mask, frames[0] if frames else None, led)
        if not self._keep:
            self.moments.clear()
        self.moments.append(moment)
        return moment


def _nothing(obs: Tensor, mask: Tensor | None = None, episode_start: Tensor | None = None) -> dict[str, Tensor]:
    """A player that does not tell."""
    return {}
