"""Worlds that somebody writes in the page: checked like every other, but without a way to other files."""

from __future__ import annotations

from typing import Any, Final

from townlet.config.yaml import parse
from townlet.errors import Mistake, Mistakes
from townlet.town.world.catalogue import FOLDER
from townlet.town.world.load import from_node, shipped
from townlet.town.world.tables import World

SOURCE: Final = "edited.yaml"


def edited(text: str) -> World:
    """The world of a text; it may extend shipped worlds and nothing else."""
    node = parse(text, SOURCE)
    below = node.child("extends") if isinstance(node.value, dict) else None
    if below is not None and below.value not in shipped():
        fix = f"known: {', '.join(shipped())}"
        raise Mistakes([Mistake("a world of this page can extend shipped worlds alone", fix, below.mark)])
    return from_node(node, SOURCE)


def judged(text: str) -> World | list[Mistake]:
    """The world of a text, or all that is wrong with it."""
    try:
        return edited(text)
    except Mistakes as error:
        return list(error.mistakes)


def shipped_text(name: str) -> str:
    """A shipped world as it is written."""
    return (FOLDER / f"{name}.yaml").read_text("utf-8")


def placed(mistake: Mistake) -> dict[str, Any]:
    """A mistake with its line, for the margin of an editor; 0 where it has none."""
    where = mistake.where
    place = {"line": where.line or 0, "column": where.column or 0} if where else {"line": 0, "column": 0}
    return {**place, "what": mistake.what, "fix": mistake.fix}
