"""Loops over rows that onlookers need after every step, compiled where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by Numba; as it stands, and slow, where Numba is absent."""
    if not find_spec("numba"):
        return function
    from townlet.town.engines.numba_kernel import kernel  # only now: whoever looks at nothing need not wait for Numba

    return kernel(function)
