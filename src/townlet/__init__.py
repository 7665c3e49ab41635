"""Townlet: a deep-reinforcement-learning laboratory that you can watch.

Importing it registers Gymnasium environments with lazy entry points; torch and Numba are not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gymnasium.envs.registration import register, registry

from townlet._version import __version__

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.town.env import Town
    from townlet.town.world.tables import World
    from townlet.train.api import TrainedRun
    from townlet.train.policies import TrainedPolicy

__all__ = ["IDS", "__version__", "load", "load_world", "make", "train"]

# Gymnasium id → shipped world
IDS = {
    "Townlet/Town-v0": "town",
    "Townlet/Town-L0-v0": "town-l0",
    "Townlet/Town-L0-Dual-v0": "town-l0-dual",
    "Townlet/Town-L1-v0": "town-l1",
    "Townlet/Town-L2-v0": "town-l2",
    "Townlet/Town-L3-v0": "town-l3",
    "Townlet/Town-Shuffled-v0": "town-shuffled",
    "Townlet/Town-Foggy-v0": "town-foggy",
    "Townlet/Town-House-v0": "town-house",
    "Townlet/Town-Aspatial-v0": "town-aspatial",
    "Townlet/Town-Cascades-Weak-v0": "cascades-weak",
    "Townlet/Town-Cascades-Strong-v0": "cascades-strong",
}
BANDIT = "Bandit-v0"


def load_world(name_or_path: str | Path, overrides: Sequence[str] = ()) -> World:
    """Load, check and compile a world by name or path, with `key=value` overrides."""
    from townlet.town.world.load import load

    return load(name_or_path, overrides)


def make(world: str | Path | World = "town", rows: int = 1, **settings: Any) -> Town:
    """A vectorized environment that steps `rows` copies of a world and returns tensors (`townlet.town.env.Town`)."""
    from townlet.town.env import Town
    from townlet.town.world.tables import World

    return Town(world if isinstance(world, World) else load_world(world), rows, **settings)


def train(
    recipe: str = "town",
    *,
    seed: int | None = None,
    overrides: Mapping[str, Any] | Sequence[str] | str = (),
    root: str | Path = "runs",
    progress: bool = False,
) -> TrainedRun:
    """Train a recipe (ENV or ENV:VARIANT) and return the run; overrides: {"agent.lr": 1e-3} or ["agent.lr=1e-3"].

    Prints nothing unless `progress`. Ctrl-C saves the run and then raises KeyboardInterrupt as usual.
    """
    from townlet.train.api import train

    return train(recipe, seed=seed, overrides=overrides, root=root, progress=progress)


def load(
    run: str | Path | Run, which: Literal["best", "last"] = "best", *, root: str | Path = "runs", seed: int = 0
) -> TrainedPolicy:
    """Load the policy of a run: `load("latest").act(obs, mask)`. `seed` determines sampled actions."""
    from townlet.train.api import load

    return load(run, which, root=root, seed=seed)


def _register() -> None:
    """Register the Gymnasium ids. They need no time limit: worlds truncate their own episodes."""
    for name, world in IDS.items():
        if name not in registry:
            register(
                id=name,
                entry_point="townlet.town.gymnasium:TownEnv",
                vector_entry_point="townlet.town.gymnasium:TownVectorEnv",
                kwargs={"world": world},
            )
    if BANDIT not in registry:
        register(id=BANDIT, entry_point="townlet.gym.bandit:Bandit")


_register()
