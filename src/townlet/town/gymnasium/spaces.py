"""Spaces, worlds and render modes of the Gymnasium environments."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, MultiBinary, Space
from numpy.typing import NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.town.render import ansi, picture
from townlet.town.scene import Scene
from townlet.town.world.load import load
from townlet.town.world.tables import World

FPS: Final = 10
OBSERVATION, ACTION_MASK = "observation", "action_mask"  # keys of the observation with `mask_observation`


def open_world(world: str | Path | World, overrides: Sequence[str], max_episode_steps: int | None = None) -> World:
    """Load a world, or take a compiled one; `max_episode_steps` truncates earlier and changes nothing else."""
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    if not isinstance(world, World):
        world = load(world, changes)
    elif changes:
        raise TownletError("a compiled world takes no overrides", "pass them to load_world()")
    if max_episode_steps is None:
        return world
    limit = int(world.tables.max_steps)
    if not isinstance(max_episode_steps, int | np.integer) or not 1 <= max_episode_steps <= limit:
        what = f"max_episode_steps={max_episode_steps} is not possible: {world.name} truncates at step {limit}"
        raise TownletError(what, f"give an integer from 1 to {limit}, or overrides=['max_steps=900']")
    return replace(world, tables=world.tables._replace(max_steps=max_episode_steps))


def observation_space(world: World, mask_observation: bool) -> Space[Any]:
    """The bounds of each value [D]; with `mask_observation`, a Dict of it and the action mask [K]."""
    low, high = (
        np.concatenate([np.full(block.size, getattr(block, limit), np.float32) for block in world.layout])
        for limit in ("low", "high")
    )
    values = Box(low, high, dtype=np.float32)
    return Dict({OBSERVATION: values, ACTION_MASK: MultiBinary(len(world.actions))}) if mask_observation else values


def check_render_mode(mode: str | None, metadata: dict[str, Any]) -> str | None:
    if mode is not None and mode not in metadata["render_modes"]:
        raise TownletError(f"there is no render_mode '{mode}' here", did_you_mean(mode, metadata["render_modes"]))
    return mode


def with_step_limit(spec: EnvSpec | None, world: World) -> EnvSpec | None:
    """The spec with the world's step limit: wrappers read it, and the world itself truncates there."""
    if spec is not None:
        spec = copy.copy(spec)
        spec.max_episode_steps = int(world.tables.max_steps)
    return spec


def draw(scene: Scene, mode: str) -> str | NDArray[np.uint8]:
    return ansi.frame(scene) if mode == "ansi" else picture.frame(scene)
