"""A Gymnasium environment to be watched: one row and its player, episode after episode."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.interfaces.show import Words
from townlet.interfaces.vec_env import Discrete
from townlet.tasks.evaluation import TIME, Acting
from townlet.tasks.gym_metrics import OVER
from townlet.tasks.gym_rollout import Rollout
from townlet.tasks.gym_summary import figure

if TYPE_CHECKING:
    from townlet.tasks.gym import GymTask

Mode = Literal["rgb_array", "ansi"]


class GymShow:
    """One player in a row of its own, see `townlet.interfaces.show.Show`; each episode has the next seed."""

    words = Words("episode", "best")

    def __init__(
        self,
        task: GymTask,
        player: Acting,
        seed: int,
        mode: Mode | None,
        *,
        greedy: bool = True,
        device: str = "cpu",
    ) -> None:
        if mode is not None and mode not in task.render_info.modes:
            raise TownletError(f"{task.name} draws no pictures", "leave out what needs them")
        self.task, self.rate, self._player, self._greedy, self._seed = (
            task,
            task.render_info.fps,
            player,
            greedy,
            seed,
        )
        self._env = task.stage(1, device, mode)
        self.rollout = self._begun()

    def _begun(self) -> Rollout:
        return Rollout(self._env, self._seed, self._player, greedy=self._greedy, keep=False)

    @property
    def age(self) -> int:
        """Steps made."""
        return self.rollout.steps

    @property
    def score(self) -> float:
        """What was won."""
        return self.rollout.reward

    @property
    def over(self) -> str:
        """How the episode ended."""
        return OVER if self.rollout.terminated else TIME if self.rollout.truncated else ""

    def told(self) -> str:
        """What was won, and in how many steps."""
        return f"{figure(self.rollout.reward)} in {self.rollout.steps} steps"

    def step(self, action: int | None = None) -> None:
        """One step of the player, or of a person who chose this action."""
        self.rollout.step(None if action is None else torch.tensor([action]))

    def begin(self) -> None:
        """The next episode."""
        self._seed += 1
        self.rollout = self._begun()

    @property
    def led(self) -> str:
        """The action that led to this moment, in words."""
        led = self.rollout.moments[-1].led
        if led is None:
            return ""
        actions = self.task.actions
        if isinstance(actions, Discrete):
            return actions.names[int(led.action)]
        return " ".join(f"{name} {number:.2f}" for name, number in zip(actions.names, led.action.tolist(), strict=True))

    def text(self, columns: int, lines: int, colour: bool) -> str:
        """What the environment writes, or its picture in half blocks, and what was done and won."""
        seen, drawn = self.rollout.moments[-1].frame, ""
        if isinstance(seen, str):
            drawn = seen if colour else _plain(seen)
        elif seen is not None and colour:
            drawn = half_block_text(seen, columns, lines - 1)
        said = f"step {self.age}  return {figure(self.rollout.reward)}  {self.led}".rstrip()
        return "\n".join(part for part in (drawn.strip("\n"), said) if part)

    def picture(self) -> NDArray[np.uint8] | None:
        """What the environment draws."""
        seen = self.rollout.moments[-1].frame
        return seen if isinstance(seen, np.ndarray) else None

    def close(self) -> None:
        """Give back the environment."""
        self._env.close()


def _plain(text: str) -> str:
    """Text without control codes; what they put on a coloured ground, as the place of the agent, is in brackets."""
    return re.sub(r"\x1b\[[\d;]*m", "", re.sub(r"\x1b\[[\d;]*4[0-7]m(.*?)\x1b\[0m", r"[\1]", text))


HALF_BLOCK = "▀"
ANSI_RESET = "\x1b[0m"


def half_block_text(picture: NDArray[np.uint8], columns: int, lines: int) -> str:
    """The picture [height, width, 3] as lines of coloured half blocks, as large as there is room and never larger."""
    small = _shrink_to_fit(picture, max(1, columns), max(2, 2 * lines))
    if len(small) % 2:
        small = np.concatenate([small, small[-1:]])
    told = []
    for above, below in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        line, last = [], None
        for top, bottom in zip(above, below, strict=True):
            if (inks := (*top, *bottom)) != last:  # one code for a stretch of the same colours
                line.append(f"\x1b[38;2;{top[0]};{top[1]};{top[2]};48;2;{bottom[0]};{bottom[1]};{bottom[2]}m")
                last = inks
            line.append(HALF_BLOCK)
        told.append("".join(line) + ANSI_RESET)
    return "\n".join(told)


def _shrink_to_fit(picture: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The picture within that size, its sides in proportion."""
    from PIL import Image

    scale = min(width / picture.shape[1], height / picture.shape[0], 1.0)
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    if scale == 1.0:
        return picture
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))
