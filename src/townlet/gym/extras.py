"""Environment families that need an optional extra: which one an id needs, and whether it is installed."""

from __future__ import annotations

import platform
import re
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import gymnasium as gym

from townlet.errors import TownletError, did_you_mean

ATARI: Final = "atari"
RETRO_WHEELS: Final = ("x86_64", "AMD64")  # architectures with stable-retro wheels
COMPATIBILITY_IDS: Final = ("GymV21Environment-v0", "GymV26Environment-v0")  # adapters for old Gym environments
NO_RETRO_WHEEL: Final = (
    "stable-retro has no wheel for this architecture: `pip install stable-retro` builds it, with a C++ compiler and "
    "CMake; most games also need a ROM that you own"
)


@dataclass(frozen=True)
class EnvFamily:
    """Environments of one package: the extra that installs it, its module, and a pattern of its ids."""

    extra: str
    module: str
    ids: str
    registered_by: str = ""  # module whose import registers the ids; "" if Gymnasium registers them
    example: str = ""  # an id that is quick to make
    why_not_installable: str = ""  # why the extra cannot be installed here, shown instead of `command`
    one_per_process: bool = False

    @property
    def installed(self) -> bool:
        """Whether the package is installed; imports nothing."""
        return find_spec(self.module) is not None

    @property
    def command(self) -> str:
        return f"pip install 'townlet[{self.extra}]'"


FAMILIES: Final = (
    EnvFamily(ATARI, "ale_py", r"ALE/|.*(NoFrameskip|Deterministic)-v[04]$", "ale_py", "ALE/Pong-v5"),
    EnvFamily(
        "box2d",
        "Box2D",
        r"(LunarLander|LunarLanderContinuous|BipedalWalker|BipedalWalkerHardcore|CarRacing)-v",
        "Box2D",
        "LunarLander-v3",
    ),
    EnvFamily(
        "mujoco",
        "mujoco",
        r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher"
        r"|Swimmer|Walker2d)-v",
        example="InvertedPendulum-v5",
    ),
    EnvFamily("vizdoom", "vizdoom", r"Vizdoom", "vizdoom.gymnasium_wrapper", "VizdoomBasic-v1"),
    EnvFamily("minigrid", "minigrid", r"(MiniGrid|BabyAI)-", "minigrid", "MiniGrid-Empty-5x5-v0"),
    EnvFamily(
        "retro",
        "stable_retro",
        r"retro/",
        "townlet.gym.retro",
        "retro/Airstriker-Genesis-v0",
        why_not_installable="" if platform.machine() in RETRO_WHEELS else NO_RETRO_WHEEL,
        one_per_process=True,
    ),
)


def family(id: str) -> EnvFamily | None:
    """The family of an id; None for ids of Gymnasium itself and unknown ones."""
    return next((f for f in FAMILIES if re.match(f.ids, id)), None)


def is_atari(id: str) -> bool:
    needed = family(id)
    return needed is not None and needed.extra == ATARI


def reward_threshold(id: str) -> float | None:
    """The mean return that counts as solved; None if Gymnasium itself has not registered one."""
    spec = gym.registry.get(id)
    return None if spec is None else spec.reward_threshold


def missing(id: str) -> str | None:
    """A message about the package that an id needs and how to install it; None if nothing is missing."""
    needed = family(id)
    if needed is None or needed.installed:
        return None
    return f"{needed.module} is not installed: {needed.why_not_installable or needed.command}"


def smoke_test(env_family: EnvFamily) -> None:
    """Make the family's example environment and step it once; raises whatever goes wrong."""
    require(env_family.example)
    env = gym.make(env_family.example, disable_env_checker=True)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()


def import_quietly(module: str) -> Any:
    """Import a third-party module without warnings: Box2D crashes the process if they are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(module)


def require(id: str) -> None:
    """Register an id with Gymnasium, or raise an error that names what is missing."""
    if id in COMPATIBILITY_IDS:
        what = f"{id} would import and run any module that its arguments name"
        raise TownletError(what, "register the environment with Gymnasium in your own program")
    if (needed := family(id)) is not None:
        if not needed.installed:
            what = f"{id} needs {needed.module}, which is not installed"
            raise TownletError(what, needed.why_not_installable or f"install it: {needed.command}")
        if needed.registered_by:
            module = import_quietly(needed.registered_by)
            if needed.extra == ATARI:  # suppress its banner
                module.ALEInterface.setLoggerMode(module.LoggerMode.Error)
    if id not in gym.registry:
        hint = did_you_mean(id, sorted(gym.registry))
        if not hint.startswith("did you mean"):
            hint += "; other environments are registered by their package, or by the file of a `custom` wrapper"
        raise TownletError(f"there is no environment '{id}'", hint)
