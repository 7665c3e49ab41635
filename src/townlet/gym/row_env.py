"""One row of a Gymnasium environment as a recipe describes it. Worker processes build theirs here, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from townlet.config import user_code
from townlet.errors import EnvironmentFailed, TownletError
from townlet.gym import extras
from townlet.gym.env_state import RowEnv
from townlet.gym.spec import EnvSpec
from townlet.gym.wrappers.actions import FrameSkip, RemapActions
from townlet.gym.wrappers.build import wrap
from townlet.gym.wrappers.observations import AtariObjects, ResizeImage
from townlet.window import use_headless_driver

# What people call the actions of environments that do not say it themselves.
ACTION_NAMES: Final = {
    "Acrobot": ("left", "none", "right"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCar": ("left", "none", "right"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
}


# What environments raise where they are asked for what they do not have.
CONSTRUCTION_ERRORS: Final = (
    TypeError, ValueError, AssertionError, LookupError, ImportError, OSError, AttributeError, RuntimeError,
    gym.error.Error,
)  # fmt: skip


@dataclass(frozen=True)
class RowFactory:
    """Makes one row when it is called; can be sent to another process."""

    id: str
    spec: EnvSpec
    render_mode: str | None = None
    code: tuple[str, ...] = ()  # files with wrappers of one's own that were allowed to run

    @property
    def skips(self) -> bool:
        """Whether frames are skipped here; Atari does it by itself."""
        return self.spec.frame_skip > 1 and not extras.is_atari(self.id)

    def __call__(self) -> RowEnv:
        """The environment with everything that stands between it and the agent."""
        for path in self.code:
            user_code.allow_code(path)
        extras.require(self.id)
        spec, atari = self.spec, extras.is_atari(self.id)
        env = self._make(atari)
        if spec.observation == "objects":
            env = AtariObjects(env, self.id)
        if self.skips:
            env = FrameSkip(env, spec.frame_skip)
            if spec.max_episode_steps is not None:  # counted in steps of the agent
                env = TimeLimit(env, spec.max_episode_steps)
        for wrapper in spec.wrappers:
            env = wrap(env, wrapper)
        if spec.observation == "rgb" and not atari:
            env = wrap_pixels(env)
        if spec.grayscale or spec.resize:
            env = ResizeImage(env, spec.grayscale, spec.resize)
        return RowEnv(env, action_names(env))

    def _make(self, atari: bool) -> gym.Env[Any, Any]:
        """The environment itself; what it does not understand is the recipe's mistake."""
        spec = self.spec
        kwargs = dict(spec.kwargs)
        if atari:
            kwargs |= {"obs_type": {"ram": "ram", "objects": "ram"}.get(spec.observation, "rgb")}
            kwargs |= {"frameskip": spec.frame_skip} if spec.frame_skip > 1 else {}
        elif spec.observation in ("ram", "objects"):
            raise TownletError(
                f"{self.id} is not an Atari game, so there is no observation '{spec.observation}'",
                "write observation: vector or rgb",
            )
        mode = self.render_mode
        drawn = spec.observation == "rgb" and not atari
        if drawn or any(w.name == "pixels" for w in spec.wrappers):
            mode = "rgb_array"
        if mode is not None:
            use_headless_driver()
            kwargs["render_mode"] = mode
        made: gym.Env[Any, Any] = construct(self.id, lambda: self._gym_make(kwargs))
        return made

    def _gym_make(self, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
        limit = self.spec.max_episode_steps
        if self.skips and limit is not None:
            limit = -1  # none of its own
        return gym.make(self.id, limit, disable_env_checker=True, **kwargs)


def construct(name: str, make: Any) -> Any:
    """What `make` gives; what an environment does not understand is told as the recipe's mistake."""
    try:
        return make()
    except EnvironmentFailed as failed:
        raise _construction_error(name, failed.__cause__) from None
    except CONSTRUCTION_ERRORS as wrong:
        raise _construction_error(name, wrong) from None


def _construction_error(name: str, wrong: BaseException | None) -> TownletError:
    """Why there is none, and what helps."""
    said = f"{type(wrong).__name__}: {wrong}" if isinstance(wrong, KeyError) else str(wrong)
    fix = "look at its kwargs and max_episode_steps"
    if isinstance(wrong, gym.error.DependencyNotInstalled):
        fix = extras.install_hint(name)
    elif isinstance(wrong, ImportError):
        fix = f"{f'pip install {wrong.name}' if wrong.name else 'install what it asks for'}, or take another version"
    return TownletError(f"{name} cannot be made: {said}", fix)


def wrap_pixels(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The rendered picture as the observation."""
    from townlet.gym.wrappers.spec import PixelsSpec

    return wrap(env, PixelsSpec())


def action_names(env: gym.Env[Any, Any]) -> tuple[str, ...] | None:
    """What the actions are called, where anybody knows."""
    if not isinstance(env.action_space, spaces.Discrete):
        return None
    if isinstance(env, RemapActions):
        inner = action_names(env.env)
        return None if inner is None else tuple(inner[use] for use in env.use)
    if callable(meanings := getattr(env, "get_action_meanings", None)):
        return tuple(str(name).lower() for name in meanings())
    if isinstance(env, gym.Wrapper):
        return action_names(env.env)
    world = getattr(env, "world", None)
    if names := getattr(world, "actions", None):
        return tuple(names)
    return ACTION_NAMES.get(env.spec.name) if env.spec is not None else None
