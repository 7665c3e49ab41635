"""Constructs wrappers from their specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import AddRenderObservation, ClipReward, FilterObservation, StickyAction, TimeLimit

from townlet.config import user_code
from townlet.config.models import StrictModel
from townlet.errors import TownletError, did_you_mean
from townlet.gym.wrappers import spec as specs
from townlet.gym.wrappers.actions import FrameSkip, RemapActions
from townlet.gym.wrappers.observations import EncodeDiscrete, MiniGridOneHot
from townlet.gym.wrappers.shaping import (
    ActionReward,
    CartPolePotential,
    LunarLanderPotential,
    MountainCarPotential,
    PongPotential,
    VizdoomPotential,
)

Env = gym.Env[Any, Any]


def wrap(env: Env, spec: specs.WrapperSpec) -> Env:
    """Wrap an environment according to `spec`."""
    return CONSTRUCTORS[type(spec)](env, spec)


def _keep_keys(env: Env, keep: tuple[str, ...]) -> Env:
    if not isinstance(env.observation_space, spaces.Dict):
        raise TownletError("the observation has no named parts", "drop the wrapper 'keys'")
    for key in keep:
        if key not in env.observation_space.spaces:
            raise TownletError(f"the observation has no part '{key}'", did_you_mean(key, list(env.observation_space)))
    return cast("Env", FilterObservation(env, keep))


def render_pixels(env: Env) -> Env:
    """Use the rendered image as the observation."""
    try:
        return cast("Env", AddRenderObservation(env, render_only=True))
    except (TypeError, ValueError, gym.error.Error) as error:
        raise TownletError(f"the environment renders no images: {error}", "write observation: vector") from None


def _custom(env: Env, spec: specs.CustomSpec) -> Env:
    """A user-defined wrapper; errors name it."""
    maker = user_code.find_wrapper(spec.wrapper)
    try:
        wrapped = maker(env, **spec.settings)
    except (Exception, SystemExit) as error:  # user code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise TownletError(f"the wrapper '{spec.wrapper}' cannot be made: {reason}", "check its settings") from error
    if not isinstance(wrapped, gym.Env):
        fix = "it must return a gymnasium.Env, such as a gymnasium.Wrapper around its argument"
        raise TownletError(f"the wrapper '{spec.wrapper}' returned a {type(wrapped).__name__}", fix)
    return wrapped


CONSTRUCTORS: Final[dict[type[StrictModel], Callable[[Env, Any], Env]]] = {
    specs.EncodeSpec: lambda env, spec: EncodeDiscrete(env, spec.to),
    specs.KeysSpec: lambda env, spec: _keep_keys(env, spec.keep),
    specs.MiniGridOneHotSpec: lambda env, spec: MiniGridOneHot(env),
    specs.RemapActionsSpec: lambda env, spec: RemapActions(env, spec.use),
    specs.ActionMaskSpec: lambda env, spec: env,  # nothing to wrap: `ActionMasks` reads masks for all rows at once
    specs.StickyActionsSpec: lambda env, spec: StickyAction(env, spec.probability),
    specs.FrameSkipSpec: lambda env, spec: FrameSkip(env, spec.frames, spec.max_frames),
    specs.ClipRewardSpec: lambda env, spec: ClipReward(env, -spec.limit, spec.limit),
    specs.TimeLimitSpec: lambda env, spec: TimeLimit(env, spec.steps),
    specs.PixelsSpec: lambda env, spec: render_pixels(env),
    specs.CartPoleShapingSpec: CartPolePotential,
    specs.MountainCarShapingSpec: MountainCarPotential,
    specs.LunarLanderShapingSpec: LunarLanderPotential,
    specs.PongShapingSpec: PongPotential,
    specs.VizdoomShapingSpec: VizdoomPotential,
    specs.ActionRewardSpec: ActionReward,
    specs.CustomSpec: _custom,
}
