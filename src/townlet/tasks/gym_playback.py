"""Episodes of a Gymnasium environment played one step at a time, recorded and rendered."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.gym.vector_env import GymVecEnv
from townlet.interfaces.vec_env import Actions, Discrete, MaskedObs
from townlet.rng import Streams
from townlet.tasks.comparison import format_return
from townlet.tasks.evaluation import TERMINATED, TIME_LIMIT, ActingPolicy

RenderMode = Literal["rgb_array", "ansi"]
HALF_BLOCK = "▀"
ANSI_RESET = "\x1b[0m"


class RolloutTransition(NamedTuple):
    """The step that led to a frame."""

    action: NDArray[Any]  # [] int64, or [A] binary or continuous
    outputs: dict[str, NDArray[np.float32]]  # the network's outputs by name, each [A]
    reward: float


class RolloutFrame(NamedTuple):
    """One state of an episode; the first one has no transition before it."""

    obs: NDArray[np.float32]  # [D], as the agent observes it
    mask: NDArray[np.bool_]  # [K]
    image: Any  # [H, W, 3] uint8, a text, or None if nothing is rendered
    transition: RolloutTransition | None = None


class Rollout:
    """One episode of an environment with one row, played on demand.

    Unless `keep` is set, `frames` holds only the last frame: images are large.
    """

    def __init__(
        self, env: GymVecEnv, seed: int, player: ActingPolicy, *, greedy: bool = True, keep: bool = True
    ) -> None:
        self.env, self.player, self._greedy, self._keep = env, player, greedy, keep
        self.frames: list[RolloutFrame] = []
        self.steps, self.total_reward = 0, 0.0
        self.terminated = self.truncated = False
        player.reset(1)
        self._obs = env.reset(Streams(seed).key("env"))
        self._add_frame()

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def step(self, action: Tensor | None = None) -> RolloutFrame:
        """Take one step with the player's action, or with the given one [1] or [1, A]; returns the frame it led to."""
        obs, mask = self._obs
        episode_start = torch.tensor([self.steps == 0], device=obs.device)
        network_outputs = getattr(self.player, "outputs", None)  # a player without a network has none
        outputs: dict[str, Tensor] = network_outputs(obs, mask, episode_start) if network_outputs else {}
        chosen = self.player.act(obs, mask, episode_start, self._greedy) if action is None else action
        recorded = {name: part[0].cpu().numpy().copy() for name, part in outputs.items()}
        step = self.env.step(chosen)
        transition = RolloutTransition(chosen[0].cpu().numpy().copy(), recorded, float(step.reward[0]))
        self.steps, self.total_reward = self.steps + 1, self.total_reward + transition.reward
        self.terminated, self.truncated = bool(step.terminated[0]), bool(step.truncated[0])
        ended = self.env.final_obs()
        self._obs = MaskedObs(ended.obs, ended.mask) if self.over else MaskedObs(step.obs, step.mask)
        return self._add_frame(transition)

    def play(self, steps: int | None = None) -> list[RolloutFrame]:
        """Play to the end, or until step `steps`; returns `frames`."""
        while not self.over and (steps is None or self.steps < steps):
            self.step()
        return self.frames

    def _add_frame(self, transition: RolloutTransition | None = None) -> RolloutFrame:
        images = self.env.frames()
        obs, mask = (part[0].cpu().numpy().copy() for part in self._obs)
        frame = RolloutFrame(obs, mask, images[0] if images else None, transition)
        if not self._keep:
            self.frames.clear()
        self.frames.append(frame)
        return frame


class RenderedGym:
    """A player in an environment with one row, as a `RenderedEnv`; episodes have ascending seeds."""

    best_label = "best"

    def __init__(self, env: GymVecEnv, fps: int, player: ActingPolicy, seed: int, *, greedy: bool = True) -> None:
        self._env, self.fps, self._player, self._greedy, self._seed = env, fps, player, greedy, seed
        self.actions: Actions = env.actions
        self.rollout = self._start()

    def _start(self) -> Rollout:
        return Rollout(self._env, self._seed, self._player, greedy=self._greedy, keep=False)

    @property
    def age(self) -> int:
        return self.rollout.steps

    @property
    def score(self) -> float:
        return self.rollout.total_reward

    @property
    def over(self) -> str:
        if self.rollout.terminated:
            return TERMINATED
        return TIME_LIMIT if self.rollout.truncated else ""

    def describe(self) -> str:
        return f"{format_return(self.rollout.total_reward)} in {self.rollout.steps} steps"

    def step(self, action: int | None = None) -> None:
        """One step with the player's action, or with the given one."""
        self.rollout.step(None if action is None else torch.tensor([action]))

    def next_episode(self) -> None:
        self._seed += 1
        self.rollout = self._start()

    @property
    def last_action(self) -> str:
        """The last action in words."""
        transition = self.rollout.frames[-1].transition
        if transition is None:
            return ""
        if isinstance(self.actions, Discrete):
            return self.actions.names[int(transition.action)]
        values = zip(self.actions.names, transition.action.tolist(), strict=True)
        return " ".join(f"{name} {number:.2f}" for name, number in values)

    def render_text(self, columns: int, lines: int, color: bool) -> str:
        """The environment's text, or its image in half blocks, with step, return and action below."""
        image, drawing = self.rollout.frames[-1].image, ""
        if isinstance(image, str):
            # Without color, a colored background, such as that of the agent's position, becomes brackets.
            marked = re.sub(r"\x1b\[[\d;]*4[0-7]m(.*?)\x1b\[0m", r"[\1]", image)
            drawing = image if color else re.sub(r"\x1b\[[\d;]*m", "", marked)
        elif image is not None and color:
            drawing = half_block_text(image, columns, lines - 1)
        status = f"step {self.age}  return {format_return(self.rollout.total_reward)}  {self.last_action}".rstrip()
        return "\n".join(part for part in (drawing.strip("\n"), status) if part)

    def render_rgb(self) -> NDArray[np.uint8] | None:
        image = self.rollout.frames[-1].image
        return image if isinstance(image, np.ndarray) else None

    def close(self) -> None:
        self._env.close()


def half_block_text(image: NDArray[np.uint8], columns: int, lines: int) -> str:
    """An image [height, width, 3] as lines of colored half blocks, shrunk to fit and never enlarged."""
    from PIL import Image

    thumbnail = Image.fromarray(image)
    thumbnail.thumbnail((max(1, columns), max(2, 2 * lines)), Image.Resampling.BOX, reducing_gap=None)
    small = np.asarray(thumbnail)
    if len(small) % 2:
        small = np.concatenate([small, small[-1:]])
    text = []
    for above, below in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        line, last = [], None
        for top, bottom in zip(above, below, strict=True):
            if (colors := (*top, *bottom)) != last:  # one escape code for consecutive equal colors
                line.append(f"\x1b[38;2;{top[0]};{top[1]};{top[2]};48;2;{bottom[0]};{bottom[1]};{bottom[2]}m")
                last = colors
            line.append(HALF_BLOCK)
        text.append("".join(line) + ANSI_RESET)
    return "\n".join(text)
