"""State of the rows: the same field names in both engines, in checkpoints and on the live page."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from townlet.config.models import StrictModel
from townlet.errors import TownletError, did_you_mean
from townlet.town.world.tables import Floats, World

State = dict[str, NDArray[np.generic]]
Value = Any  # in the rules: a number in the Numba engine, a tensor [N] in the torch engine

# One row is one record; with eight meters it fills a cache line.
FIELDS: Final[dict[str, str]] = {
    "cell": "u4",
    "age": "u4",
    "episode": "i4",
    "row": "i4",  # identity in the random stream, not the index in the batch
    "active": "i4",  # bit m: meter m is active
    "multiplier": "f4",  # multiplies decay and modulation
    "hour": "u2",
    "progress": "u2",  # completed ticks of the current session
    "using": "u2",  # affordance of the current session; n_affordances if none
    "here": "u2",  # affordance at the cell; n_affordances if none
}
SETTINGS: Final = ("multiplier", "active", "reward_mix")  # set by a curriculum
OUT_OF_TIME: Final = "time"  # the cause of a truncation
FRACTION, LOW, SPAN = 0, 1, 2  # first index of `start_table`


class Row(Protocol):
    """The state of one row as the rules see it; see `FIELDS`."""

    cell: Value
    age: Value
    episode: Value
    row: Value
    active: Value
    multiplier: Value
    hour: Value
    progress: Value
    using: Value
    here: Value
    meters: Value  # indexable by meter


def _ascending(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError(f"the range begins at {limits[0]} and ends at {limits[1]}; write the lower number first")
    return limits


UnitValue = Annotated[float, Field(ge=0, le=1)]
UnitRange = Annotated[tuple[UnitValue, UnitValue], AfterValidator(_ascending)]


class StartsSpec(StrictModel):
    """Exploring starts: a fraction of training episodes starts in random states. Evaluation is not affected."""

    fraction: UnitValue = Field(
        description="Fraction of episodes that start in the ranges below; the others start as the world defines. Raise "
        "it to visit rare states more often, lower it to stay closer to evaluation; 0 turns it off."
    )
    meters: UnitRange = Field(
        description="[low, high]: each meter except the currency starts uniformly in this range. Lower it for harder, "
        "shorter episodes, raise it for easier ones. A meter that the curriculum has not activated keeps its start "
        "value."
    )
    money: UnitRange | None = Field(
        None,
        description="[low, high] of the currency meter. Lower it so that agents start poor and work pays at once, "
        "raise it so that they can live off their savings. By default the currency starts as the world defines; "
        "ignored in a world without currency.",
    )


def start_table(world: World, starts: StartsSpec | None) -> Floats:
    """The table of exploring starts [3, M]: the fraction (repeated), and the lowest value and span of each meter."""
    start = world.tables.start
    table = np.zeros((3, len(start)), np.float32)
    if starts is None or starts.fraction == 0:
        return table
    low, high = np.full(len(start), starts.meters[0]), np.full(len(start), starts.meters[1])
    if world.spec.currency is not None:
        m = world.meters.index(world.spec.currency)
        low[m], high[m] = starts.money or (start[m], start[m])
    for m in world.tables.lethal:
        if low[m] <= world.tables.tolerance:
            key = "money" if world.meters[m] == world.spec.currency else "meters"
            what = f"`starts.{key}` begins at {low[m]:g}, at which an agent dies: {world.meters[m]} is lethal"
            raise TownletError(what, f"begin `{key}` above {world.tables.tolerance:g}, for example at 0.1")
    table[FRACTION], table[LOW], table[SPAN] = starts.fraction, low, high - low
    return table


def initial_state(world: World, rows: int) -> State:
    """Rows before their first episode: all meters active, multiplier 1."""
    t = world.tables
    layouts = rows if t.shuffled else 1
    state: State = {name: np.zeros(rows, dtype) for name, dtype in FIELDS.items()}
    state["row"] = np.arange(rows, dtype=np.int32)
    state["active"][:] = (1 << len(world.meters)) - 1
    state["multiplier"][:] = 1.0
    state["using"][:] = t.n_affordances
    state["meters"] = np.tile(t.start, (rows, 1))
    state["reward_mix"] = np.ones((rows, len(world.rewards)), np.float32)
    state["kind_at"] = np.repeat(t.kind_at, layouts, axis=0)
    state["cell_of"] = np.repeat(t.cell_of, layouts, axis=0)
    return state


def upper_bounds(world: World) -> dict[str, int]:
    """Exclusive upper bounds of integer fields. `progress` stays below `ticks`: the last tick ends a session."""
    t = world.tables
    bounds = {"cell": t.next_cell.shape[1], "hour": t.day, "progress": int(max(t.ticks))}
    return bounds | dict.fromkeys(("using", "here"), t.n_affordances + 1)


def check_actions(actions: Any, rows: int) -> None:
    """Raise an error unless there is one integer per row."""
    dtype = str(actions.dtype).removeprefix("torch.")
    if tuple(actions.shape) != (rows,) or not dtype.startswith(("int", "uint")):
        what = f"actions have shape {tuple(actions.shape)} and type {dtype}"
        raise TownletError(what, f"give {rows} integers, one per row")


def check_state(world: World, rows: int, state: State) -> None:
    """Raise an error for fields of another world or number of rows, and for values out of range."""
    t, layouts = world.tables, rows if world.tables.shuffled else 1
    cells, rewards = t.next_cell.shape[1], len(world.rewards)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*FIELDS, "terminated", "truncated"), (rows,))
    shapes |= {"meters": (rows, len(world.meters)), "reward_mix": (rows, rewards), "key": ()}
    shapes |= {"kind_at": (layouts, cells + 1), "cell_of": (layouts, t.n_affordances)}
    bounds = upper_bounds(world) | {"kind_at": t.n_affordances + 2, "cell_of": cells}
    for name, given in state.items():
        values: NDArray[Any] = np.asarray(given)
        if name not in shapes:
            raise TownletError(f"a town has no field '{name}'", did_you_mean(name, tuple(shapes)))
        if values.shape != shapes[name]:
            what = f"the field '{name}' has shape {values.shape}, but this town needs {shapes[name]}"
            raise TownletError(what, "use a state of the same world and number of rows")
        low = -np.inf if name in ("reward_mix", "key") else 0
        high = bounds.get(name, np.inf)
        if not (np.isfinite(values).all() and (values >= low).all() and (values < high).all()):
            limits = f"finite values from {low}" + (f" to below {high}" if name in bounds else "")
            raise TownletError(f"the field '{name}' is out of range", f"give {limits}")


def check_settings(world: World, rows: int, settings: State) -> None:
    """Raise an error for unknown settings and impossible values."""
    for name in settings:
        if name not in SETTINGS:
            raise TownletError(f"a town has no setting '{name}'", f"known: {', '.join(SETTINGS)}")
    check_state(world, rows, settings)


def row_indices(chosen: Any, rows: int) -> NDArray[np.int64]:
    """Indices [k] of the rows chosen by integers in any order or by a mask [N]; all rows for None."""
    if chosen is None:
        return np.arange(rows)
    index = to_numpy(chosen)
    if index.dtype == np.bool_ and index.shape == (rows,):
        return np.flatnonzero(index)
    integers = index.ndim == 1 and (np.issubdtype(index.dtype, np.integer) or not len(index))
    if not integers or (index < 0).any() or (index >= rows).any():
        raise TownletError("the chosen rows are invalid", f"give integers from 0 to {rows - 1}, or {rows} booleans")
    return index.astype(np.int64)


def to_numpy(values: Any) -> NDArray[Any]:
    """An engine's array or tensor, on any device, as a NumPy array."""
    array: NDArray[Any] = values.numpy(force=True) if hasattr(values, "numpy") else np.asarray(values)
    return array


