"""Icons of affordances: drawings are kept by edits and short texts, and invalid ones are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from townlet.errors import ConfigError
from townlet.live.app import STATIC
from townlet.town.world import edits, icons
from townlet.town.world.load import from_text, load
from townlet.town.world.text import short_text

HOUSE = ".....rr.....\n" * 4 + "...ttttttt..\n" * 8
POOL = {"name": "Pool", "icon": HOUSE, "cell": [5, 5], "each_tick": {"mood": 0.1}}


def test_drawing_survives_edits_and_the_short_text() -> None:
    text = edits.add_entry("extends: town\naffordances:\n  - {name: Bed, price: .02}\n", "affordances", POOL)
    text = edits.set_value(text, ["affordances", "Bed", "icon"], HOUSE)
    assert "    icon: |\n      .....rr.....\n" in text  # one line per row, without quotes
    world = from_text(text)
    for again in (world, from_text(short_text(world))):
        drawn = {place.name: place.icon for place in again.spec.affordances if icons.is_drawing(place.icon)}
        assert drawn == {"Bed": HOUSE, "Pool": HOUSE}
    assert world.content_hash == from_text(edits.set_value(text, ["affordances", "Pool", "icon"], None)).content_hash
    assert "icon: 🏊\n" in edits.set_value(text, ["affordances", "Pool", "icon"], "🏊")


@pytest.mark.parametrize(
    ("icon", "what"),
    [
        (HOUSE.replace("r", "x"), "line 1 of the drawing of 'Pool' has an unknown color 'x'"),
        (HOUSE.replace("..\n", ".\n"), "line 1 of the drawing of 'Pool' has 11 letters instead of 12"),
        (HOUSE[13:], "the drawing of 'Pool' has 11 lines instead of 12"),
        (HOUSE + HOUSE, "the drawing of 'Pool' has 24 lines instead of 12"),
        ("<svg>", "the icon of 'Pool' has 5 characters; at most 4 are possible"),
    ],
)
def test_invalid_icons_are_refused_at_their_line(icon: str, what: str) -> None:
    text = edits.add_entry("extends: town\n", "affordances", POOL | {"icon": icon})
    with pytest.raises(ConfigError) as found:
        from_text(text)
    (error,) = found.value.diagnostics
    assert error.what.startswith(what)
    assert error.where is not None
    assert "icon" in text.splitlines()[error.where.line - 1]


def test_output_without_pictures_shows_a_letter() -> None:
    assert icons.label(HOUSE, "Pool") == "P"
    assert icons.label("🏊", "Pool") == "🏊"
    assert all(icons.problem(place.name, place.icon) is None for place in load("town").spec.affordances)


def test_page_and_server_know_the_same_colors() -> None:
    source = (Path(STATIC) / "drawings.js").read_text("utf-8")
    assert dict(re.findall(r"\b(\w): \{ name: '([\w ]+)'", source)) == icons.COLORS
