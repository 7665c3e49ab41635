"""The town as Gymnasium environments: one row as `Env`, many as `VectorEnv`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.rng import Streams
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.render import ansi, picture
from townlet.town.scene import Scene, read_scene
from townlet.town.state import OUT_OF_TIME, cause_of_death, check_actions
from townlet.town.world.load import load
from townlet.town.world.tables import World
from townlet.window import Window

FPS = 10
ObsArray = NDArray[np.float32]


class TownEnv(gym.Env[ObsArray, np.int64]):
    """One agent in one town. `info` has `action_mask`, `rewards` by component and, at the end, the `cause`."""

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": FPS}  # noqa: RUF012

    def __init__(
        self, world: str | Path | World = "town", overrides: Sequence[str] = (), render_mode: str | None = None
    ) -> None:
        self.render_mode = _check_render_mode(render_mode, self.metadata)
        self.world = _open_world(world, overrides)
        self.observation_space = _observation_space(self.world)
        self.action_space = gym.spaces.Discrete(len(self.world.actions))
        self._engine = make_engine(self.world, 1, autoreset=False)
        self._actions = np.zeros(1, np.int64)
        self._last_action: int | None = None
        self._started = self._ended = False
        self._window: Window | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsArray, dict[str, Any]]:
        """Start an episode: the first one of `seed`, or the next one of the current stream."""
        super().reset(seed=seed)
        _start_episodes(self._engine, seed, options, None if self._started else self.np_random)
        self._started, self._ended, self._last_action = True, False, None
        self._update_window()
        return self._observation(), {"action_mask": self._mask()}

    def step(self, action: Any) -> tuple[ObsArray, float, bool, bool, dict[str, Any]]:
        """Take one step. A masked action is accepted: it has its cost and ends a session, but no other effect."""
        if not self._started:
            raise TownletError("there is no episode yet", "call reset() before step()")
        if self._ended:
            raise TownletError("this episode has ended", "call reset() before the next step()")
        self._last_action = self._actions[0] = _checked_action(action, self.world)
        engine = self._engine
        engine.step(self._actions)
        terminated, truncated = bool(engine.terminated[0]), bool(engine.truncated[0])
        self._ended = terminated or truncated
        rewards = dict(zip(self.world.rewards, engine.components[0].tolist(), strict=True))
        info: dict[str, Any] = {"action_mask": self._mask(), "rewards": rewards}
        if self._ended:
            meters = tuple(engine.peek()["meters"][0].tolist())
            info["cause"] = cause_of_death(self.world, meters) if terminated else OUT_OF_TIME
        self._update_window()
        return self._observation(), float(engine.reward[0]), terminated, truncated, info

    def scene(self) -> Scene:
        """The current state for renderers."""
        return read_scene(self._engine, 0, self._last_action)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """The current frame as an image or text; in mode "human" the window is updated automatically."""
        if self.render_mode is None:
            gym.logger.warn('render() needs a render_mode: make(…, render_mode="rgb_array")')
        elif self.render_mode != "human":
            return _render(self.scene(), self.render_mode)
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
        self._engine.close()

    def _observation(self) -> ObsArray:
        return np.array(self._engine.obs[0], np.float32)

    def _mask(self) -> NDArray[np.int8]:
        return np.array(self._engine.mask[0], np.int8)

    def _update_window(self) -> None:
        if self.render_mode == "human":
            if self._window is None:
                self._window = Window(f"Townlet · {self.world.name}", FPS)
            self._window.show(picture.frame(self.scene()))


class TownVectorEnv(VectorEnv[ObsArray, NDArray[np.int64], NDArray[Any]]):
    """Many towns stepped at once; a row that ends resets in the same step (`AutoresetMode.SAME_STEP`)."""

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": FPS,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self, num_envs: int = 1, world: str | Path | World = "town", overrides: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        self.num_envs = num_envs
        self.render_mode = _check_render_mode(render_mode, self.metadata)
        self.world = _open_world(world, overrides)
        self.single_observation_space = _observation_space(self.world)
        self.single_action_space = gym.spaces.Discrete(len(self.world.actions))
        self._engine = make_engine(self.world, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._last_actions: NDArray[np.int64] | None = None
        self._started = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsArray, dict[str, Any]]:
        """Start an episode in every row. All rows share one seed; each has a separate random stream."""
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if seed is not None and not isinstance(seed, int):
            raise TownletError("a town takes one seed for all its rows, not a list", "call reset(seed=0)")
        super().reset(seed=seed)
        _start_episodes(self._engine, seed, options, None if self._started else self.np_random)
        self._started, self._last_actions = True, None
        return self._observation(), self._masks()

    def step(
        self, actions: ArrayLike
    ) -> tuple[ObsArray, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every row with actions [N]. Ended rows start the next episode; `final_obs` has the last observation."""
        if not self._started:
            raise TownletError("there is no episode yet", "call reset() before step()")
        numbers = np.asarray(actions)
        check_actions(numbers, self.num_envs)
        if len(wrong := numbers[(numbers < 0) | (numbers >= len(self.world.actions))]):
            _checked_action(wrong[0], self.world)
        self._last_actions = numbers.astype(np.int64)
        engine = self._engine
        engine.step(self._last_actions)
        terminated, truncated = np.array(engine.terminated), np.array(engine.truncated)
        info = self._masks() | self._rewards(np.ones(self.num_envs, np.bool_))
        ended = terminated | truncated
        if ended.any():
            info |= self._final(ended, terminated)
        return self._observation(), np.array(engine.reward, np.float64), terminated, truncated, info

    def _final(self, ended: NDArray[np.bool_], terminated: NDArray[np.bool_]) -> dict[str, Any]:
        """Final observations and infos of ended rows, in the format of Gymnasium's vector environments."""
        rows = np.flatnonzero(ended)
        final_obs, final_mask = (np.asarray(part) for part in self._engine.final_obs(rows))
        obs, cause = np.full(self.num_envs, None, object), np.full(self.num_envs, None, object)
        mask = np.zeros((self.num_envs, len(self.world.actions)), np.int8)
        mask[rows] = final_mask
        has_meters = "meters" in self.world.layout
        for row, last in zip(rows.tolist(), final_obs, strict=True):
            obs[row] = last.copy()
            if not terminated[row]:
                cause[row] = OUT_OF_TIME
            elif has_meters:
                cause[row] = cause_of_death(self.world, tuple(self.world.layout.view(last, "meters").tolist()))
        final = {"action_mask": mask, "_action_mask": ended.copy(), **self._rewards(ended)}
        final |= {"cause": cause, "_cause": np.array([c is not None for c in cause])}
        return {"final_obs": obs, "_final_obs": ended.copy(), "final_info": final, "_final_info": ended.copy()}

    def scene(self, row: int) -> Scene:
        """The current state of one row for renderers; a row that just ended shows its next episode."""
        if self._last_actions is None or self._engine.terminated[row] or self._engine.truncated[row]:
            return read_scene(self._engine, row)
        return read_scene(self._engine, row, int(self._last_actions[row]))

    def render(self) -> tuple[RenderFrame, ...] | None:
        """The current frame of every row as an image or text."""
        if self.render_mode is None:
            gym.logger.warn('render() needs a render_mode: make_vec(…, render_mode="ansi")')
            return None
        return tuple(_render(self.scene(row), self.render_mode) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._engine.close()

    def _observation(self) -> ObsArray:
        return np.array(self._engine.obs, np.float32)

    def _masks(self) -> dict[str, Any]:
        return {"action_mask": np.array(self._engine.mask, np.int8), "_action_mask": np.ones(self.num_envs, np.bool_)}

    def _rewards(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        """The components of the last reward of some rows; 0 in the other rows."""
        values = np.where(rows[:, None], np.asarray(self._engine.components, np.float64), 0.0)
        parts: dict[str, Any] = {}
        for n, name in enumerate(self.world.rewards):
            parts |= {name: values[:, n].copy(), f"_{name}": rows.copy()}
        return {"rewards": parts, "_rewards": rows.copy()}


def _open_world(world: str | Path | World, overrides: Sequence[str]) -> World:
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    if not isinstance(world, World):
        return load(world, changes)
    if changes:
        raise TownletError("a compiled world takes no overrides", "pass them to load_world()")
    return world


def _observation_space(world: World) -> Space[ObsArray]:
    low, high = (
        np.concatenate([np.full(block.size, getattr(block, limit), np.float32) for block in world.layout])
        for limit in ("low", "high")
    )
    return cast("Space[ObsArray]", Box(low, high, dtype=np.float32))


def _check_render_mode(mode: str | None, metadata: dict[str, Any]) -> str | None:
    if mode is not None and mode not in metadata["render_modes"]:
        raise TownletError(f"there is no render_mode '{mode}' here", did_you_mean(mode, metadata["render_modes"]))
    return mode


def _start_episodes(
    engine: Engine, seed: int | None, options: dict[str, Any] | None, rng: np.random.Generator | None
) -> None:
    """Start the first episodes of `seed`, or of a seed drawn from `rng`; if both are None, the next episodes."""
    if options:
        fix = "change the world with overrides when you make it"
        raise TownletError(f"reset() has no option '{next(iter(options))}'", fix)
    if seed is None and rng is not None:
        seed = int(rng.integers(2**31))
    if seed is None:
        engine.reset_rows(np.ones(engine.rows, np.bool_))
    else:
        engine.reset(Streams(seed).key("town"))


def _checked_action(action: Any, world: World) -> int:
    try:
        number = operator.index(action)
    except TypeError:
        number = -1
    if not 0 <= number < len(world.actions):
        raise TownletError(f"{action} is not an action", f"give integers from 0 to {len(world.actions) - 1}")
    return number


def _render(scene: Scene, mode: str) -> str | NDArray[np.uint8]:
    return ansi.frame(scene) if mode == "ansi" else picture.frame(scene)
