"""The interface of the engines that simulate a town, and the choice of one."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from townlet.allocation import require, reserve
from townlet.errors import TownletError, did_you_mean
from townlet.town.state import StartsSpec, State, record_dtype
from townlet.town.world.tables import World

ENGINE_KINDS = ("auto", "numba", "torch", "compiled")


class Engine(Protocol):
    """N rows of one world. The arrays are NumPy arrays or torch tensors; every step overwrites them.

    obs [N, D] float32, mask [N, K] bool, reward [N] float32, components [N, R] float32 (they sum to the reward),
    terminated and truncated [N] bool. A masked action is accepted: it has its cost and ends a session, but no other
    effect.

    used [n] int64, a NumPy array on every device: what each of the first n rows used in the last step, encoded as in
    `rules.predict_use`. It is empty until `track_usage` is called.
    """

    name: str
    world: World
    rows: int
    autoreset: bool
    mask: Any
    reward: Any
    components: Any
    terminated: Any
    truncated: Any
    used: NDArray[np.int64]

    @property
    def obs(self) -> Any: ...

    def reset(self, key: int) -> None:
        """Start episode 0 of every row, with random numbers derived from `key`."""

    def reset_rows(self, rows: Any) -> None:
        """Start the next episode of the chosen rows (bool [N])."""

    def step(self, actions: Any, obs_out: NDArray[np.float32] | None = None, *, reset_ended: bool = False) -> None:
        """One step of every row. Without autoreset, a row that ended earlier does not change.

        `reset_ended` resets such rows instead, which is Gymnasium's NEXT_STEP mode.
        `obs_out` [N, D], contiguous, receives the observations.
        """

    def track_usage(self, n_rows: int) -> None:
        """From now on, every step writes to `used` what the first `n_rows` rows use."""

    def final_obs(self, rows: Any = None) -> tuple[Any, Any]:
        """Final observations and masks of all episodes that ended in the last step, or of those of the given rows."""

    def final_state(self, rows: Any, *names: str) -> State:
        """Copies [k, …] of named fields (or `cell_of`) of k rows at the end of the episode that the last step ended."""

    def final_causes(self, rows: Any) -> NDArray[np.int64]:
        """Why the episodes of k rows ended in the last step: codes as of `state.cause_codes` [k]."""

    def peek(self, *names: str) -> State:
        """The current state, one NumPy array per field: the named fields, or all. Views if possible."""

    def records(self, n_rows: int) -> NDArray[np.void]:
        """The first `n_rows` rows, one record each (`state.record_dtype`); a view if possible."""

    def state(self) -> State:
        """A copy of everything that determines the next steps."""

    def restore(self, state: State) -> None:
        """Load the given fields, and update observation and mask."""

    def set(self, settings: State, rows: Any = None) -> None:
        """Change settings of some rows (all by default), one value per row."""

    def close(self) -> None:
        """Release threads and memory."""


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would use on the CPU; None if there is none."""
    return next((c for c in (os.environ.get("CXX"), "g++", "clang++") if c and shutil.which(c)), None)


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use here."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        what = f"torch has no device '{device}' here: {why}"
        raise TownletError(what, "run `townlet doctor` to see which devices work") from None


def row_bytes(world: World) -> int:
    """Approximate memory of one row in bytes."""
    outputs = 4 * world.layout.size + len(world.actions) + 4 * len(world.rewards)
    layout_cells = world.tables.next_cell.shape[1] + world.tables.n_affordances if world.tables.shuffled else 0
    return outputs + 3 * record_dtype(len(world.meters)).itemsize + 12 * layout_cells + 64


def make_engine(
    world: World, rows: int, kind: str = "auto", *, autoreset: bool = True, device: str = "cpu",
    threads: int | None = None, starts: StartsSpec | None = None,
) -> Engine:  # fmt: skip
    """Make an engine: "numba", "torch" (eager), "compiled" (torch.compile), or "auto", the fastest for the device.

    `starts` sets exploring starts for a fraction of the episodes.
    """
    if kind not in ENGINE_KINDS:
        raise TownletError(f"there is no engine '{kind}'", did_you_mean(kind, ENGINE_KINDS))
    if rows < 1:
        raise TownletError(f"a town needs at least one row, not {rows}", "give rows=1 or more")
    if device == "cpu":
        size = rows * row_bytes(world) * (1 if kind in ("auto", "numba") else 2)  # torch copies the state in a step
        allocation = (size, f"a town of {rows:,} rows", "lower rows")
        require(*allocation)
    if kind == "auto":
        on_cpu = "numba" if find_spec("numba") else "torch"
        kind = on_cpu if device == "cpu" else "compiled"
    if kind == "numba":
        if device != "cpu":
            raise TownletError(f"the numba engine runs on the CPU, not on {device}", "use engine 'compiled'")
        from townlet.town.engines.numba_engine import NumbaEngine

        engine = NumbaEngine(world, rows, autoreset=autoreset, threads=threads, starts=starts)
        reserve(engine, *allocation)
        return engine
    if kind == "compiled" and device == "cpu" and cpp_compiler() is None:
        raise TownletError("the compiled engine needs a C++ compiler", "apt install g++, or use engine 'numba'")
    check_device(device)
    from townlet.town.engines.torch_engine import TorchEngine

    compiles = kind == "compiled"
    return TorchEngine(world, rows, autoreset=autoreset, device=device, compiles=compiles, starts=starts)
