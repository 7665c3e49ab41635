"""Families of environments that are installed apart: which one an id needs, and whether it is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import gymnasium as gym

from townlet.errors import TownletError, did_you_mean

ATARI: Final = "atari"
NO_RETRO: Final = (
    "stable-retro has no wheel for this Python and builds only with a C++ tool chain and its emulator cores"
)


@dataclass(frozen=True)
class Family:
    """Environments that come with one package: the extra's name, what to import, and what their ids look like."""

    extra: str
    module: str
    ids: str
    registers: str = ""  # what registers the ids when it is imported; "" where Gymnasium knows them already
    unfit: str = ""  # why it cannot be installed like the others

    @property
    def installed(self) -> bool:
        """Whether the package is there; nothing is imported for that."""
        return find_spec(self.module) is not None

    @property
    def command(self) -> str:
        """How to get it."""
        return f"pip install 'townlet[{self.extra}]'"


FAMILIES: Final = (
    Family(ATARI, "ale_py", r"ALE/|.*(NoFrameskip|Deterministic)-v[04]$", "ale_py"),
    Family("box2d", "Box2D", r"(LunarLander|LunarLanderContinuous|BipedalWalker|BipedalWalkerHardcore|CarRacing)-v"),
    Family(
        "mujoco",
        "mujoco",
        r"(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher"
        r"|Swimmer|Walker2d)-v",
    ),
    Family("vizdoom", "vizdoom", r"Vizdoom", "vizdoom.gymnasium_wrapper"),
    Family("minigrid", "minigrid", r"(MiniGrid|BabyAI)-", "minigrid"),
    Family("retro", "retro", r"retro/", "retro", NO_RETRO),
)


def family(id: str) -> Family | None:
    """The family of an id; None where Gymnasium itself has it, or nobody knows."""
    return next((f for f in FAMILIES if re.match(f.ids, id)), None)


def is_atari(id: str) -> bool:
    """Whether it is one of the console's games."""
    found = family(id)
    return found is not None and found.extra == ATARI


def install(id: str) -> str:
    """How to get what an id needs."""
    found = family(id)
    return f"install it: {found.command}" if found else "install what it asks for"


def ensure(id: str) -> None:
    """Make an id known to Gymnasium, or say in one line what is missing."""
    if (found := family(id)) is not None:
        if not found.installed:
            what = f"{id} needs {found.module}, which is not installed"
            raise TownletError(what, found.unfit or f"install it: {found.command}")
        if found.registers:
            module = import_module(found.registers)
            if found.extra == ATARI:  # its banner would stand among what was asked for
                module.ALEInterface.setLoggerMode(module.LoggerMode.Error)
    if id not in gym.registry:
        raise TownletError(f"there is no environment '{id}'", did_you_mean(id, sorted(gym.registry)))
