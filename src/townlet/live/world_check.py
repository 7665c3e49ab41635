"""The check of an edited world: its errors, or what it means for the agents that may play in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from townlet.errors import ConfigError
from townlet.live import world_editing
from townlet.live.protocol import EditWorld, WorldChecked
from townlet.live.world_view import world_json
from townlet.town.world.tables import World
from townlet.town.world.text import describe


class CheckedWorld(NamedTuple):
    """The answer to an edit, and the world if it is valid."""

    message: WorldChecked
    world: World | None


def check_world(request: EditWorld, trained_in: Sequence[World]) -> CheckedWorld:
    """Change and check the text of a world, for agents that were trained in these worlds."""
    text = None
    try:
        if request.change is not None:
            text = world_editing.apply_change(request.text, request.change)
        world = world_editing.parse_world(text or request.text)
    except ConfigError as error:
        errors = [world_editing.error_json(one, text or request.text) for one in error.diagnostics]
        return CheckedWorld(WorldChecked(number=request.number, errors=errors, text=text), None)
    changes = [world_editing.interface_changes(world, known) for known in trained_in]
    message = WorldChecked(
        number=request.number,
        errors=[],
        text=text,
        spec=world.spec.model_dump(mode="json", by_alias=True),
        description=describe(world),
        differences=_distinct(one.differences for one in changes),
        unobserved=_distinct(one.unobserved for one in changes),
        missing=_distinct(one.missing for one in changes),
        world=world_json(world) if request.preview else None,
    )
    return CheckedWorld(message, world)


def _distinct(lists: Iterable[Iterable[str]]) -> list[str]:
    return [*dict.fromkeys(chain.from_iterable(lists))]
