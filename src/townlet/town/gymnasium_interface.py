"""What the two Gymnasium environments ask alike: worlds, spaces, seeds, actions and frames."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import ArrayLike, NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.rng import Streams
from townlet.town.render import ansi, picture
from townlet.town.scene import Scene
from townlet.town.world.load import load
from townlet.town.world.tables import World

Observation = NDArray[np.float32]


def open_world(world: str | Path | World, overrides: Sequence[str]) -> World:
    """A world by name, by path, or as it is."""
    changes = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    if not isinstance(world, World):
        return load(world, changes)
    if changes:
        raise TownletError("a compiled world takes no overrides", "give them to load_world()")
    return world


def observation_space(world: World) -> Space[Observation]:
    """The world's blocks one after the other, each with its own range."""
    low = np.concatenate([np.full(block.size, block.low, np.float32) for block in world.layout])
    high = np.concatenate([np.full(block.size, block.high, np.float32) for block in world.layout])
    return cast("Space[Observation]", Box(low, high, dtype=np.float32))


def known_mode(mode: str | None, metadata: dict[str, Any]) -> str | None:
    """The render mode, if the environment has it."""
    modes = metadata["render_modes"]
    if mode is not None and mode not in modes:
        raise TownletError(f"there is no render_mode '{mode}' here", did_you_mean(mode, modes))
    return mode


def stream_key(seed: int | None, chance: np.random.Generator) -> int:
    """The key of the random stream of a seed; without one, of a seed drawn by chance."""
    return Streams(int(chance.integers(2**31)) if seed is None else seed).key("town")


def refuse_options(options: dict[str, Any] | None) -> None:
    """Options that do nothing would mislead, so there are none."""
    if options:
        raise TownletError(
            f"reset() knows no option '{next(iter(options))}'", "change the world with overrides when you make it"
        )


def one_action(action: Any, names: Sequence[str]) -> int:
    """The number of an action, checked: an engine does not check."""
    try:
        number = operator.index(action)
    except TypeError:
        number = -1
    if not 0 <= number < len(names):
        raise TownletError(f"{action!r} is no action", f"give a whole number from 0 to {len(names) - 1}")
    return number


def row_actions(actions: ArrayLike, rows: int, names: Sequence[str]) -> NDArray[np.int64]:
    """One checked action for each row."""
    numbers = np.asarray(actions)
    if numbers.shape != (rows,) or not np.issubdtype(numbers.dtype, np.integer):
        raise TownletError(
            f"actions have shape {numbers.shape} and type {numbers.dtype}",
            f"give {rows} whole numbers, one for each row",
        )
    if numbers.min() < 0 or numbers.max() >= len(names):
        wrong = numbers[(numbers < 0) | (numbers >= len(names))][0]
        raise TownletError(f"{wrong} is no action", f"give whole numbers from 0 to {len(names) - 1}")
    return numbers.astype(np.int64)


def render(scene: Scene, mode: str) -> str | NDArray[np.uint8]:
    """A scene in a render mode: text, or a picture [height, width, 3]."""
    return ansi.frame(scene) if mode == "ansi" else picture.frame(scene)
