"""One agent in one town as a Gymnasium `Env`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.town.engines.engine import make_engine
from townlet.town.gymnasium import info, spaces, starts
from townlet.town.gymnasium.engine_views import EngineViews
from townlet.town.render import picture
from townlet.town.scene import Scene, read_scene
from townlet.town.state import cause_names
from townlet.town.world.tables import World
from townlet.window import Window

ALL_ROWS = np.ones(1, np.bool_)
FIRST_ROW = np.zeros(1, np.int64)


class TownEnv(gym.Env[Any, np.int64]):
    """One agent in one town. `info` is flat: `action_mask`, `cause` (a code, −1 while the episode runs) and `reward_…`.

    Args:
        world: a shipped world, a YAML file, or the result of `townlet.load_world`.
        overrides: changes to the world, such as `["max_steps=1000"]`.
        render_mode: `"human"`, `"rgb_array"` or `"ansi"`.
        mask_observation: make observations dicts of `observation` [D] and `action_mask` [K] instead of arrays [D].
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": spaces.FPS}  # noqa: RUF012

    def __init__(
        self, world: str | Path | World = "town", overrides: Sequence[str] = (), render_mode: str | None = None,
        mask_observation: bool = False,
    ) -> None:  # fmt: skip
        self.render_mode = spaces.check_render_mode(render_mode, self.metadata)
        self.world = spaces.open_world(world, overrides)
        self.observation_space = spaces.observation_space(self.world, mask_observation)
        self.action_space = gym.spaces.Discrete(len(self.world.actions))
        self.cause_names = cause_names(self.world)
        self._mask_observation = mask_observation
        self._engine = make_engine(self.world, 1, autoreset=False)
        self._outputs = EngineViews(self._engine, row=0)
        self._reward_keys = info.reward_keys(self.world)
        self._actions = np.zeros(1, np.int64)
        self._last_action: int | None = None
        self._started = self._ended = False
        self._window: Window | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """How the environment was made, with the world's step limit as `max_episode_steps`."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = spaces.with_step_limit(spec, self.world)

    _spec: EnvSpec | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode: the first one of `seed`, or the next one of the current stream.

        Args:
            seed: the random seed.
            options: parts of the first state: `meters` (by name), `money`, `cell` ([x, y]) and `hour`.
        """
        super().reset(seed=seed)
        starts.check_options(options or {}, starts.START_OPTIONS)
        start = starts.read_start(options or {}, self.world, 1)
        if seed is None and not self._started:
            seed = self.np_random_seed
        starts.start_episodes(self._engine, ALL_ROWS, seed, start)
        self._started, self._ended, self._last_action = True, False, None
        if self.render_mode == "human":
            self._update_window()
        return self._observation(), self._info(info.RUNNING)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step. A masked action is accepted: it has its cost and ends a session, but no other effect."""
        if self._ended or not self._started:
            what = "this episode has ended" if self._ended else "there is no episode yet"
            raise TownletError(what, "call reset() before the next step()")
        self._last_action = self._actions[0] = self._checked_action(action)
        self._engine.step(self._actions)
        outputs = self._outputs
        terminated, truncated = outputs.terminated.item(), outputs.truncated.item()
        self._ended = terminated or truncated
        cause = self._engine.final_causes(FIRST_ROW)[0] if self._ended else info.RUNNING
        if self.render_mode == "human":
            self._update_window()
        return self._observation(), outputs.reward.item(), terminated, truncated, self._info(cause)

    def action_masks(self) -> NDArray[np.bool_]:
        """The valid actions [K]; MaskablePPO of sb3-contrib calls this."""
        return self._outputs.mask.astype(np.bool_)

    def cause_name(self, code: int) -> str:
        """The name of a cause in `info`: a lethal meter, "time", or "running" for −1."""
        return info.cause_name(self.world, code)

    def scene(self) -> Scene:
        """The current state for renderers."""
        return read_scene(self._engine, 0, self._last_action)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """The current frame as an image or text; in mode "human" the window is updated automatically."""
        if self.render_mode is None:
            gym.logger.warn('render() needs a render_mode: make(…, render_mode="rgb_array")')
        elif self.render_mode != "human":
            return spaces.draw(self.scene(), self.render_mode)
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
        self._engine.close()

    def _checked_action(self, action: Any) -> int:
        try:
            number = operator.index(action)
        except TypeError:
            number = -1
        if not 0 <= number < len(self.world.actions):
            raise TownletError(f"{action} is not an action", f"give integers from 0 to {len(self.world.actions) - 1}")
        return number

    def _observation(self) -> Any:
        obs, mask = self._outputs.obs, self._outputs.mask
        return (
            {spaces.ACTION_MASK: mask.copy(), spaces.OBSERVATION: obs.copy()} if self._mask_observation else obs.copy()
        )

    def _info(self, cause: np.int64) -> dict[str, Any]:
        rewards = info.reward_parts(self._outputs)
        return info.build_info(self._outputs.mask.copy(), cause, rewards, self._reward_keys)

    def _update_window(self) -> None:
        if self._window is None:
            self._window = Window(f"Townlet · {self.world.name}", spaces.FPS)
        self._window.show(picture.frame(self.scene()))
