"""Families of environments that are installed apart: which one an id needs, and whether it is there."""

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
# Kinds of processors that stable-retro has wheels for.
RETRO_WHEELS: Final = ("x86_64", "AMD64")
BRIDGES: Final = ("GymV21Environment-v0", "GymV26Environment-v0")
NO_RETRO: Final = (
    "stable-retro has no wheel for this kind of machine: `pip install stable-retro` builds it, with a C++ compiler and "
    "CMake; all games but a few need a ROM of yours besides"
)


@dataclass(frozen=True)
class EnvFamily:
    """Environments that come with one package: the extra's name, what to import, and what their ids look like."""

    extra: str
    module: str
    ids: str
    registers: str = ""  # what is imported before one is made; "" where Gymnasium does it
    example: str = ""  # an id of the family that is made quickly
    unfit: str = ""  # why it cannot be installed like the others
    alone: bool = False  # a process can hold only one of them

    @property
    def installed(self) -> bool:
        """Whether the package is there; nothing is imported for that."""
        return find_spec(self.module) is not None

    @property
    def command(self) -> str:
        """How to get it."""
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
        unfit="" if platform.machine() in RETRO_WHEELS else NO_RETRO,
        alone=True,
    ),
)


def family(id: str) -> EnvFamily | None:
    """The family of an id; None where Gymnasium itself has it, or nobody knows."""
    return next((f for f in FAMILIES if re.match(f.ids, id)), None)


def is_atari(id: str) -> bool:
    """Whether it is one of the console's games."""
    found = family(id)
    return found is not None and found.extra == ATARI


def reward_threshold(id: str) -> float | None:
    """The mean return from which on an id counts as solved, where Gymnasium says so before anything is imported."""
    spec = gym.registry.get(id)
    return None if spec is None else spec.reward_threshold


def install_hint(id: str) -> str:
    """How to get what an id needs."""
    found = family(id)
    return f"install it: {found.command}" if found else "install what it asks for"


def missing(id: str) -> str | None:
    """What an id needs that is not there, and how to get it; None where nothing is missing."""
    found = family(id)
    if found is None or found.installed:
        return None
    return f"{found.module} is not installed: {found.unfit or found.command}"


def smoke_test(found: EnvFamily) -> None:
    """Make one environment of the family and do a step in it; whatever is wrong with it raises."""
    require(found.example)
    env = gym.make(found.example, disable_env_checker=True)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()


def import_quietly(module: str) -> Any:
    """Import a package of others without its warnings: Box2D takes the whole process down where they are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(module)


def require(id: str) -> None:
    """Make an id known to Gymnasium, or say in one line what is missing."""
    if id in BRIDGES:
        what = f"{id} makes environments of older packages by the name of a module, which would run it"
        raise TownletError(what, "register the environment with Gymnasium in a program of your own")
    if (found := family(id)) is not None:
        if not found.installed:
            what = f"{id} needs {found.module}, which is not installed"
            raise TownletError(what, found.unfit or f"install it: {found.command}")
        if found.registers:
            module = import_quietly(found.registers)
            if found.extra == ATARI:  # its banner would stand among what was asked for
                module.ALEInterface.setLoggerMode(module.LoggerMode.Error)
    if id not in gym.registry:
        hint = did_you_mean(id, sorted(gym.registry))
        if not hint.startswith("did you mean"):
            hint += "; one of your own is registered by its package, or by the file of a wrapper `own`"
        raise TownletError(f"there is no environment '{id}'", hint)
