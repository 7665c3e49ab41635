"""Start of episodes: seeds, and states given by `reset(options={"meters": …, "cell": …, "hour": …})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.rng import MAX_SEED, Streams
from townlet.town.engines.engine import Engine
from townlet.town.state import State
from townlet.town.world.tables import World

START_OPTIONS: Final = ("meters", "money", "cell", "hour")
RESET_MASK: Final = "reset_mask"
Bools = NDArray[np.bool_]


def start_episodes(engine: Engine, chosen: Bools, seed: int | None, start: State) -> None:
    """Start episodes in the chosen rows [N]: the first ones of `seed`, else the next ones; `start` replaces fields."""
    if seed is None:
        engine.reset_rows(chosen)
    else:
        engine.reset(Streams(seed & MAX_SEED).key("town"))  # Gymnasium allows seeds of any size
    if start:
        current = engine.peek(*start)
        given = {name: np.isfinite(values) for name, values in start.items()}
        for name, values in start.items():
            replaced = given[name] & chosen.reshape(-1, *[1] * (values.ndim - 1))
            current[name] = np.where(replaced, values, current[name]).astype(current[name].dtype)
        engine.restore(current)


def read_reset_mask(options: Mapping[str, Any], rows: int) -> Bools | None:
    """The rows to reset [N], as Gymnasium's vector environments take them; None for all rows."""
    if RESET_MASK not in options:
        return None
    mask = options[RESET_MASK]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (rows,) or not mask.any():
        what = f"reset_mask must be a NumPy array of {rows} booleans, at least one of them true"
        raise TownletError(what, "for example options={'reset_mask': terminated | truncated}")
    return mask


def read_start(options: Mapping[str, Any], world: World, rows: int) -> State:
    """Fields of the state that the options set, NaN where they do not: each for all rows, or one value per row."""
    start: State = {}
    meters = _read_meters(options, world)
    if meters:
        values = np.full((rows, len(world.meters)), np.nan)
        for name, given in meters.items():
            values[:, world.meters.index(name)] = _meter_values(name, given, world, rows)
        start["meters"] = values
    if "cell" in options:
        start["cell"] = _cells(options["cell"], world, rows)
    if "hour" in options:
        start["hour"] = _hours(options["hour"], world, rows)
    return start


def check_options(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise TownletError(f"reset() has no option '{name}'", did_you_mean(str(name), known))


def _read_meters(options: Mapping[str, Any], world: World) -> dict[str, Any]:
    """The given meters by name; `money` is the currency meter."""
    given = options.get("meters", {})
    if not isinstance(given, Mapping):
        raise TownletError("the option 'meters' is not a mapping", "give names and values: {'meters': {'energy': 0.5}}")
    for name in given:
        if name not in world.meters:
            raise TownletError(f"{world.name} has no meter '{name}'", did_you_mean(str(name), world.meters))
    if "money" not in options:
        return dict(given)
    currency = world.spec.currency
    if currency is None:
        raise TownletError(f"{world.name} has no currency", "leave out the option 'money'")
    if currency in given:
        raise TownletError(f"both 'money' and the meter '{currency}' are given", "leave out one of them")
    return {**given, currency: options["money"]}


def _meter_values(name: str, given: Any, world: World, rows: int) -> NDArray[np.float64]:
    values = _numbers(name, given, (), rows)
    lethal = world.meters.index(name) in world.tables.lethal
    if not ((values >= 0) & (values <= 1)).all():
        raise TownletError(f"the start of the meter '{name}' is out of range", "give values from 0 to 1")
    if lethal and (values <= world.tables.tolerance).any():
        raise TownletError(f"an agent dies when '{name}' is 0", "start it higher, for example at 0.1")
    return values


def _cells(given: Any, world: World, rows: int) -> NDArray[np.float64]:
    """Indices of cells, from coordinates in the order x, y, z."""
    size = world.size
    if not size:
        raise TownletError(f"{world.name} has no map", "leave out the option 'cell'")
    at = _numbers("cell", given, (len(size),), rows)
    if (at != np.floor(at)).any() or (at < 0).any() or (at >= size).any():
        limits = ", ".join(f"{axis} from 0 to {n - 1}" for axis, n in zip("xyz", size, strict=False))
        raise TownletError(f"the cell {given} is not on the map", f"give integers: {limits}")
    strides = np.cumprod([1, *size[:-1]])
    cells: NDArray[np.float64] = at @ strides.astype(np.float64)
    return cells


def _hours(given: Any, world: World, rows: int) -> NDArray[np.float64]:
    day = world.spec.clock.day
    if not world.spec.clock.temporal:
        raise TownletError(f"{world.name} has no time of day", "leave out the option 'hour'")
    hours = _numbers("hour", given, (), rows)
    if (hours != np.floor(hours)).any() or (hours < 0).any() or (hours >= day).any():
        raise TownletError(f"the hour {given} does not exist", f"give integers from 0 to {day - 1}")
    return hours


def _numbers(name: str, given: Any, shape: tuple[int, ...], rows: int) -> NDArray[np.float64]:
    """Finite numbers [N, *shape], from one value for all rows or one per row."""
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        values = np.full(shape, np.nan)
    if values.shape not in (shape, (rows, *shape)) or not np.isfinite(values).all():
        one = f"{shape[0]} coordinates" if shape else "a number"
        raise TownletError(f"the option '{name}' is {given!r}", f"give {one}" + (", or one per row" * (rows > 1)))
    return np.broadcast_to(values, (rows, *shape))
