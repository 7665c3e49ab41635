"""Engines by name, and what every engine offers."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.allocation import require, reserve
from townlet.errors import TownletError, did_you_mean
from townlet.town.exploring_starts import StartsSpec
from townlet.town.scene import Scene
from townlet.town.state import State, record
from townlet.town.world.tables import World

ENGINES = ("auto", "numba", "torch", "compiled")


class Engine(Protocol):
    """N rows of one world. Arrays are NumPy's or torch's, by engine, and reused at every step.

    obs [N, D] float32, mask [N, K] bool, reward [N] float32, components [N, R] float32 (they sum to the
    reward), terminated and truncated [N] bool. An action that the mask forbids is legal and wasted.

    used [n] int64 is NumPy's on every device: what each of the first n rows used in the last step, as `rules.foretell`
    says it. It is empty until somebody watches, so that nobody else pays for it.
    """

    name: str
    world: World
    rows: int
    autoreset: bool
    obs: Any
    mask: Any
    reward: Any
    components: Any
    terminated: Any
    truncated: Any
    used: NDArray[np.int64]

    def reset(self, key: int) -> None:
        """Begin episode 0 of every row in the random stream `key`."""

    def reset_rows(self, rows: Any) -> None:
        """Begin the next episode of the chosen rows (bool [N])."""

    def step(self, actions: Any) -> None:
        """One step of every row; without autoreset an ended row stays as it is."""

    def watch(self, rows: int) -> None:
        """From now on every step writes into `used` what the first rows really used."""

    def final(self, rows: Any = None) -> tuple[Any, Any]:
        """Observation and mask, before their reset, of rows that ended in the last step."""

    def final_meters(self, rows: Any) -> NDArray[np.float32]:
        """Meters, before their reset, of rows that ended in the last step [k, M]."""

    def final_state(self, rows: Any, *names: str) -> State:
        """State fields and `cell_of`, before their reset, of rows that ended in the last step [k, …]; copies."""

    def peek(self, *names: str) -> State:
        """The state, one NumPy array per field, or the named fields; live views where the engine keeps such."""

    def records(self, rows: int) -> NDArray[np.void]:
        """The first rows, one record each (`state.record`); live where the engine keeps such."""

    def state(self) -> State:
        """A copy of everything that decides what happens next."""

    def restore(self, state: State) -> None:
        """Take over the given fields, and show what follows from them."""

    def set(self, settings: State, rows: Any = None) -> None:
        """Give some rows (all by default) other settings, one value for each of them."""

    def scene(self, row: int, action: int | None = None) -> Scene:
        """One row as people see it."""

    def close(self) -> None:
        """Give back threads and memory."""


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would use on the CPU, if there is one."""
    return next((c for c in (os.environ.get("CXX"), "g++", "clang++") if c and shutil.which(c)), None)


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise TownletError(f"torch has no device '{device}' here: {why}", "`townlet doctor` says what works") from None


def row_bytes(world: World) -> int:
    """Bytes that an engine needs for one row, about."""
    seen = 4 * world.layout.size + len(world.actions) + 4 * len(world.rewards)
    places = world.tables.next_cell.shape[1] + world.tables.none if world.tables.shuffled else 0
    return seen + 3 * record(len(world.meters)).itemsize + 12 * places + 64


def make_engine(
    world: World,
    rows: int,
    kind: str = "auto",
    *,
    autoreset: bool = True,
    device: str = "cpu",
    threads: int | None = None,
    starts: StartsSpec | None = None,
) -> Engine:
    """An engine: "numba", "torch" (eager), "compiled" (torch.compile), or the best for the device.

    With `starts` a share of its episodes begins elsewhere than the world says.
    """
    if kind not in ENGINES:
        raise TownletError(f"there is no engine '{kind}'", did_you_mean(kind, ENGINES))
    if rows < 1:
        raise TownletError(f"a town needs at least one row, not {rows}", "give rows=1 or more")
    if device == "cpu":
        size = rows * row_bytes(world) * (1 if kind in ("auto", "numba") else 2)  # tensors are copied on the way
        needs = (size, f"a town of {rows:,} rows", "lower rows")
        require(*needs)
    if kind == "auto":
        kind = "numba" if device == "cpu" and find_spec("numba") else "compiled" if device != "cpu" else "torch"
    if kind == "numba":
        if device != "cpu":
            raise TownletError(f"the numba engine runs on the CPU, not on {device}", "use engine 'compiled'")
        from townlet.town.engines.numba_engine import NumbaEngine

        engine = NumbaEngine(world, rows, autoreset=autoreset, threads=threads, starts=starts)
        reserve(engine, *needs)
        return engine
    if kind == "compiled" and device == "cpu" and cpp_compiler() is None:
        raise TownletError("the compiled engine needs a C++ compiler", "apt install g++, or use engine 'numba'")
    check_device(device)
    from townlet.town.engines.torch_engine import TensorEngine

    compiles = kind == "compiled"
    return TensorEngine(world, rows, autoreset=autoreset, device=device, compiles=compiles, starts=starts)
