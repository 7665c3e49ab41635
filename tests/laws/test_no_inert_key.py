"""No key of a world is inert: changing any of them has an effect."""

from __future__ import annotations

from copy import deepcopy
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from laws.compare import any_actions, plain, scatter
from laws.keys import TURNS, WORLD, all_keys
from laws.worlds import compiled, with_spare_meters
from townlet.errors import TownletError
from townlet.town.engines.engine import make_engine
from townlet.town.world.report import world_tables
from townlet.town.world.tables import World

Document = dict[str, Any]


def turned(doc: Document, changes: Document) -> Document:
    """A copy of the document with the values at some dotted paths replaced."""
    out = deepcopy(doc)
    for path, value in changes.items():
        *way, last = path.split(".")
        at: Any = out
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[int(last) if isinstance(at, list) else last] = value
    return out


def built(doc: Document, *overrides: str) -> World:
    """The world with the number of meters for which Numba's kernels are compiled."""
    return compiled(with_spare_meters(doc), *overrides)


def played(world: World) -> list[bytes]:
    """Observations, masks and rewards of scripted steps, from the start and from random states."""
    engine = make_engine(world, 16, "numba")
    engine.reset(1)
    chance = np.random.default_rng(1)
    kinds = {"I": "INTERACT", "R": "RIGHT", "L": "LEFT", "W": "WAIT"}
    script = [kinds[c] for c in "IIIRIIWLILIRRRR"] if "RIGHT" in world.actions else []
    out = [repr(world.actions).encode(), plain(engine.obs).tobytes(), plain(engine.mask).tobytes()]

    def step(actions: Any) -> None:
        engine.step(actions)
        for name in ("obs", "mask", "components", "terminated", "truncated"):
            out.append(plain(getattr(engine, name)).tobytes())

    for name in script:
        step(np.full(16, world.actions.index(name)))
    scatter(engine, chance)
    for actions in any_actions(engine, 60, chance):
        step(actions)
    return out


def shown(world: World) -> str:
    """The printed world without its hashes, which any change would affect."""
    console = Console(width=200, file=StringIO())
    with console.capture() as text:
        console.print(world_tables(world))
    return "\n".join(line for line in text.get().splitlines() if "content" not in line)


def test_every_key_has_a_change() -> None:
    assert sorted(TURNS) == sorted(all_keys())


@pytest.mark.parametrize("key", [k for k, t in TURNS.items() if t.noticed == "played"])
def test_key_affects_the_agent(key: str) -> None:
    turn = TURNS[key]
    before = turned(WORLD, turn.given)
    assert played(built(before)) != played(built(turned(before, {turn.path: turn.value})))


@pytest.mark.parametrize("key", [k for k, t in TURNS.items() if t.noticed == "shown"])
def test_key_affects_only_the_printed_world(key: str) -> None:
    turn = TURNS[key]
    before, after = built(WORLD), built(turned(WORLD, {turn.path: turn.value}))
    assert shown(before) != shown(after)
    assert played(before) == played(after)


@pytest.mark.parametrize("key", [k for k, t in TURNS.items() if t.noticed == "refused"])
def test_key_affects_validation(key: str) -> None:
    turn = TURNS[key]
    before = turned(WORLD, turn.given)
    built(before)
    with pytest.raises(TownletError):
        built(turned(before, {turn.path: turn.value}))


NAMED = {
    "Meter.name": "meters.{}.decay=0.03",
    "Affordance.name": "affordances.{}.price=0.3",
    "Modulation.name": "modulations.{}.base=0.03",
    "Cascade.name": "cascades.{}.strength=0.03",
}


@pytest.mark.parametrize("key", [k for k, t in TURNS.items() if t.noticed == "by name"])
def test_name_identifies_an_entry(key: str) -> None:
    turn = TURNS[key]
    before = turned(WORLD, turn.given)
    old = old_name(before, turn.path)
    after = renamed(turned(before, {turn.path: turn.value}), old, turn.value)
    for doc, known, unknown in ((before, old, turn.value), (after, turn.value, old)):
        assert played(built(doc, NAMED[key].format(known))) != played(built(doc))
        with pytest.raises(TownletError, match=unknown):
            built(doc, NAMED[key].format(unknown))


def old_name(doc: Document, path: str) -> str:
    kind, number, _ = path.split(".")
    return str(doc[kind][int(number)]["name"])


def renamed(doc: Document, old: str, new: str) -> Document:
    """The document with a meter renamed in all effects."""
    for place in doc["affordances"]:
        for part in ("each_tick", "at_end"):
            if old in place.get(part, {}):
                place[part] = {new if m == old else m: v for m, v in place[part].items()}
    return doc
