"""Saves and restores third-party environments without pickle.

An environment can be saved if every attribute of it and its wrappers is plain (numbers, strings, arrays, random
generators, and lists, tuples and mappings of these), belongs to a known simulator, or holds no state (spaces,
functions, windows). Otherwise `exact` is false and a resumed run starts new episodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from enum import Enum
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.codec import SAME, UnsupportedValue, decode, digest, encode, pack, unpack
from townlet.interfaces.state import State

DISPLAY_PACKAGES: Final = ("pygame", "moderngl", "cv2")  # their objects only display
LARGE_TABLE: Final = 500  # entries from which a mapping is compared by digest, and saved only if it changed
ALE: Final = "ale"
MUJOCO_DATA: Final = "data"
MUJOCO_ATTRIBUTES: Final = frozenset({"model", MUJOCO_DATA, "mujoco_renderer"})
LENGTH_BYTES, PAGE_BYTES = 8, 4096


class RowEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Outermost wrapper of each row; saves and restores it, also in a worker process."""

    def __init__(self, env: gym.Env[Any, Any], action_names: tuple[str, ...] | None = None) -> None:
        super().__init__(env)
        self.action_names = action_names
        self._tables = table_digests(env) or {}

    @property
    def savable(self) -> bool:
        return table_digests(self.env) is not None

    @property
    def saved(self) -> State:
        """The complete state of this row."""
        return capture(self.env, self._tables)

    @saved.setter
    def saved(self, state: State) -> None:
        restore(self.env, state)


class EnvSaver:
    """Saves all rows as a tree of arrays and JSON: separate rows through their `RowEnv`, a native vector as one."""

    def __init__(self, vec: VectorEnv[Any, Any, Any]) -> None:
        self._vec = vec
        self.row_envs = vec if isinstance(vec, SyncVectorEnv | AsyncVectorEnv) else None
        vec.reset(seed=0)  # some environments create their attributes here
        tables = None if self.row_envs else table_digests(vec)
        self.exact = all(self.row_envs.call("savable")) if self.row_envs else tables is not None
        self._tables = tables or {}

    def state(self) -> State:
        return pack(list(self.row_envs.call("saved")) if self.row_envs else [capture(self._vec, self._tables)])

    def restore(self, state: State) -> None:
        if self.row_envs:
            self.row_envs.set_attr("saved", unpack(state, self.row_envs.num_envs))
        else:
            restore(self._vec, unpack(state, 1)[0])


def layers(env: Any) -> Iterator[tuple[str, Any]]:
    """The wrappers of an environment, outermost first, then the environment, each with a unique name."""
    depth = 0
    while True:
        yield f"{depth} {type(env).__name__}", env
        if not isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
            return
        env, depth = env.env, depth + 1


