"""Saved state: nested mappings, and how they are copied and restored.

torch is imported inside the functions, so that worker processes can import `State` without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from townlet.errors import TownletError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Leaves are tensors, NumPy arrays or JSON values: bool, int, float, str, None and lists of them.
State = dict[str, Any]

SAME_SETTINGS: Final = "continue with the settings that it was saved with"


class Stateful(Protocol):
    """A part of a run that is saved: after `restore(state())` in another process it continues bit for bit."""

    def state(self) -> State:
        """Everything that affects later results. Tensors may be views of live ones."""

    def restore(self, state: State) -> None:
        """Continue exactly where `state` was taken."""


def get_part(state: State, name: str, what: str) -> Any:
    """A named part of the saved state of `what`; raises TownletError if it is missing."""
    if name not in state:
        raise TownletError(f"the saved {what} has no '{name}'", SAME_SETTINGS)
    return state[name]


def clone_state(state: Any) -> Any:
    """A copy of a state, or of a part of one, that does not change with the live tensors."""
    import torch

    if isinstance(state, Mapping):
        return {name: clone_state(part) for name, part in state.items()}
    if isinstance(state, torch.Tensor):
        return state.clone()  # of a view, only the elements in view are copied
    return state.copy() if isinstance(state, np.ndarray) else state


def copy_tensor(live: Tensor, given: Any, name: str) -> None:
    """Copy a saved tensor into the live one of the same shape and type."""
    import torch

    if given is None:
        raise TownletError(f"'{name}' was not saved", SAME_SETTINGS)
    saved = torch.as_tensor(given)
    if saved.shape != live.shape or saved.dtype != live.dtype:
        found, needed = (f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in (saved, live))
        raise TownletError(f"'{name}' was saved as {found}, expected {needed}", SAME_SETTINGS)
    with torch.no_grad():
        live.copy_(saved)


def copy_into(live: Mapping[str, Any], saved: State, what: str) -> None:
    """Copy saved tensors into live ones, through nested mappings; both must have the same names."""
    if differing := sorted(live.keys() ^ saved.keys()):
        problem = "lacks" if differing[0] in live else "has an unknown"
        raise TownletError(f"the saved {what} {problem} '{differing[0]}'", SAME_SETTINGS)
    for name, target in live.items():
        if isinstance(target, Mapping):
            copy_into(target, saved[name], f"{what}, {name}")
        else:
            copy_tensor(target, saved[name], f"{what}: {name}")


def restore_generator(generator: torch.Generator, given: Any, what: str) -> None:
    """Restore the state of a random generator."""
    import torch

    try:
        generator.set_state(torch.as_tensor(given).cpu())
    except (RuntimeError, TypeError) as error:
        raise TownletError(f"the saved random stream of {what} cannot be used: {error}", SAME_SETTINGS) from None
