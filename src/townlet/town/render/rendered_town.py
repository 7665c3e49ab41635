"""A rendered town: one row with its player, for `townlet play` and videos."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from townlet.town.engines.engine import make_engine
from townlet.town.planner import Player
from townlet.town.render import ansi
from townlet.town.scene import read_scene
from townlet.town.world.tables import World

FPS: Final = 10  # one frame per step


class RenderedTown:
    """A player in a town of one row; implements `townlet.interfaces.task.RenderedEnv`."""

    best_label = "longest"

    def __init__(self, world: World, player: Player, seed: int, fps: int = FPS) -> None:
        self.world, self.player, self.fps = world, player, fps
        self.engine = make_engine(world, 1, autoreset=False)
        self.engine.reset(seed)
        self.scene = read_scene(self.engine, 0)

    @property
    def age(self) -> int:
        return self.scene.age

    @property
    def score(self) -> float:
        return self.scene.age

    @property
    def over(self) -> str:
        return self.scene.ended

    def describe(self) -> str:
        return f"{self.scene.age} steps"

    def step(self, action: int | None = None) -> None:
        chosen = self.player.act(self.engine) if action is None else np.array([action], np.int64)
        self.engine.step(chosen)
        self.scene = read_scene(self.engine, 0, int(chosen[0]))

    def next_episode(self) -> None:
        self.engine.reset_rows(np.ones(1, np.bool_))
        self.scene = read_scene(self.engine, 0)

    def render_text(self, columns: int, lines: int, color: bool) -> str:
        """The map beside the meters, independent of the terminal's size."""
        return ansi.frame(self.scene, color=color)

    def render_rgb(self) -> NDArray[np.uint8]:
        from townlet.town.render import picture

        return picture.frame(self.scene)

    def close(self) -> None:
        self.engine.close()
