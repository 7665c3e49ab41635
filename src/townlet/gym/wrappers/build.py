"""Names into wrappers: the only place that knows all kinds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import AddRenderObservation, ClipReward, FilterObservation, StickyAction, TimeLimit

from townlet.config import user_code
from townlet.errors import TownletError, did_you_mean
from townlet.gym.wrappers import spec as named
from townlet.gym.wrappers.actions import FrameSkip, RemapActions
from townlet.gym.wrappers.observations import EncodeDiscrete, MiniGridOneHot
from townlet.gym.wrappers.shaping import CartPolePotential, LunarLanderPotential, MountainCarPotential
from townlet.gym.wrappers.spec import WrapperSpec

Env = gym.Env[Any, Any]


def wrap(env: Env, spec: WrapperSpec) -> Env:
    """An environment with one more wrapper around it."""
    if isinstance(spec, named.EncodeSpec):
        return EncodeDiscrete(env, spec.to)
    if isinstance(spec, named.KeysSpec):
        return _keep(env, spec.keep)
    if isinstance(spec, named.MiniGridOneHotSpec):
        return MiniGridOneHot(env)
    if isinstance(spec, named.RemapActionsSpec):
        return RemapActions(env, spec.use)
    if isinstance(spec, named.ActionMaskSpec):
        return env  # masks are read for all rows at once, see `envs.masks`
    if isinstance(spec, named.StickyActionsSpec):
        return StickyAction(env, spec.probability)
    if isinstance(spec, named.FrameSkipSpec):
        return FrameSkip(env, spec.frames, spec.most)
    if isinstance(spec, named.ClipRewardSpec):
        return ClipReward(env, -spec.limit, spec.limit)
    if isinstance(spec, named.TimeLimitSpec):
        return TimeLimit(env, spec.steps)
    if isinstance(spec, named.PixelsSpec):
        return _pixels(env)
    if isinstance(spec, named.CartPoleShapingSpec):
        return CartPolePotential(env, spec)
    if isinstance(spec, named.MountainCarShapingSpec):
        return MountainCarPotential(env, spec)
    if isinstance(spec, named.LunarLanderShapingSpec):
        return LunarLanderPotential(env, spec)
    return _own(env, spec)


def _keep(env: Env, keep: tuple[str, ...]) -> Env:
    if not isinstance(env.observation_space, spaces.Dict):
        raise TownletError("the observation has no named parts to keep some of", "drop the wrapper 'keys'")
    for key in keep:
        if key not in env.observation_space.spaces:
            raise TownletError(f"the observation has no part '{key}'", did_you_mean(key, list(env.observation_space)))
    return FilterObservation(env, keep)


def _pixels(env: Env) -> Env:
    try:
        return AddRenderObservation(env, render_only=True)
    except (TypeError, ValueError, gym.error.Error) as wrong:
        raise TownletError(f"the environment gives no pictures: {wrong}", "write observation: vector") from None


def _own(env: Env, spec: named.CustomSpec) -> Env:
    """A wrapper of the user's; what goes wrong in it is told with its name."""
    maker = user_code.registered(spec.wrapper)
    try:
        made = maker(env, **spec.settings)
    except Exception as wrong:  # whatever code of others raises
        said = f"{type(wrong).__name__}: {wrong}"
        raise TownletError(f"the wrapper '{spec.wrapper}' cannot be made: {said}", "look at its settings") from wrong
    if not isinstance(made, gym.Env):
        what = f"the wrapper '{spec.wrapper}' gave a {type(made).__name__}"
        raise TownletError(
            what, "it must give a gymnasium.Env, such as a gymnasium.Wrapper around the one it was given"
        )
    return made