def cells_of_affordances(kind_at: NDArray[Any], world: World) -> NDArray[np.uint32]:
    """The cell of each affordance [k, A], from the affordance at each cell [k, C + 1]."""
    layout, cell = np.nonzero(kind_at < world.tables.n_affordances)
    cells = np.zeros((len(kind_at), world.tables.n_affordances), np.uint32)
    cells[layout, kind_at[layout, cell]] = cell
    return cells


@cache
def record_dtype(meters: int) -> np.dtype[np.void]:
    """The record type of one row; one object for all engines, because Numba compares others field by field."""
    return np.dtype([("meters", "f4", (meters,)), *FIELDS.items()])


def cause_names(world: World) -> tuple[str, ...]:
    """Why episodes end, by code: the lethal meters in the world's order, then time."""
    return (*(world.meters[m] for m in world.tables.lethal), OUT_OF_TIME)


def cause_codes(world: World, meters: NDArray[Any]) -> NDArray[np.int64]:
    """The codes [k] for final meters [k, M]: the first empty lethal meter, else time."""
    t = world.tables
    empty = meters[:, t.lethal] < t.tolerance
    return np.where(empty.any(axis=1), empty.argmax(axis=1), len(t.lethal))


def cause_of_death(world: World, meters: tuple[float, ...]) -> str:
    """All empty lethal meters, joined by "and"."""
    empty = [m for m in world.tables.lethal if meters[m] < world.tables.tolerance]
    return " and ".join(world.meters[m] for m in empty)
