"""Saving and restoring third-party environments without pickle.

An environment can be saved if every attribute of it and its wrappers is plain data (numbers, strings, arrays, random
generators, and lists, tuples and mappings of these), belongs to a known simulator, or holds no state (spaces,
functions, windows). Otherwise `EnvSaver.exact` is false and a resumed run starts new episodes.
"""

from __future__ import annotations

import math
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
from townlet.gym.codec import SAME_RECIPE, TAG, UnsupportedValue, decode, digest, encode, pack, unpack
from townlet.interfaces.state import State

DISPLAY_PACKAGES: Final = ("pygame", "moderngl", "cv2")  # packages whose objects only render and hold no state
LARGE_TABLE: Final = 64  # a mapping with at least this many entries is saved as a digest while it is unchanged
ALE: Final = "ale"
MUJOCO_DATA: Final = "data"
MUJOCO_ATTRIBUTES: Final = frozenset({"model", MUJOCO_DATA, "mujoco_renderer"})
# Serialized simulators are prefixed with their length, and padded to whole pages.
LENGTH_BYTES: Final = 8
PAGE_BYTES: Final = 4096
TEXT: Final = (str, bytes)


class RowEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Outermost wrapper of each row; saves and restores it, even in a worker process.

    The state is a property with a setter, since a vector environment accesses its workers by `call` and `set_attr`.
    """

    def __init__(self, env: gym.Env[Any, Any], action_names: tuple[str, ...] | None = None) -> None:
        super().__init__(env)
        self.action_names = action_names
        self._initial_digests = table_digests(env) or {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; raises TypeError for a reward that NumPy would parse."""
        result = self.env.step(action)
        if isinstance(result[1], TEXT):
            raise TypeError(f"the reward is {result[1]!r}, not a number")
        return result

    @property
    def exact(self) -> bool:
        """Whether the state can be saved."""
        return table_digests(self.env) is not None

    @property
    def env_state(self) -> State:
        """The complete state of this row; assigning one restores it."""
        return capture(self.env, self._initial_digests)

    @env_state.setter
    def env_state(self, state: State) -> None:
        restore(self.env, state)


class EnvSaver:
    """Saves all rows of a vector environment as a tree of arrays and JSON; its constructor resets the environment.

    Separate environments are saved through their `RowEnv`, any other vector environment as a whole.
    """

    def __init__(self, vec: VectorEnv[Any, Any, Any]) -> None:
        self._vec = vec
        self.separate_envs = vec if isinstance(vec, SyncVectorEnv | AsyncVectorEnv) else None
        vec.reset(seed=0)  # some environments create attributes in `reset`
        digests = None if self.separate_envs else table_digests(vec)
        self._initial_digests = digests or {}
        self.exact = all(self.separate_envs.call("exact")) if self.separate_envs else digests is not None

    def state(self) -> State:
        if self.separate_envs:
            return pack(list(self.separate_envs.call("env_state")))
        return pack([capture(self._vec, self._initial_digests)])

    def restore(self, state: State) -> None:
        if self.separate_envs:
            self.separate_envs.set_attr("env_state", unpack(state, self.separate_envs.num_envs))
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
        in_simulator = _simulator_attributes(layer)
        for name, value in vars(layer).items():
            if name != "env" and name not in in_simulator and not _is_stateless(value):
                yield where, layer, name, value


def _is_stateless(value: Any) -> bool:
    """Whether a value is assumed to hold no state: spaces, specs, enums, callables and display objects."""
    if isinstance(value, gym.Space | EnvSpec | Enum | type) or callable(value):
        return True
    if isinstance(value, list | tuple) and value:
        return all(map(_is_stateless, value))
    return type(value).__module__.split(".")[0] in DISPLAY_PACKAGES


_last_tables: dict[str, tuple[Any, str]] = {}  # all rows have equal tables, so only the latest per name is cached


def _table_digest(name: str, value: Any) -> str:
    """Digest of a large mapping; comparing it with the cached one is much faster than hashing."""
    if name not in _last_tables or not _equal(_last_tables[name][0], value):
        _last_tables[name] = (deepcopy(value), digest(value))
    return _last_tables[name][1]


def _equal(one: Any, other: Any) -> bool:
    """Whether two tables are known to be equal; those with arrays cannot be compared like this."""
    try:
        return bool(one == other)
    except ValueError:
        return False


