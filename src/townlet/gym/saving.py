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

from townlet.errors import TownletError
from townlet.gym import simulators
from townlet.gym.plain_values import SAME, Unfit, decode, digest, encode, pack, unpack
from townlet.interfaces.state import State

INNER: Final = "env"
SCREENS: Final = ("pygame", "moderngl", "cv2")  # packages whose objects only show things
TABLE: Final = 500  # entries from which a mapping is a table: compared, not saved, while nothing changes it


class Keeper(Protocol):
    """Saves and restores all rows of an environment, where that is possible."""

    exact: bool

    def state(self) -> State:
        """All rows as a tree of arrays and JSON."""

    def restore(self, state: State) -> None:
        """Go on where `state` was taken."""


class Row(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of each row: through it a row is saved and restored, in whichever process it is."""

    def __init__(self, env: gym.Env[Any, Any], action_names: tuple[str, ...] | None = None) -> None:
        super().__init__(env)
        self.action_names = action_names
        self._tables = tables(env) if self.savable else {}

    @property
    def savable(self) -> bool:
        """Whether all of it can be saved."""
        return possible(self.env)

    @property
    def kept(self) -> State:
        """Everything that decides what this row does next."""
        return capture(self.env, self._tables)

    @kept.setter
    def kept(self, state: State) -> None:
        revive(self.env, state)


class RowsKeeper:
    """Rows one by one, each through its `Row`, also in other processes."""

    def __init__(self, vec: SyncVectorEnv | AsyncVectorEnv) -> None:
        self._vec = vec
        vec.reset(seed=0)  # some make what they are made of only now
        self.exact = all(vec.call("savable"))

    def state(self) -> State:
        return pack(list(self._vec.call("kept")))

    def restore(self, state: State) -> None:
        self._vec.set_attr("kept", unpack(state, self._vec.num_envs))


class WholeKeeper:
    """A vector environment that holds all rows itself."""

    def __init__(self, vec: VectorEnv[Any, Any, Any]) -> None:
        self._vec = vec
        vec.reset(seed=0)  # as above
        self.exact = possible(vec)
        self._tables = tables(vec) if self.exact else {}

    def state(self) -> State:
        return pack([capture(self._vec, self._tables)])

    def restore(self, state: State) -> None:
        revive(self._vec, unpack(state, 1)[0])


def layers(env: Any) -> Iterator[tuple[str, Any]]:
    """An environment's wrappers from the outermost on, and itself, each with a name of its own."""
    depth = 0
    while True:
        yield f"{depth} {type(env).__name__}", env
        if not isinstance(env, gym.Wrapper | gym.vector.VectorWrapper):
            return
        env, depth = env.env, depth + 1


def _held(layer: Any) -> Iterator[tuple[str, Any]]:
    """What a layer holds that may decide what happens next."""
    known = simulators.attributes(layer)
    for name, value in vars(layer).items():
        if name != INNER and name not in known and not _idle(value):
            yield name, value


def _idle(value: Any) -> bool:
    """Whether a value cannot decide what happens next: it describes or shows, and never changes."""
    if isinstance(value, gym.Space | EnvSpec | Enum | type) or callable(value):
        return True
    if isinstance(value, list | tuple) and value:
        return all(map(_idle, value))
    return type(value).__module__.split(".")[0] in SCREENS


def possible(env: Any) -> bool:
    """Whether everything an environment holds can be saved."""
    try:
        for where, layer in layers(env):
            for name, value in _held(layer):
                if _large(value):
                    TABLES.digest(f"{where} {name}", value)
                else:
                    encode(value)
    except Unfit:
        return False
    return True


class Tables:
    """Digests of large mappings. Rows of one environment have equal ones, so the last of each name is remembered."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, str]] = {}

    def digest(self, name: str, value: Any) -> str:
        """The fingerprint of a table; comparing is much faster than reading it whole."""
        if name not in self._last or self._last[name][0] != value:
            self._last[name] = (deepcopy(value), digest(value))
        return self._last[name][1]


TABLES: Final = Tables()


def tables(env: Any) -> dict[str, str]:
    """The digest of every table of an environment that was just made, by layer and name."""
    held = [(f"{where} {name}", value) for where, layer in layers(env) for name, value in _held(layer)]
    return {name: TABLES.digest(name, value) for name, value in held if _large(value)}


def _large(value: Any) -> bool:
    """Whether a mapping, with those in it, has many entries."""
    if type(value) is not dict:
        return False
    return len(value) + sum(len(v) for v in value.values() if isinstance(v, dict | list | tuple)) >= TABLE


def capture(env: Any, unchanged: dict[str, str]) -> State:
    """Everything that decides what an environment does next; of tables that are `unchanged`, only the digest."""
    state: State = {}
    for where, layer in layers(env):
        kept: State = {}
        for name, value in _held(layer):
            table = unchanged.get(key := f"{where} {name}")
            same = table is not None and TABLES.digest(key, value) == table
            kept[name] = {"~": "table", "is": table} if same else encode(value)
        state[where] = {"plain": kept, "simulator": simulators.capture(layer)}
    return state


def revive(env: Any, state: State) -> None:
    """Make an environment go on where a state was captured."""
    here = dict(layers(env))
    if here.keys() != state.keys():
        raise TownletError(f"other wrappers were saved: {', '.join(state)}; here are {', '.join(here)}", SAME)
    for where, layer in here.items():
        for name, value in state[where]["plain"].items():
            if isinstance(value, dict) and value.get("~") == "table":
                if TABLES.digest(f"{where} {name}", getattr(layer, name, None)) != value["is"]:
                    raise TownletError(f"'{name}' of {type(layer).__name__} is not as it was saved", SAME)
            elif isinstance(getattr(layer, name, None), np.random.Generator) and value is not None:
                getattr(layer, name).bit_generator.state = decode(value).bit_generator.state
            else:
                setattr(layer, name, decode(value))
        simulators.revive(layer, state[where]["simulator"])
