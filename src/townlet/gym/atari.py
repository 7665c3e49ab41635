"""Atari's own vectorization: what a recipe says of an environment, in its words."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym

from townlet.errors import TownletError
from townlet.gym.spec import EnvSpec
from townlet.gym.wrappers.spec import ClipSpec, MaskSpec, StickySpec, WrapperSpec

SIZE: Final = (210, 160)  # of the screen
ROW_BY_ROW: Final = "write vectorization: sync or async"


def native_kwargs(id: str, spec: EnvSpec) -> dict[str, Any]:
    """What makes all rows at once; what it cannot do is the recipe's mistake."""
    if spec.observation not in ("vector", "rgb"):
        raise TownletError(f"Atari's own vectorization shows pictures, not '{spec.observation}'", ROW_BY_ROW)
    height, width = spec.resize or SIZE
    kwargs: dict[str, Any] = {"img_height": height, "img_width": width, "grayscale": spec.grayscale}
    kwargs |= {"stack_num": spec.frame_stack, "reward_clipping": False}
    for wrapper in spec.wrappers:
        kwargs |= _said(wrapper)
    if spec.frame_skip > 1:  # as for rows one by one, 1 leaves the game its own
        kwargs["frameskip"] = spec.frame_skip
    kwargs |= spec.kwargs
    if spec.max_episode_steps is not None:  # it counts frames
        skip = kwargs.get("frameskip", gym.spec(id).kwargs.get("frameskip", 1))
        kwargs["max_num_frames_per_episode"] = spec.max_episode_steps * int(skip)
    return kwargs


def _said(wrapper: WrapperSpec) -> dict[str, Any]:
    """What a wrapper does, where all rows at once can do it."""
    if isinstance(wrapper, MaskSpec):  # read for all rows at once, see `envs.masks`
        return {}
    if isinstance(wrapper, ClipSpec) and wrapper.limit == 1:
        return {"reward_clipping": True}
    if isinstance(wrapper, StickySpec):
        return {"repeat_action_probability": wrapper.probability}
    what = f"Atari's own vectorization has nothing for the wrapper '{wrapper.name}'"
    limit = f" with limit {wrapper.limit:g}" if isinstance(wrapper, ClipSpec) else ""
    raise TownletError(what + limit, ROW_BY_ROW)
