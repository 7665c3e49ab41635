"""What the two Gymnasium environments ask alike: worlds, spaces, seeds, actions and frames."""

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
from townlet.town.engines.engine import make_engine
from townlet.town.render import ansi, picture
from townlet.town.scene import Scene, read_scene
from townlet.town.state import OUT_OF_TIME, cause_of_death
from townlet.town.world.load import load
from townlet.town.world.tables import World
from townlet.window import Window

Observation = NDArray[np.float32]


def open_world(world: str | Path | World, overrides: Sequence[str]) -> World:
    """A world by name, by path, or as it is."""
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    if not isinstance(world, World):
        return load(world, changes)
    if changes:
        raise TownletError("a compiled world takes no overrides", "give them to load_world()")
    return world


def observation_space(world: World) -> Space[Observation]:
    """The world's blocks one after the other, each with its own range."""
    low = np.concatenate([np.full(block.size, block.low, np.float32) for block in world.layout])
    high = np.concatenate([np.full(block.size, block.high, np.float32) for block in world.layout])
    return cast("Space[Observation]", Box(low, high, dtype=np.float32))


def known_mode(mode: str | None, metadata: dict[str, Any]) -> str | None:
    """The render mode, if the environment has it."""
    modes = metadata["render_modes"]
    if mode is not None and mode not in modes:
        raise TownletError(f"there is no render_mode '{mode}' here", did_you_mean(mode, modes))
    return mode


def stream_key(seed: int | None, chance: np.random.Generator) -> int:
    """The key of the random stream of a seed; without one, of a seed drawn by chance."""
    return Streams(int(chance.integers(2**31)) if seed is None else seed).key("town")


def refuse_options(options: dict[str, Any] | None) -> None:
    """Options that do nothing would mislead, so there are none."""
    if options:
        raise TownletError(
            f"reset() knows no option '{next(iter(options))}'", "change the world with overrides when you make it"
        )


def one_action(action: Any, names: Sequence[str]) -> int:
    """The number of an action, checked: an engine does not check."""
    try:
        number = operator.index(action)
    except TypeError:
        number = -1
    if not 0 <= number < len(names):
        raise TownletError(f"{action!r} is no action", f"give a whole number from 0 to {len(names) - 1}")
    return number


def row_actions(actions: ArrayLike, rows: int, names: Sequence[str]) -> NDArray[np.int64]:
    """One checked action for each row."""
    numbers = np.asarray(actions)
    if numbers.shape != (rows,) or not np.issubdtype(numbers.dtype, np.integer):
        raise TownletError(
            f"actions have shape {numbers.shape} and type {numbers.dtype}",
            f"give {rows} whole numbers, one for each row",
        )
    if numbers.min() < 0 or numbers.max() >= len(names):
        wrong = numbers[(numbers < 0) | (numbers >= len(names))][0]
        raise TownletError(f"{wrong} is no action", f"give whole numbers from 0 to {len(names) - 1}")
    return numbers.astype(np.int64)


def render(scene: Scene, mode: str) -> str | NDArray[np.uint8]:
    """A scene in a render mode: text, or a picture [height, width, 3]."""
    return ansi.frame(scene) if mode == "ansi" else picture.frame(scene)


FPS = 10


