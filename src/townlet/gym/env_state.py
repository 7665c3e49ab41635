"""Environments of others saved without pickle: what they hold as plain values, and the states of known simulators.

An environment can be saved when everything it and its wrappers hold is plain (numbers, texts, arrays, random
generators, and lists, tuples and mappings of such), belongs to a simulator that is known here, or does not decide what
happens next (spaces, functions, windows). Anything else and it is left alone: `exact` is then false.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from enum import Enum
from typing import Any, Final, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.gym.codec import SAME, UnsupportedValue, decode, digest, encode, pack, unpack
from townlet.interfaces.state import State

INNER: Final = "env"
DISPLAY_PACKAGES: Final = ("pygame", "moderngl", "cv2")  # packages whose objects only show things
LARGE_TABLE: Final = 500  # entries from which a mapping is a table: compared, not saved, while nothing changes it


class EnvSaver(Protocol):
    """Saves and restores all rows of an environment, where that is possible."""

    exact: bool

    def state(self) -> State:
        """All rows as a tree of arrays and JSON."""

    def restore(self, state: State) -> None:
        """Go on where `state` was taken."""


class RowEnv(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of each row: through it a row is saved and restored, in whichever process it is."""

    def __init__(self, env: gym.Env[Any, Any], action_names: tuple[str, ...] | None = None) -> None:
        super().__init__(env)
        self.action_names = action_names
        self._tables = table_digests(env) if self.savable else {}

    @property
    def savable(self) -> bool:
        """Whether all of it can be saved."""
        return can_save(self.env)

    @property
    def kept(self) -> State:
        """Everything that decides what this row does next."""
        return capture(self.env, self._tables)

    @kept.setter
    def kept(self, state: State) -> None:
        restore(self.env, state)


class PerRowSaver:
    """Rows one by one, each through its `Row`, also in other processes."""

    def __init__(self, vec: SyncVectorEnv | AsyncVectorEnv) -> None:
        self._vec = vec
        vec.reset(seed=0)  # some make what they are made of only now
        self.exact = all(vec.call("savable"))

    def state(self) -> State:
        return pack(list(self._vec.call("kept")))

    def restore(self, state: State) -> None:
        self._vec.set_attr("kept", unpack(state, self._vec.num_envs))


class VectorSaver:
    """A vector environment that holds all rows itself."""

    def __init__(self, vec: VectorEnv[Any, Any, Any]) -> None:
        self._vec = vec
        vec.reset(seed=0)  # as above
        self.exact = can_save(vec)
        self._tables = table_digests(vec) if self.exact else {}

    def state(self) -> State:
        return pack([capture(self._vec, self._tables)])

    def restore(self, state: State) -> None:
        restore(self._vec, unpack(state, 1)[0])


def layers(env: Any) -> Iterator[tuple[str, Any]]:
    """An environment's wrappers from the outermost on, and itself, each with a name of its own."""
    depth = 0
    while True:
        yield f"{depth} {type(env).__name__}", env
        if not isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
            return
        env, depth = env.env, depth + 1


def _state_attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    """What a layer holds that may decide what happens next."""
    known = simulator_attributes(layer)
    for name, value in vars(layer).items():
        if name != INNER and name not in known and not _is_stateless(value):
            yield name, value


def _is_stateless(value: Any) -> bool:
    """Whether a value cannot decide what happens next: it describes or shows, and never changes."""
    if isinstance(value, gym.Space | EnvSpec | Enum | type) or callable(value):
        return True
    if isinstance(value, list | tuple) and value:
        return all(map(_is_stateless, value))
    return type(value).__module__.split(".")[0] in DISPLAY_PACKAGES


def can_save(env: Any) -> bool:
    """Whether everything an environment holds can be saved."""
    try:
        for where, layer in layers(env):
            for name, value in _state_attributes(layer):
                if _is_large(value):
                    TABLE_DIGESTS.digest(f"{where} {name}", value)
                else:
                    encode(value)
    except UnsupportedValue:
        return False
    return True