def _state_attributes(env: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Layer name, layer, attribute name and value of everything that may hold state, except simulators."""
    for where, layer in layers(env):
        simulator = {ALE} if _is_ale(layer) else MUJOCO_ATTRIBUTES if _is_mujoco(layer) else ()
        for name, value in vars(layer).items():
            if name != "env" and name not in simulator and not _is_stateless(value):
                yield where, layer, name, value


def _is_stateless(value: Any) -> bool:
    """Whether a value only describes or shows something and never changes."""
    if isinstance(value, gym.Space | EnvSpec | Enum | type) or callable(value):
        return True
    if isinstance(value, list | tuple) and value:
        return all(map(_is_stateless, value))
    return type(value).__module__.split(".")[0] in DISPLAY_PACKAGES


_LAST_TABLES: Final[dict[str, tuple[Any, str]]] = {}  # rows share equal tables, so the last one of each name is cached


def _table_digest(name: str, value: Any) -> str:
    """Digest of a large mapping; comparing it with the cached one is much faster than hashing."""
    if name not in _LAST_TABLES or _LAST_TABLES[name][0] != value:
        _LAST_TABLES[name] = (deepcopy(value), digest(value))
    return _LAST_TABLES[name][1]


def table_digests(env: Any) -> dict[str, str] | None:
    """Digests of an environment's large tables, by layer and attribute; None if its state cannot be saved."""
    digests: dict[str, str] = {}
    try:
        for where, _, name, value in _state_attributes(env):
            if _is_large(value):
                digests[f"{where} {name}"] = _table_digest(f"{where} {name}", value)
            else:
                encode(value)
    except UnsupportedValue:
        return None
    return digests


def _is_large(value: Any) -> bool:
    """Whether a mapping has many entries, counting nested ones."""
    if type(value) is not dict:
        return False
    return len(value) + sum(len(v) for v in value.values() if isinstance(v, dict | list | tuple)) >= LARGE_TABLE


def capture(env: Any, unchanged: dict[str, str]) -> State:
    """The complete state of an environment; tables that match `unchanged` are saved as their digest."""
    state: State = {where: {"plain": {}, "simulator": _capture_simulator(layer)} for where, layer in layers(env)}
    for where, _, name, value in _state_attributes(env):
        table = unchanged.get(key := f"{where} {name}")
        same = table is not None and _table_digest(key, value) == table
        state[where]["plain"][name] = {"~": "table", "is": table} if same else encode(value)
    return state


def restore(env: Any, state: State) -> None:
    """Put an environment into a captured state."""
    here = dict(layers(env))
    if here.keys() != state.keys():
        raise TownletError(f"the saved wrappers are {', '.join(state)}; these are {', '.join(here)}", SAME)
    for where, layer in here.items():
        for name, value in state[where]["plain"].items():
            if isinstance(value, dict) and value.get("~") == "table":
                if _table_digest(f"{where} {name}", getattr(layer, name, None)) != value["is"]:
                    raise TownletError(f"'{name}' of {type(layer).__name__} differs from the saved one", SAME)
            elif isinstance(getattr(layer, name, None), np.random.Generator) and value is not None:
                getattr(layer, name).bit_generator.state = decode(value).bit_generator.state
            else:
                setattr(layer, name, decode(value))
        _restore_simulator(layer, state[where]["simulator"])


# Simulators with state outside Python. ALE serializes its console to bytes. MuJoCo's data is copied array by array:
# besides positions and velocities, some environments read results of the last step.


def _is_ale(layer: Any) -> bool:
    return type(layer).__module__.startswith("ale_py") and hasattr(layer, "restore_state")


def _is_mujoco(layer: Any) -> bool:
    return type(vars(layer).get(MUJOCO_DATA)).__name__ == "MjData"


def _capture_simulator(layer: Any) -> State:
    """State of the simulator in this layer; empty if there is none."""
    if _is_ale(layer):
        return {ALE: _pad(layer.ale.cloneState(include_rng=True).serialize())}
    if not _is_mujoco(layer):
        return {}
    # Arrays of a fixed size. Contact arrays vary in size, are empty in new data, and are recomputed by every step.
    fresh = type(layer.data)(layer.model)
    names = [name for name in dir(fresh) if not name.startswith("_")]
    arrays = [n for n in names if isinstance(a := getattr(fresh, n, None), np.ndarray) and a.size]
    return {MUJOCO_DATA: {name: np.array(getattr(layer.data, name)) for name in (*arrays, "time")}}


def _restore_simulator(layer: Any, state: State) -> None:
    if ALE in state:
        state_class = type(layer.ale.cloneState())  # avoids importing the package
        data = np.asarray(decode(state[ALE]), np.uint8).tobytes()
        size = int.from_bytes(data[:LENGTH_BYTES], "little")
        layer.ale.restoreState(state_class(data[LENGTH_BYTES : LENGTH_BYTES + size]))
    for name, value in state.get(MUJOCO_DATA, {}).items():
        if name == "time":
            layer.data.time = float(decode(value))
        else:
            getattr(layer.data, name)[...] = decode(value)


def _pad(data: bytes) -> NDArray[np.uint8]:
    """Prefix bytes with their length and pad them to whole pages, so that the rows can be stacked."""
    size = -(-(len(data) + LENGTH_BYTES) // PAGE_BYTES) * PAGE_BYTES
    return np.frombuffer((len(data).to_bytes(LENGTH_BYTES, "little") + data).ljust(size, b"\0"), np.uint8).copy()