class TownEnv(gym.Env[Observation, np.int64]):
    """One agent in one town. `info` carries `action_mask`, `rewards` by strategy and, at the end, the `cause`."""

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": FPS}  # noqa: RUF012

    def __init__(
        self, world: str | Path | World = "town", overrides: Sequence[str] = (), render_mode: str | None = None
    ) -> None:
        self.render_mode = known_mode(render_mode, self.metadata)
        self.world = open_world(world, overrides)
        self.observation_space = observation_space(self.world)
        self.action_space = gym.spaces.Discrete(len(self.world.actions))
        self._engine = make_engine(self.world, 1, autoreset=False)
        self._actions = np.zeros(1, np.int64)
        self._last: int | None = None
        self._begun = self._over = False
        self._window: Window | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: the first one of `seed`, or the next one of the stream."""
        super().reset(seed=seed)
        refuse_options(options)
        if seed is not None or not self._begun:
            self._engine.reset(stream_key(seed, self.np_random))
        else:
            self._engine.reset_rows(np.ones(1, np.bool_))
        self._begun, self._over, self._last = True, False, None
        self._show()
        return self._observation(), {"action_mask": self._mask()}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Act once. An action that the mask forbids is legal, and wasted."""
        if not self._begun:
            raise TownletError("the first episode has not begun", "call reset() before step()")
        if self._over:
            raise TownletError("this episode is over", "call reset() before the next step()")
        self._last = self._actions[0] = one_action(action, self.world.actions)
        engine = self._engine
        engine.step(self._actions)
        terminated, truncated = bool(engine.terminated[0]), bool(engine.truncated[0])
        self._over = terminated or truncated
        paid = engine.components[0].tolist()
        info: dict[str, Any] = {
            "action_mask": self._mask(),
            "rewards": dict(zip(self.world.rewards, paid, strict=True)),
        }
        if self._over:
            meters = tuple(engine.peek()["meters"][0].tolist())
            info["cause"] = cause_of_death(self.world, meters) if terminated else OUT_OF_TIME
        self._show()
        return self._observation(), float(engine.reward[0]), terminated, truncated, info

    def scene(self) -> Scene:
        """The moment as people see it."""
        return read_scene(self._engine, 0, self._last)

    def render(self) -> RenderFrame | list[RenderFrame] | None:
        """The picture or the text of this moment; in mode "human" the window shows it by itself."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode draws nothing; make(…, render_mode="rgb_array") does')
        elif self.render_mode != "human":
            return render(self.scene(), self.render_mode)
        return None

    def close(self) -> None:
        """Close the window and give back the engine."""
        if self._window is not None:
            self._window.close()
        self._engine.close()

    def _observation(self) -> Observation:
        return np.array(self._engine.obs[0], np.float32)

    def _mask(self) -> NDArray[np.int8]:
        return np.array(self._engine.mask[0], np.int8)

    def _show(self) -> None:
        if self.render_mode == "human":
            if self._window is None:
                self._window = Window(f"Townlet · {self.world.name}", FPS)
            self._window.show(picture.frame(self.scene()))


class TownVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """Many towns stepped at once. A row that ends begins anew in the same step (`AutoresetMode.SAME_STEP`)."""

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": FPS,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        world: str | Path | World = "town",
        overrides: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.render_mode = known_mode(render_mode, self.metadata)
        self.world = open_world(world, overrides)
        self.single_observation_space = observation_space(self.world)
        self.single_action_space = gym.spaces.Discrete(len(self.world.actions))
        self._engine = make_engine(self.world, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._last: NDArray[np.int64] | None = None
        self._begun = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every row; one seed serves all rows, each draws from a stream of its own."""
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if seed is not None and not isinstance(seed, int):
            raise TownletError("a town takes one seed for all its rows, not a list", "give reset(seed=0)")
        super().reset(seed=seed)
        refuse_options(options)
        if seed is not None or not self._begun:
            self._engine.reset(stream_key(seed, self.np_random))
        else:
            self._engine.reset_rows(np.ones(self.num_envs, np.bool_))
        self._begun, self._last = True, None
        return self._observation(), self._masks()

    def step(
        self, actions: ArrayLike
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act in every row: actions [N]. Ended rows show their new episode; `final_obs` has how the old one ended."""
        if not self._begun:
            raise TownletError("the first episode has not begun", "call reset() before step()")
        self._last = row_actions(actions, self.num_envs, self.world.actions)
        engine = self._engine
        engine.step(self._last)
        terminated, truncated = np.array(engine.terminated), np.array(engine.truncated)
        info = self._masks()
        info |= self._parts(np.ones(self.num_envs, np.bool_))
        ended = terminated | truncated
        if ended.any():
            info |= self._final(ended, terminated)
        return self._observation(), np.array(engine.reward, np.float64), terminated, truncated, info

    def _final(self, ended: NDArray[np.bool_], terminated: NDArray[np.bool_]) -> dict[str, Any]:
        """What ended rows saw last, in the form in which Gymnasium's own vector environments give it."""
        rows = np.flatnonzero(ended)
        seen, allowed = (np.asarray(part) for part in self._engine.final_obs(rows))
        obs, cause = np.full(self.num_envs, None, object), np.full(self.num_envs, None, object)
        mask = np.zeros((self.num_envs, len(self.world.actions)), np.int8)
        mask[rows] = allowed
        known = "meters" in self.world.layout
        for row, last in zip(rows.tolist(), seen, strict=True):
            obs[row] = last.copy()
            if not terminated[row]:
                cause[row] = OUT_OF_TIME
            elif known:
                cause[row] = cause_of_death(self.world, tuple(self.world.layout.view(last, "meters").tolist()))
        final = {"action_mask": mask, "_action_mask": ended.copy(), **self._parts(ended)}
        final |= {"cause": cause, "_cause": np.array([c is not None for c in cause])}
        return {"final_obs": obs, "_final_obs": ended.copy(), "final_info": final, "_final_info": ended.copy()}

    def scene(self, row: int) -> Scene:
        """One row as people see it; a row that just ended shows its new episode."""
        fresh = self._last is None or bool(self._engine.terminated[row] or self._engine.truncated[row])
        return read_scene(self._engine, row, None if fresh or self._last is None else int(self._last[row]))

    def render(self) -> tuple[RenderFrame, ...] | None:
        """The picture or the text of every row."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render_mode draws nothing; make_vec(…, render_mode="ansi") does')
            return None
        return tuple(render(self.scene(row), self.render_mode) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Give back the engine's threads."""
        self._engine.close()

    def _observation(self) -> Observation:
        return np.array(self._engine.obs, np.float32)

    def _masks(self) -> dict[str, Any]:
        return {"action_mask": np.array(self._engine.mask, np.int8), "_action_mask": np.ones(self.num_envs, np.bool_)}

    def _parts(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        """What each reward strategy paid in the last step in some rows, 0 in the others."""
        paid = np.where(rows[:, None], np.asarray(self._engine.components, np.float64), 0.0)
        parts: dict[str, Any] = {}
        for n, name in enumerate(self.world.rewards):
            parts |= {name: paid[:, n].copy(), f"_{name}": rows.copy()}
        return {"rewards": parts, "_rewards": rows.copy()}
