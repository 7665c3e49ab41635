"""Parts of a state back into what is alive, in place: whatever does not fit is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.interfaces.state import State

SAME: Final = "resume with the recipe and number of rows that it was saved with"


def part(state: State, name: str, what: str) -> Any:
    """A named part of the saved state of `what`."""
    if name not in state:
        raise TownletError(f"the saved {what} has no '{name}'", SAME)
    return state[name]


def copied(state: Any) -> Any:
    """A state, or a part of one, that stays as it is while what it was taken from lives on."""
    if isinstance(state, Mapping):
        return {name: copied(part) for name, part in state.items()}
    if isinstance(state, Tensor):
        return state.clone()  # of a view of much it takes only what is seen
    return state.copy() if isinstance(state, np.ndarray) else state


def copy_tensor(live: Tensor, given: Any, name: str) -> None:
    """Copy a saved tensor into the live one of the same shape and type."""
    if given is None:
        raise TownletError(f"'{name}' was not saved", SAME)
    saved = torch.as_tensor(given)
    if saved.shape != live.shape or saved.dtype != live.dtype:
        was, needed = (f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in (saved, live))
        raise TownletError(f"'{name}' was saved as {was}, needed is {needed}", SAME)
    with torch.no_grad():
        live.copy_(saved)


def copy_into(live: Mapping[str, Any], saved: State, what: str) -> None:
    """Copy saved tensors into live ones of the same names, through nested mappings; none may be missing or unknown."""
    if odd := sorted(live.keys() ^ saved.keys()):
        lacks = "lacks" if odd[0] in live else "has an unknown"
        raise TownletError(f"the saved {what} {lacks} '{odd[0]}'", SAME)
    for name, target in live.items():
        if isinstance(target, Mapping):
            copy_into(target, saved[name], f"{what}, {name}")
        else:
            copy_tensor(target, saved[name], f"{what}: {name}")


def restore_generator(generator: torch.Generator, given: Any, what: str) -> None:
    """Go on with the draws of a saved generator."""
    try:
        generator.set_state(torch.as_tensor(given).cpu())
    except (RuntimeError, TypeError) as wrong:
        raise TownletError(f"the saved random stream of {what} cannot be used: {wrong}", SAME) from None
