"""Tensors back from a checkpoint."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from townlet.errors import TownletError


def copy_into(mine: Tensor, given: Any, name: str) -> None:
    """Copy a kept tensor into the one in use; refuses none and another shape."""
    kept = None if given is None else tuple(torch.as_tensor(given).shape)
    if kept != tuple(mine.shape):
        was = "was not kept" if kept is None else f"was kept with shape {kept}"
        what = f"'{name}' {was} and this run needs shape {tuple(mine.shape)}"
        raise TownletError(what, "resume with the recipe and number of rows of the run that kept it")
    with torch.no_grad():
        mine.copy_(torch.as_tensor(given))
