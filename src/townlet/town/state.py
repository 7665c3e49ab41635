"""What varies while a town lives, field by field: the same names in both engines, files and the page."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.town.world.tables import World

State = dict[str, NDArray[np.generic]]

# One row is one record; with eight meters it fills a cache line.
FIELDS: Final[dict[str, str]] = {
    "cell": "u4",
    "age": "u4",
    "episode": "i4",
    "row": "i4",  # identity in the random stream, not the place in the batch
    "active": "i4",  # bit m: meter m takes part
    "multiplier": "f4",  # of decay and modulation
    "hour": "u2",
    "progress": "u2",
    "using": "u2",
    "here": "u2",
}
SETTINGS: Final = ("multiplier", "active", "reward_mix")  # driven from outside, by a curriculum


def check_actions(actions: Any, rows: int) -> None:
    """Refuse what is not one whole number for each row."""
    kind = str(actions.dtype).removeprefix("torch.")
    if tuple(actions.shape) != (rows,) or not kind.startswith(("int", "uint")):
        what = f"actions have shape {tuple(actions.shape)} and type {kind}"
        raise TownletError(what, f"give {rows} whole numbers, one for each row")


def tops_of(world: World) -> dict[str, int]:
    """Fields whose whole numbers stay below a figure of the world; with its last tick a session is over."""
    t = world.tables
    found = {"cell": t.next_cell.shape[1], "hour": t.day, "progress": int(max(t.ticks))}
    return found | {"using": t.none + 1, "here": t.none + 2}


def check_state(world: World, rows: int, state: State) -> None:
    """Refuse fields of another world or number of rows, and values that would lead outside the tables."""
    t, towns = world.tables, rows if world.tables.shuffled else 1
    cells, rewards = t.next_cell.shape[1], len(world.rewards)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*FIELDS, "terminated", "truncated"), (rows,))
    shapes |= {"meters": (rows, len(world.meters)), "reward_mix": (rows, rewards), "key": ()}
    shapes |= {"kind_at": (towns, cells + 1), "cell_of": (towns, t.none)}
    tops = tops_of(world) | {"kind_at": t.none + 2, "cell_of": cells}
    for name, given in state.items():
        values: NDArray[Any] = np.asarray(given)
        if name not in shapes:
            raise TownletError(f"a town has no field '{name}'", did_you_mean(name, tuple(shapes)))
        if values.shape != shapes[name]:
            what = f"the field '{name}' has shape {values.shape} and this town needs {shapes[name]}"
            raise TownletError(what, "take a state of the same world and number of rows")
        low = -np.inf if name in ("reward_mix", "key") else 0
        high = tops.get(name, np.inf)
        if not (np.isfinite(values).all() and (values >= low).all() and (values < high).all()):
            raise TownletError(f"the field '{name}' has values that cannot be", f"from {low}, below {high}, finite")


def choose_rows(chosen: Any, rows: int) -> NDArray[np.int64]:
    """Rows by their numbers, in any order, or by truth values [N], as an index [k]; all of them for None."""
    if chosen is None:
        return np.arange(rows)
    index = array(chosen)
    if index.dtype == np.bool_ and index.shape == (rows,):
        return np.flatnonzero(index)
    whole = index.ndim == 1 and (np.issubdtype(index.dtype, np.integer) or not len(index))
    if not whole or (index < 0).any() or (index >= rows).any():
        raise TownletError("rows are chosen that do not exist", f"give whole numbers from 0 to {rows - 1}")
    return index.astype(np.int64)


def check_settings(world: World, rows: int, settings: State) -> None:
    """Refuse what is no setting of so many rows, or cannot be."""
    for name in settings:
        if name not in SETTINGS:
            raise TownletError(f"a town has no setting '{name}'", f"known: {', '.join(SETTINGS)}")
    check_state(world, rows, settings)


def array(values: Any) -> NDArray[Any]:
    """An engine's array as NumPy's, also when it is a tensor on some device."""
    numbers: NDArray[Any] = values.numpy(force=True) if hasattr(values, "numpy") else np.asarray(values)
    return numbers


def places_of(kind_at: NDArray[Any], world: World) -> NDArray[np.uint32]:
    """From the kind of each cell [k, C + 1] to the cell of each affordance [k, A]."""
    town, cell = np.nonzero(kind_at < world.tables.none)
    found = np.zeros((len(kind_at), world.tables.none), np.uint32)
    found[town, kind_at[town, cell]] = cell
    return found


def record(meters: int) -> np.dtype[np.void]:
    """The record of one row."""
    return np.dtype([("meters", "f4", (meters,)), *FIELDS.items()])


def records(fields: State) -> NDArray[np.void]:
    """Fields of some rows as one record for each; what is not given stays zero."""
    found = np.zeros(len(fields["meters"]), record(fields["meters"].shape[1]))
    for name, values in fields.items():
        found[name] = values
    return found


def nothing_used(world: World, rows: int) -> NDArray[np.int64]:
    """What rows used before their first step."""
    return np.full(rows, 2 * world.tables.none, np.int64)


def fresh(world: World, rows: int) -> State:
    """Rows before their first episode: all meters active, nothing scaled."""
    t = world.tables
    towns = rows if t.shuffled else 1
    state: State = {name: np.zeros(rows, kind) for name, kind in FIELDS.items()}
    state["row"] = np.arange(rows, dtype=np.int32)
    state["active"][:] = (1 << len(world.meters)) - 1
    state["multiplier"][:] = 1.0
    state["using"][:] = t.none
    state["meters"] = np.tile(t.start, (rows, 1))
    state["reward_mix"] = np.ones((rows, len(world.rewards)), np.float32)
    state["kind_at"] = np.repeat(t.kind_at, towns, axis=0)
    state["cell_of"] = np.repeat(t.cell_of, towns, axis=0)
    return state
