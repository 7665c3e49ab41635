"""A check of environments that users have written: spaces, and what `reset` and `step` return.

Gymnasium's own checker knows more rules; this one names the line of code that breaks one of those that training needs.
"""

from __future__ import annotations

import inspect
import math
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

from townlet.errors import TownletError

STEPS: Final = 10  # random actions that are tried
OLD_RESET: Final = "return obs, info"
OLD_STEP: Final = "return obs, reward, terminated, truncated, info"


def check_contract(env: gym.Env[Any, Any], name: str) -> list[str]:
    """Reset and step an environment, and close it; raises TownletError for what would fail later.

    Returns notes on what is allowed but probably a mistake.
    """
    with closing(env):
        own = env.unwrapped
        for attribute in ("observation_space", "action_space"):
            if not isinstance(getattr(own, attribute, None), gym.Space):
                what = f"{name} has no {attribute}{_place(type(own))}"
                raise TownletError(what, f"set self.{attribute} = gymnasium.spaces.… in __init__")
        obs = _check_reset(own, name, env.reset(seed=0))
        notes = _check_observation(own, name, "reset", obs)
        env.action_space.seed(0)
        for _ in range(STEPS):
            obs, ended = _check_step(own, name, env.step(env.action_space.sample()))
            notes += _check_observation(own, name, "step", obs)
            if ended:
                break
    return list(dict.fromkeys(notes))


def _check_reset(env: Any, name: str, result: Any) -> Any:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        what = f"{name}.reset() returns {_describe(result)}{_place(env.reset)}"
        raise TownletError(what, f"{OLD_RESET}, where info is a dict")
    return result[0]


def _check_step(env: Any, name: str, result: Any) -> tuple[Any, bool]:
    place = _place(env.step)
    if not isinstance(result, tuple) or len(result) != 5:
        raise TownletError(f"{name}.step() returns {_describe(result)}{place}", OLD_STEP)
    obs, reward, terminated, truncated, info = result
    if not isinstance(reward, Real | np.number | np.ndarray) or not math.isfinite(float(reward)):
        raise TownletError(f"the reward of {name}.step() is {reward!r}{place}", "return a finite number")
    if not isinstance(info, dict):
        raise TownletError(f"the info of {name}.step() is {_describe(info)}{place}", OLD_STEP)
    return obs, bool(terminated or truncated)


def _check_observation(env: Any, name: str, method: str, obs: Any) -> list[str]:
    """Raise for a shape other than the declared one; returns a note for values outside of the bounds."""
    space, place = env.observation_space, _place(getattr(env, method))
    if not isinstance(space, gym.spaces.Box):
        if not space.contains(obs):
            what = f"the observation of {name}.{method}() is {_describe(obs)}, not in {space}{place}"
            raise TownletError(what, "return what the observation_space declares, or change it")
        return []
    values = np.asarray(obs)
    if values.shape != space.shape:
        what = f"the observation of {name}.{method}() has shape {values.shape}, its space {space.shape}{place}"
        raise TownletError(what, "return an array of the declared shape, or change observation_space")
    low, high = values < space.low, values > space.high
    if not (low | high).any():
        return []
    worst = float(values[low | high].flat[0])
    return [f"{name}.{method}() returns {worst:g} in an observation, outside of the bounds of its space{place}."]


def _describe(result: Any) -> str:
    if isinstance(result, tuple):
        return f"{len(result)} values"
    return f"an array of shape {result.shape}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"


def _place(code: Any) -> str:
    """File and line of a class or method, as " (my_env.py:12)"; "" if unknown."""
    try:
        file, (_, line) = inspect.getsourcefile(code), inspect.getsourcelines(code)
    except (OSError, TypeError):
        return ""
    return f" ({Path(file).name}:{line})" if file else ""
