"""Towns as a `VecEnv` of Stable-Baselines3, without an environment object per row.

from townlet.sb3 import make_vec

MaskablePPO("MlpPolicy", make_vec("Townlet/Town-v0", 1024)).learn(1_000_000)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.town.gymnasium import TownVectorEnv

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise TownletError("townlet.sb3 needs Stable-Baselines3", "pip install stable-baselines3") from error

ENTRY_POINT: Final = "townlet.town.gymnasium:TownVectorEnv"  # of the ids that `import townlet` registers
PER_ROW: Final = ("action_masks", "render")  # methods that return one value per row


def make_vec(id: str, n_envs: int = 1, seed: int | None = None, **settings: Any) -> SB3TownVecEnv:
    """Make a `VecEnv` of Stable-Baselines3 in which one object steps all rows of a town.

    Args:
        id: the Gymnasium id of a town.
        n_envs: the number of rows.
        seed: the random seed.
        settings: those of `TownVectorEnv`, such as `overrides`.
    """
    if gym.spec(id).vector_entry_point not in (ENTRY_POINT, TownVectorEnv):
        raise TownletError(f"{id} is not a town", "use stable_baselines3.common.env_util.make_vec_env")
    if "autoreset_mode" in settings:
        raise TownletError("SB3 always resets in the step that ends an episode", "leave out autoreset_mode")
    envs = gym.make_vec(id, n_envs, autoreset_mode=AutoresetMode.SAME_STEP, **settings)
    assert isinstance(envs, TownVectorEnv)
    adapter = SB3TownVecEnv(envs)
    if seed is not None:
        adapter.seed(seed)
    return adapter


class SB3TownVecEnv(VecEnv):
    """The rows of a `TownVectorEnv` in SAME_STEP mode. An info is empty unless its row has just ended.

    Then it has `episode` (return, length and time, as Monitor writes it), `terminal_observation`,
    `TimeLimit.truncated` and `cause`.
    """

    def __init__(self, envs: TownVectorEnv) -> None:
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions: NDArray[Any] = np.zeros(self.num_envs, np.int64)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._started = time.time()

    def reset(self) -> Any:
        options = self._options[0]
        if any(str(given) != str(options) for given in self._options):
            raise TownletError("the options of the rows differ", "give one dict; its values may be one per row")
        obs, _ = self.envs.reset(seed=self._seeds[0], options=options)
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0, 0
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        obs, reward, terminated, truncated, vector_info = self.envs.step(self._actions)
        self._returns += reward
        self._lengths += 1
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        rows = np.flatnonzero(done)
        if len(rows):
            self._describe_ends(infos, rows, truncated, vector_info)
            self._returns[rows], self._lengths[rows] = 0, 0
        return obs, reward.astype(np.float32), done, infos

    def _describe_ends(
        self, infos: list[dict[str, Any]], rows: NDArray[np.int64], truncated: NDArray[np.bool_], info: dict[str, Any]
    ) -> None:
        """Fill the infos of rows that ended."""
        elapsed = round(time.time() - self._started, 6)
        columns = (rows, self._returns[rows], self._lengths[rows], truncated[rows], info["final_info"]["cause"][rows])
        for row, total, length, out_of_time, cause in zip(*(column.tolist() for column in columns), strict=True):
            infos[row] = {
                "episode": {"r": total, "l": length, "t": elapsed}, "terminal_observation": info["final_obs"][row],
                "TimeLimit.truncated": out_of_time, "cause": cause,
            }  # fmt: skip

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the vector environment, once per row."""
        return [getattr(self.envs, attr_name)] * len(self._rows(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise TownletError(f"'{attr_name}' cannot be set: rows share one environment", "pass settings to make_vec()")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the vector environment; `action_masks` and `render` return one value per row."""
        if method_name in ("reset", "step"):
            raise TownletError(f"single rows have no {method_name}()", f"call {method_name}() of the VecEnv")
        result, rows = getattr(self.envs, method_name)(*method_args, **method_kwargs), self._rows(indices)
        return [result[row] for row in rows] if method_name in PER_ROW else [result] * len(rows)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None) -> list[bool]:
        """False, except for Monitor, whose `episode` the infos have."""
        return [issubclass(wrapper_class, Monitor)] * len(self._rows(indices))

    def get_images(self) -> Sequence[Any]:
        return self.envs.render() or ()

    def _rows(self, indices: Any) -> Sequence[int]:
        """The chosen rows: all for None, one for an integer."""
        return list(self._get_indices(indices))
