"""Constructs wrappers from their specs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import AddRenderObservation, ClipReward, FilterObservation, StickyAction, TimeLimit

from townlet.config import user_code
from townlet.errors import TownletError, did_you_mean
from townlet.gym.wrappers import spec as specs
from townlet.gym.wrappers.actions import FrameSkip, RemapActions
from townlet.gym.wrappers.observations import EncodeDiscrete, MiniGridOneHot
from townlet.gym.wrappers.shaping import CartPolePotential, LunarLanderPotential, MountainCarPotential

Env = gym.Env[Any, Any]


def wrap(env: Env, spec: specs.WrapperSpec) -> Env:
    """Wrap an environment as `spec` says."""
    match spec:
        case specs.EncodeSpec():
            return EncodeDiscrete(env, spec.to)
        case specs.KeysSpec():
            return _keep_keys(env, spec.keep)
        case specs.MiniGridOneHotSpec():
            return MiniGridOneHot(env)
        case specs.RemapActionsSpec():
            return RemapActions(env, spec.use)
        case specs.ActionMaskSpec():
            return env  # `ActionMasks` reads masks for all rows at once
        case specs.StickyActionsSpec():
            return StickyAction(env, spec.probability)
        case specs.FrameSkipSpec():
            return FrameSkip(env, spec.frames, spec.max_frames)
        case specs.ClipRewardSpec():
            return ClipReward(env, -spec.limit, spec.limit)
        case specs.TimeLimitSpec():
            return TimeLimit(env, spec.steps)
        case specs.PixelsSpec():
            return render_pixels(env)
        case specs.CartPoleShapingSpec():
            return CartPolePotential(env, spec)
        case specs.MountainCarShapingSpec():
            return MountainCarPotential(env, spec)
        case specs.LunarLanderShapingSpec():
            return LunarLanderPotential(env, spec)
        case specs.CustomSpec():
            return _custom(env, spec)


def _keep_keys(env: Env, keep: tuple[str, ...]) -> Env:
    if not isinstance(env.observation_space, spaces.Dict):
        raise TownletError("the observation has no named parts", "drop the wrapper 'keys'")
    for key in keep:
        if key not in env.observation_space.spaces:
            raise TownletError(f"the observation has no part '{key}'", did_you_mean(key, list(env.observation_space)))
    return FilterObservation(env, keep)


def render_pixels(env: Env) -> Env:
    """Use the rendered image as the observation."""
    try:
        return AddRenderObservation(env, render_only=True)
    except (TypeError, ValueError, gym.error.Error) as error:
        raise TownletError(f"the environment renders no images: {error}", "write observation: vector") from None


def _custom(env: Env, spec: specs.CustomSpec) -> Env:
    """A user-defined wrapper; errors name it."""
    maker = user_code.registered(spec.wrapper)
    try:
        wrapped = maker(env, **spec.settings)
    except Exception as error:  # user code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise TownletError(f"the wrapper '{spec.wrapper}' cannot be made: {reason}", "check its settings") from error
    if not isinstance(wrapped, gym.Env):
        raise TownletError(
            f"the wrapper '{spec.wrapper}' returned a {type(wrapped).__name__}",
            "it must return a gymnasium.Env, such as a gymnasium.Wrapper around its argument",
        )
    return wrapped
