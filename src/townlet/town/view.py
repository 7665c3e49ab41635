"""From an engine's arrays to the scene of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from townlet.town.scene import Scene

if TYPE_CHECKING:
    from townlet.town.engines.engine import Engine


def cause_of_death(engine: Engine, meters: tuple[float, ...]) -> str:
    """The lethal meter that is empty."""
    empty = [m for m in engine.world.tables.lethal if meters[m] < engine.world.tables.tolerance]
    return " and ".join(engine.world.meters[m] for m in empty)


def scene_of(engine: Engine, row: int, action: int | None) -> Scene:
    """One row now; with autoreset an ended row already shows its next episode."""
    state = engine.peek()
    meters = tuple(float(v) for v in state["meters"][row])
    ended = ""
    if not engine.autoreset:
        if engine.terminated[row]:
            ended = f"died: no {cause_of_death(engine, meters)} left"
        elif engine.truncated[row]:
            ended = "time ran out"
    one = {name: int(state[name][row]) for name in ("cell", "hour", "age", "progress", "using", "here")}
    return Scene(
        world=engine.world,
        meters=meters,
        cell_of=tuple(np.asarray(state["cell_of"])[row if len(state["cell_of"]) > 1 else 0].tolist()),
        mask=tuple(bool(v) for v in engine.mask[row]),
        action=action,
        reward=float(engine.reward[row]),
        components=tuple(float(v) for v in engine.components[row]),
        ended=ended,
        **one,
    )
