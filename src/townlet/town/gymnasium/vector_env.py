"""Many towns as one Gymnasium `VectorEnv`, in each of its autoreset modes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.core import RenderFrame
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.town.engines.engine import make_engine
from townlet.town.gymnasium import info, spaces, starts
from townlet.town.gymnasium.engine_views import EngineViews
from townlet.town.scene import Scene, read_scene
from townlet.town.state import cause_names
from townlet.town.world.tables import World

Bools = NDArray[np.bool_]


class TownVectorEnv(VectorEnv[Any, NDArray[np.int64], NDArray[Any]]):
    """Many towns stepped at once.

    Args:
        num_envs: the number of rows.
        world: a shipped world, a YAML file, or the result of `townlet.load_world`.
        overrides: changes to the world, such as `["max_steps=1000"]`.
        render_mode: `"rgb_array"` or `"ansi"`.
        mask_observation: make observations dicts of `observation` and `action_mask` instead of arrays.
        max_episode_steps: another step limit than that of the world.
        autoreset_mode: when a row that ended starts its next episode. `"next_step"`: in the following step, whose
            action is ignored. `"same_step"`: in the step that ends it; `final_obs` and `final_info` describe the end.
            `"disabled"`: at `reset(options={"reset_mask": …})`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array", "ansi"],
        "render_fps": spaces.FPS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self, num_envs: int = 1, world: str | Path | World = "town", overrides: Sequence[str] = (),
        render_mode: str | None = None, mask_observation: bool = False, max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:  # fmt: skip
        self.num_envs = num_envs
        self.render_mode = spaces.check_render_mode(render_mode, self.metadata)
        self.autoreset_mode = _read_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.world = spaces.open_world(world, overrides, max_episode_steps)
        self.single_observation_space = spaces.observation_space(self.world, mask_observation)
        self.single_action_space = gym.spaces.Discrete(len(self.world.actions))
        self._engine = make_engine(self.world, num_envs, autoreset=self.autoreset_mode is AutoresetMode.SAME_STEP)
        self._outputs = EngineViews(self._engine)
        self._obs_shape = (num_envs, self.world.layout.size)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.cause_names = cause_names(self.world)
        self._mask_observation = mask_observation
        self._info = info.VectorInfo(self.world, num_envs)
        self._last_actions: NDArray[np.int64] | None = None
        self._ended: Bools = np.zeros(num_envs, np.bool_)  # rows that ended and have not been reset
        self._any_ended = self._started = False

    @property
    def spec(self) -> EnvSpec | None:
        """How the environment was made, with the world's step limit as `max_episode_steps`."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = spaces.with_step_limit(spec, self.world)

    _spec: EnvSpec | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every row. All rows share one seed; each has a separate random stream.

        `options` replace parts of the first state, with one value for all rows or one per row: `meters` (by name),
        `money`, `cell` ([x, y]) and `hour`. With `reset_mask` [N], only these rows start an episode.
        """
        seed, given = self._checked_seed(seed), options or {}
        starts.check_options(given, (*starts.START_OPTIONS, starts.RESET_MASK))
        start = starts.read_start(given, self.world, self.num_envs)
        mask = starts.read_reset_mask(given, self.num_envs)
        if mask is not None and (seed is not None or not self._started):
            raise TownletError("reset_mask continues the streams of its rows", "call reset(seed=0) without it first")
        super().reset(seed=seed)
        if seed is None and not self._started:
            seed = self.np_random_seed
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else mask
        starts.start_episodes(self._engine, chosen, seed, start)
        if mask is None:
            self._last_actions = None
        self._started, self._ended = True, self._ended & ~chosen
        self._any_ended = bool(self._ended.any())
        return self._observation(np.array(self._engine.obs, np.float32)), self._info.current(self._outputs, chosen)

    def step(self, actions: ArrayLike) -> tuple[Any, NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        """Step every row with actions [N]; rows that ended are treated as `autoreset_mode` says."""
        if not self._started:
            raise TownletError("there is no episode yet", "call reset() before step()")
        if self._any_ended and self.autoreset_mode is AutoresetMode.DISABLED:
            what = f"row {int(self._ended.argmax())} has ended"
            raise TownletError(what, "call reset(options={'reset_mask': terminated | truncated}) before step()")
        engine, outputs = self._engine, self._outputs
        self._last_actions = np.array(actions)
        obs = np.empty(self._obs_shape, np.float32)
        engine.step(self._last_actions, obs, reset_ended=True)
        terminated, truncated = outputs.terminated.copy(), outputs.truncated.copy()
        ended = terminated | truncated
        infos = self._info.current(outputs)
        rows = ended.nonzero()[0]
        self._any_ended = False
        if len(rows):
            if engine.autoreset:
                self._add_final(infos, ended, rows)
            else:
                self._any_ended, self._ended = True, ended
                infos["cause"][rows] = engine.final_causes(rows)
        return self._observation(obs), outputs.reward.astype(np.float64), terminated, truncated, infos

    def _add_final(self, infos: dict[str, Any], ended: Bools, rows: NDArray[np.int64]) -> None:
        """Add final observations and infos of the ended rows; their other infos are those of the reset."""
        obs, mask = (np.asarray(part) for part in self._engine.final_obs(rows))
        final_obs = np.full(self.num_envs, None, object)
        final_obs[rows] = np.fromiter(self._split(obs, mask.astype(np.int8)), object, len(rows))
        for key in self._info.reward_keys:
            infos[key][rows] = 0.0
        infos["final_obs"], infos["_final_obs"] = final_obs, ended.copy()
        infos["final_info"], infos["_final_info"] = (
            self._info.final(self._engine, self._outputs, ended, rows, mask),
            ended.copy(),
        )

    def _split(self, obs: NDArray[np.float32], mask: NDArray[np.int8]) -> Any:
        """The observation of each row, as the single environment returns it."""
        if not self._mask_observation:
            return obs
        return ({spaces.ACTION_MASK: m, spaces.OBSERVATION: o} for o, m in zip(obs, mask, strict=True))

    def action_masks(self) -> Bools:
        """The valid actions of every row [N, K]."""
        return self._outputs.mask.astype(np.bool_)

    def cause_name(self, code: int) -> str:
        """The name of a cause in `info`: a lethal meter, "time", or "running" for −1."""
        return info.cause_name(self.world, code)

    def scene(self, row: int) -> Scene:
        """The current state of one row for renderers."""
        if self._last_actions is None or self._engine.peek("age")["age"][row] == 0:
            return read_scene(self._engine, row)
        return read_scene(self._engine, row, int(self._last_actions[row]))

    def render(self) -> tuple[RenderFrame, ...] | None:
        """The current frame of every row as an image or text."""
        if self.render_mode is None:
            gym.logger.warn('render() needs a render_mode: make_vec(…, render_mode="ansi")')
            return None
        return tuple(spaces.draw(self.scene(row), self.render_mode) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._engine.close()

    def _checked_seed(self, seed: Any) -> int | None:
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if seed is not None and not isinstance(seed, int):
            raise TownletError("a town takes one seed for all its rows, not a list", "call reset(seed=0)")
        return seed

    def _observation(self, obs: NDArray[np.float32]) -> Any:
        """The observation that a caller gets, from a copy of the engine's."""
        return (
            {spaces.ACTION_MASK: self._outputs.mask.copy(), spaces.OBSERVATION: obs} if self._mask_observation else obs
        )


def _read_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode of a name: "next_step", or "NextStep" as Gymnasium writes it."""
    if isinstance(mode, AutoresetMode):
        return mode
    names = {known.name.lower(): known for known in AutoresetMode}
    values = {known.value: known for known in AutoresetMode}
    if mode not in names and mode not in values:
        raise TownletError(f"there is no autoreset_mode '{mode}'", did_you_mean(str(mode), tuple(names)))
    return (names | values)[mode]