class TableDigests:
    """Digests of large mappings. Rows of one environment have equal ones, so the last of each name is remembered."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, str]] = {}

    def digest(self, name: str, value: Any) -> str:
        """The fingerprint of a table; comparing is much faster than reading it whole."""
        if name not in self._last or self._last[name][0] != value:
            self._last[name] = (deepcopy(value), digest(value))
        return self._last[name][1]


TABLE_DIGESTS: Final = TableDigests()


def table_digests(env: Any) -> dict[str, str]:
    """The digest of every table of an environment that was just made, by layer and name."""
    held = [(f"{where} {name}", value) for where, layer in layers(env) for name, value in _state_attributes(layer)]
    return {name: TABLE_DIGESTS.digest(name, value) for name, value in held if _is_large(value)}


def _is_large(value: Any) -> bool:
    """Whether a mapping, with those in it, has many entries."""
    if type(value) is not dict:
        return False
    return len(value) + sum(len(v) for v in value.values() if isinstance(v, dict | list | tuple)) >= LARGE_TABLE


def capture(env: Any, unchanged: dict[str, str]) -> State:
    """Everything that decides what an environment does next; of tables that are `unchanged`, only the digest."""
    state: State = {}
    for where, layer in layers(env):
        kept: State = {}
        for name, value in _state_attributes(layer):
            table = unchanged.get(key := f"{where} {name}")
            same = table is not None and TABLE_DIGESTS.digest(key, value) == table
            kept[name] = {"~": "table", "is": table} if same else encode(value)
        state[where] = {"plain": kept, "simulator": capture_simulator(layer)}
    return state


def restore(env: Any, state: State) -> None:
    """Make an environment go on where a state was captured."""
    here = dict(layers(env))
    if here.keys() != state.keys():
        raise TownletError(f"other wrappers were saved: {', '.join(state)}; here are {', '.join(here)}", SAME)
    for where, layer in here.items():
        for name, value in state[where]["plain"].items():
            if isinstance(value, dict) and value.get("~") == "table":
                if TABLE_DIGESTS.digest(f"{where} {name}", getattr(layer, name, None)) != value["is"]:
                    raise TownletError(f"'{name}' of {type(layer).__name__} is not as it was saved", SAME)
            elif isinstance(getattr(layer, name, None), np.random.Generator) and value is not None:
                getattr(layer, name).bit_generator.state = decode(value).bit_generator.state
            else:
                setattr(layer, name, decode(value))
        restore_simulator(layer, state[where]["simulator"])


ALE: Final = "ale"
LENGTH: Final = 8
PAGE: Final = 4096
MODEL, MUJOCO_DATA, RENDERER = "model", "data", "mujoco_renderer"


def _is_ale(layer: Any) -> bool:
    return type(layer).__module__.startswith("ale_py") and hasattr(layer, "restore_state")


def _is_mujoco(layer: Any) -> bool:
    return type(vars(layer).get(MUJOCO_DATA)).__name__ == "MjData"


def simulator_attributes(layer: Any) -> frozenset[str]:
    """Names of what is saved here and not as plain values."""
    if _is_ale(layer):
        return frozenset({ALE})
    return frozenset({MODEL, MUJOCO_DATA, RENDERER}) if _is_mujoco(layer) else frozenset()


def capture_simulator(layer: Any) -> State:
    """The state of the simulator in this layer; empty where there is none."""
    if _is_ale(layer):
        return {ALE: _padded(layer.ale.cloneState(include_rng=True).serialize())}
    if _is_mujoco(layer):
        return {MUJOCO_DATA: {name: np.array(getattr(layer.data, name)) for name in _fields(layer.model, layer.data)}}
    return {}


def restore_simulator(layer: Any, state: State) -> None:
    """Put a simulator's state back."""
    if ALE in state:
        console = type(layer.ale.cloneState())  # the class of its states, without importing the package
        layer.ale.restoreState(console(_unpadded(decode(state[ALE]))))
    for name, value in state.get(MUJOCO_DATA, {}).items():
        if name == "time":
            layer.data.time = float(decode(value))
        else:
            getattr(layer.data, name)[...] = decode(value)


def _padded(data: bytes) -> NDArray[np.uint8]:
    """Bytes with their length before them, in whole pages, so that rows are of one size and can be stacked."""
    room = -(-(len(data) + LENGTH) // PAGE) * PAGE
    return np.frombuffer((len(data).to_bytes(LENGTH, "little") + data).ljust(room, b"\0"), np.uint8).copy()


def _unpadded(array: NDArray[np.uint8]) -> bytes:
    whole = np.asarray(array, np.uint8).tobytes()
    return whole[LENGTH : LENGTH + int.from_bytes(whole[:LENGTH], "little")]


def _fields(model: Any, data: Any) -> list[str]:
    """The arrays of MuJoCo's data that are always there, and its time.

    Those of contacts are as long as there are contacts, empty in new data, and found anew by every step.
    """
    fresh = type(data)(model)
    names = [name for name in dir(fresh) if not name.startswith("_")]
    return [*(n for n in names if isinstance(a := getattr(fresh, n, None), np.ndarray) and a.size), "time"]