def table_digests(env: Any) -> dict[str, str] | None:
    """Digests of an environment's large tables, by layer and attribute; None if its state cannot be saved."""
    digests: dict[str, str] = {}
    try:
        for where, _, name, value in _state_attributes(env):
            if _is_large(value):
                digests[f"{where} {name}"] = _table_digest(f"{where} {name}", value)
            else:
                encode(value)  # only to learn whether it can be saved
    except UnsupportedValue:
        return None
    return digests


def _is_large(value: Any) -> bool:
    """Whether a mapping has many entries, counting nested ones."""
    if type(value) is not dict:
        return False
    return len(value) + sum(len(v) for v in value.values() if isinstance(v, dict | list | tuple)) >= LARGE_TABLE


def capture(env: Any, initial_digests: dict[str, str]) -> State:
    """The complete state of an environment; tables that still have their initial digest are saved as that digest."""
    state: State = {where: {"plain": {}, "simulator": _capture_simulator(layer)} for where, layer in layers(env)}
    for where, _, name, value in _state_attributes(env):
        key = f"{where} {name}"
        initial = initial_digests.get(key)
        unchanged = initial is not None and _table_digest(key, value) == initial
        state[where]["plain"][name] = {TAG: "table", "is": initial} if unchanged else encode(value)
    return state


def restore(env: Any, state: State) -> None:
    """Put an environment into a captured state."""
    own_layers = dict(layers(env))
    if own_layers.keys() != state.keys():
        what = f"the saved wrappers are {', '.join(state)}; those of this environment are {', '.join(own_layers)}"
        raise TownletError(what, SAME_RECIPE)
    for where, layer in own_layers.items():
        for name, value in state[where]["plain"].items():
            if isinstance(value, dict) and value.get(TAG) == "table":
                if _table_digest(f"{where} {name}", getattr(layer, name, None)) != value["is"]:
                    raise TownletError(f"'{name}' of {type(layer).__name__} differs from the saved one", SAME_RECIPE)
            elif isinstance(getattr(layer, name, None), np.random.Generator) and value is not None:
                # In place: other attributes may refer to the same generator.
                getattr(layer, name).bit_generator.state = decode(value).bit_generator.state
            else:
                setattr(layer, name, decode(value))
        _restore_simulator(layer, state[where]["simulator"])


# Simulators with state outside Python. ALE serializes its emulator to bytes. MuJoCo's data is copied array by array:
# besides positions and velocities, some environments read what the last step computed, such as contact forces.


def _is_ale(layer: Any) -> bool:
    return type(layer).__module__.startswith("ale_py") and hasattr(layer, "restore_state")


def _is_mujoco(layer: Any) -> bool:
    return type(vars(layer).get(MUJOCO_DATA)).__name__ == "MjData"


def _simulator_attributes(layer: Any) -> frozenset[str]:
    """The attributes of a layer that `_capture_simulator` saves, or that only render it."""
    if _is_ale(layer):
        return frozenset({ALE})
    return MUJOCO_ATTRIBUTES if _is_mujoco(layer) else frozenset()


def _capture_simulator(layer: Any) -> State:
    """State of the simulator in this layer; empty if there is none."""
    if _is_ale(layer):
        return {ALE: _frame(layer.ale.cloneState(include_rng=True).serialize())}
    if not _is_mujoco(layer):
        return {}
    # Arrays of a fixed size. Contact arrays vary in size, are empty in new data, and are recomputed by every step.
    fresh = type(layer.data)(layer.model)
    values = {name: getattr(fresh, name, None) for name in dir(fresh) if not name.startswith("_")}
    array_names = [name for name, value in values.items() if isinstance(value, np.ndarray) and value.size]
    return {MUJOCO_DATA: {name: np.array(getattr(layer.data, name)) for name in (*array_names, "time")}}


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


def _frame(data: bytes) -> NDArray[np.uint8]:
    """Prefix bytes with their length and pad them to whole pages, so that rows usually have equal sizes and stack."""
    size = math.ceil((len(data) + LENGTH_BYTES) / PAGE_BYTES) * PAGE_BYTES
    return np.frombuffer((len(data).to_bytes(LENGTH_BYTES, "little") + data).ljust(size, b"\0"), np.uint8).copy()
