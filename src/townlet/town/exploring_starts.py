"""Exploring starts: in training, a share of episodes begins somewhere else than the world says.

An agent that always begins healthy and rich may never see the states in which work pays; here it wakes
up in them. The draws are those of `starts`, so both engines begin the same lives and resume needs nothing.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, Field

from townlet.config.models import StrictModel
from townlet.errors import TownletError
from townlet.town.world.tables import Floats, World

SHARE: Final = 0  # rows of the table that the rule book reads
LOW: Final = 1
SPAN: Final = 2


def _ascending(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"the range begins at {limits[0]} and ends at {limits[1]}; write the lower number first")
    return limits


Part = Annotated[float, Field(ge=0, le=1)]
Range = Annotated[tuple[Part, Part], AfterValidator(_ascending)]


class StartsSpec(StrictModel):
    """Where training episodes begin. Evaluation always begins as the world says."""

    share: Part = Field(
        description="Share of episodes that begin in the ranges below, the others as the world says. Raise it to see "
        "rare states more often, lower it to stay nearer to what is evaluated; 0 is off."
    )
    meters: Range = Field(
        description="[low, high]: each meter begins uniformly in it, the currency apart. Lower it for needier and "
        "shorter lives, raise it for easier ones. A meter that a curriculum has put out of play keeps its start value."
    )
    money: Range | None = Field(
        None,
        description="[low, high] of the currency. Lower it so that lives begin poor and work pays at once, raise it so "
        "that they can live on what they have. Left out, the currency begins as the world says; in a world without one "
        "it means nothing.",
    )


def start_table(world: World, starts: StartsSpec | None) -> Floats:
    """What the rule book reads [3, M]: the share (in all columns), the lowest value and the span of each meter."""
    start = world.tables.start
    table = np.zeros((3, len(start)), np.float32)
    if starts is None or starts.share == 0:
        return table
    low, high = np.full(len(start), starts.meters[0]), np.full(len(start), starts.meters[1])
    if world.spec.currency is not None:
        m = world.meters.index(world.spec.currency)
        low[m], high[m] = starts.money or (start[m], start[m])
    for m in world.tables.lethal:
        if low[m] <= world.tables.tolerance:
            key = "money" if world.meters[m] == world.spec.currency else "meters"
            what = f"`starts.{key}` begins at {low[m]:g} and whoever has no {world.meters[m]} is dead"
            raise TownletError(what, f"begin `{key}` above {world.tables.tolerance:g}, for example at 0.1")
    table[SHARE], table[LOW], table[SPAN] = starts.share, low, high - low
    return table
