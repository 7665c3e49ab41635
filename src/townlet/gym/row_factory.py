"""Factory of single rows of a Gymnasium environment. Worker processes import this module, so it avoids torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, TypeVar

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from townlet.config import user_code
from townlet.errors import EnvironmentFailed, TownletError
from townlet.gym import extras, sources
from townlet.gym.env_state import RowEnv
from townlet.gym.settings import GymSettings
from townlet.gym.wrappers.actions import FrameSkip, RemapActions
from townlet.gym.wrappers.build import render_pixels, wrap
from townlet.gym.wrappers.observations import AtariObjects, ResizeImage
from townlet.window import use_dummy_driver_if_headless

T = TypeVar("T")
# Frames of a traceback that are not in the code of an environment's author.
LIBRARY_CODE: Final = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python[\d.]+|townlet)[/\\]|^<")

# Action names of environments that do not provide them.
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

# Exceptions that environments raise for unsuitable arguments.
CONSTRUCTION_ERRORS: Final = (
    TypeError, ValueError, AssertionError, LookupError, ImportError, OSError, AttributeError, RuntimeError,
    gym.error.Error, SystemExit, EOFError,
)  # fmt: skip


@dataclass(frozen=True)
class RowFactory:
    """Makes one row when called; can be sent to another process."""

    id: str
    settings: GymSettings
    render_mode: str | None = None
    user_files: tuple[str, ...] = ()  # executed before the row is made

    @property
    def skips_frames(self) -> bool:
        """Whether frames are skipped by a wrapper; Atari environments skip them internally."""
        return self.settings.frame_skip > 1 and not extras.is_atari(self.id)

    @property
    def spec(self) -> EnvSpec:
        """Gymnasium's description of the environment."""
        return sources.find_spec(self.id, self.settings.source)

    def __call__(self) -> RowEnv:
        """The environment with all its wrappers."""
        for path in self.user_files:
            user_code.execute_file(path)
        if self.settings.source is None:
            extras.require(self.id)
        settings = self.settings
        env = self.make()
        if settings.observation == "objects":
            env = AtariObjects(env, self.id)
        if self.skips_frames:
            env = FrameSkip(env, settings.frame_skip)
            if settings.max_episode_steps is not None:  # in steps of the agent, not in frames
                env = TimeLimit(env, settings.max_episode_steps)
        for wrapper in settings.wrappers:
            env = wrap(env, wrapper)
        if settings.observation == "rgb" and not extras.is_atari(self.id):
            env = render_pixels(env)
        if settings.grayscale or settings.resize:
            env = ResizeImage(env, settings.grayscale, settings.resize)
        return RowEnv(env, action_names(env))

    def make(self) -> gym.Env[Any, Any]:
        """The environment without Townlet's wrappers."""
        settings, atari = self.settings, extras.is_atari(self.id)
        kwargs = dict(settings.kwargs)
        if atari:
            kwargs["obs_type"] = "ram" if settings.observation in ("ram", "objects") else "rgb"
            if settings.frame_skip > 1:  # 1 keeps the environment's default frame skip
                kwargs["frameskip"] = settings.frame_skip
        elif settings.observation in ("ram", "objects"):
            what = f"{self.id} is not an Atari game and has no observation '{settings.observation}'"
            raise TownletError(what, "set `observation: vector` or `observation: rgb`")
        render_mode = self.render_mode
        if (settings.observation == "rgb" and not atari) or any(w.name == "pixels" for w in settings.wrappers):
            render_mode = "rgb_array"
        if render_mode is not None:
            use_dummy_driver_if_headless()
            kwargs["render_mode"] = render_mode
        limit = settings.max_episode_steps
        if self.skips_frames and limit is not None:
            limit = -1  # Gymnasium's value for no limit: the TimeLimit around FrameSkip truncates instead
        return construct(self.id, lambda: gym.make(self.spec, limit, disable_env_checker=True, **kwargs))


def construct(name: str, make: Callable[[], T]) -> T:
    """Call `make`; errors of the environment become a `TownletError` that suggests how to change the recipe."""
    try:
        return make()
    except EnvironmentFailed as failed:
        raise _construction_error(name, failed.diagnostics[0].what, failed.__cause__) from failed.__cause__
    except CONSTRUCTION_ERRORS as error:
        raise _construction_error(name, f"{name} cannot be made: {describe_exception(error)}", error) from error


def _construction_error(name: str, what: str, error: BaseException | None) -> TownletError:
    fix = "check its kwargs and max_episode_steps, and the environment with gymnasium.utils.env_checker.check_env"
    if isinstance(error, gym.error.DependencyNotInstalled):
        family = extras.family(name)
        fix = f"install it: {family.command}" if family else "install the package it needs"
    elif isinstance(error, ImportError):
        install = f"pip install {error.name}" if error.name else "install the package it needs"
        fix = f"{install}, or use another version of the environment"
    return TownletError(what, fix)


def describe_exception(error: BaseException) -> str:
    """The exception in one line, with the last line of the environment's own code that it passed, if any."""
    message = " ".join(str(error).split()).rstrip(".")
    frames = [frame for frame in extract_tb(error.__traceback__) if not LIBRARY_CODE.search(frame.filename)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}"


def action_names(env: gym.Env[Any, Any]) -> tuple[str, ...] | None:
    """Names of discrete actions, if known."""
    if not isinstance(env.action_space, spaces.Discrete):
        return None
    if isinstance(env, RemapActions):
        inner = action_names(env.env)
        return None if inner is None else tuple(inner[action] for action in env.used_actions)
    if callable(get_names := getattr(env, "get_action_meanings", None)):  # as in Atari
        return tuple(str(name).lower() for name in get_names())
    if isinstance(env, gym.Wrapper):
        return action_names(env.env)
    if names := getattr(getattr(env, "world", None), "actions", None):  # a town
        return tuple(names)
    return None if env.spec is None else ACTION_NAMES.get(env.spec.name)
