"""Simulators whose state lies outside Python: what they call it, and how it is taken and put back.

ALE gives its whole console as bytes. MuJoCo's state is copied array by array: besides positions and velocities some
environments read what the last step left behind.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.gym.plain_values import decode
from townlet.interfaces.state import State

ALE: Final = "ale"
LENGTH: Final = 8
PAGE: Final = 4096
MODEL, DATA, RENDERER = "model", "data", "mujoco_renderer"


def _is_ale(layer: Any) -> bool:
    return type(layer).__module__.startswith("ale_py") and hasattr(layer, "restore_state")


def _is_mujoco(layer: Any) -> bool:
    return type(vars(layer).get(DATA)).__name__ == "MjData"


def attributes(layer: Any) -> frozenset[str]:
    """Names of what is saved here and not as plain values."""
    if _is_ale(layer):
        return frozenset({ALE})
    return frozenset({MODEL, DATA, RENDERER}) if _is_mujoco(layer) else frozenset()


def capture(layer: Any) -> State:
    """The state of the simulator in this layer; empty where there is none."""
    if _is_ale(layer):
        return {ALE: _padded(layer.ale.cloneState(include_rng=True).serialize())}
    if _is_mujoco(layer):
        return {DATA: {name: np.array(getattr(layer.data, name)) for name in _fields(layer.model, layer.data)}}
    return {}


def revive(layer: Any, state: State) -> None:
    """Put a simulator's state back."""
    if ALE in state:
        console = type(layer.ale.cloneState())  # the class of its states, without importing the package
        layer.ale.restoreState(console(_unpadded(decode(state[ALE]))))
    for name, value in state.get(DATA, {}).items():
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
